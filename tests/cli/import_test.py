"""import: what logs of other programs hold."""

import csv
import io
import json
import math
import random
import re

from program import PASS, ProgramTest


def torchtitan_line(step, loss, norm):
    return (f"\x1b[32m[titan] 2026-05-03 02:00:01,123 - root - INFO - \x1b[31mstep: {step:2d}"
            f"\x1b[32m  loss: {loss:8.5f}\x1b[39m  grad_norm: {norm:7.4f}  tps: 1,234\x1b[39m")


class Import(ProgramTest):
    def import_json(self, name, text, *options):
        path = self.folder / name
        path.write_text(text, encoding="utf-8", newline="")
        result = self.run_isoloss("import", path, "--json", *options)
        self.assertEqual(result.returncode, PASS, result.stderr)
        return json.loads(result.stdout)["logs"][0]["runs"]

    def series(self, run, name):
        one = next(one for one in run["series"] if one["name"] == name)
        return dict(zip(one["step"], (float(value) for value in one["value"])))

    def assert_same(self, found, expected):
        self.assertEqual(list(found), list(expected))
        for step, value in expected.items():
            self.assertTrue(found[step] == value
                            or math.isnan(found[step]) and math.isnan(value), step)

    def test_values_of_torchtitan_are_those_of_another_parser(self):
        numbers = random.Random(1)
        lines = ["Traceback (most recent call last):", "step: nothing"]
        for step in (1, *range(10, 1001, 10)):
            lines.append(torchtitan_line(step, 2 + numbers.expovariate(1), numbers.random()))
        lines.append(torchtitan_line(1010, math.nan, math.inf))
        text = "\r\n".join(lines)
        plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
        expected = {int(step): float(loss) for step, loss
                    in re.findall(r"step: +(\d+)  loss: +(\S+)", plain)}

        run, = self.import_json("train.log", text)

        self.assertEqual(len(expected), 102)
        self.assert_same(self.series(run, "loss"), expected)

    def test_values_of_a_table_are_those_of_another_parser(self):
        numbers = random.Random(2)
        table = io.StringIO()
        writer = csv.writer(table, quoting=csv.QUOTE_ALL)
        runs = ("bf16, \"old\"", "fp8 - new")
        writer.writerow(["Step"] + [f"{run} - loss{part}" for run in runs
                                    for part in ("", "__MIN", "__MAX")])
        expected = {run: {} for run in runs}
        for step in range(0, 5000, 2):
            row = [step]
            for run in runs:
                value = repr(numbers.gauss(3, 1)) if numbers.random() < 0.7 else ""
                row += [value] * 3
                if value:
                    expected[run][step] = float(value)
            writer.writerow(row)

        found = self.import_json("chart.csv", table.getvalue())

        self.assertEqual([run["name"] for run in found], list(runs))
        for run in found:
            self.assert_same(self.series(run, "loss"), expected[run["name"]])

    def test_columns_of_any_names_are_read_once_they_are_given(self):
        numbers = random.Random(3)
        expected = {step: numbers.gauss(3, 1) for step in range(1, 200)}
        for separator, name in ((",", "table.csv"), ("\t", "table.tsv")):
            with self.subTest(name=name):
                text = "\n".join(
                    [separator.join(("it", "train_nll", "loss"))]
                    + [separator.join((str(step), repr(value), "7"))
                       for step, value in expected.items()])

                run, = self.import_json(name, text, "--step", "it", "--loss", "train_nll")

                self.assert_same(self.series(run, "train_nll"), expected)
                self.assertEqual([one["name"] for one in run["series"] if one["quantity"] == "loss"],
                                 ["train_nll"])
                self.assertEqual([one["counts"] for one in run["series"]],
                                 [one["name"] == "train_nll" for one in run["series"]])

        text = "".join(json.dumps({"it": step, "train": {"nll": value}}) + "\n"
                       for step, value in expected.items())
        run, = self.import_json("rows.jsonl", text, "--step", "it", "--loss", "train/nll")
        self.assert_same(self.series(run, "train/nll"), expected)

    def test_names_that_a_log_lacks_are_refused_with_those_it_has(self):
        table = self.folder / "table.csv"
        table.write_text("it,train_nll\n1,2.5\n2,2.25\n")
        log = self.folder / "train.log"
        log.write_text(torchtitan_line(1, 5, 1) + "\n")
        for path, options, words in (
                (table, (), "`it`, `train_nll`"),
                (table, ("--step", "step"), "not `step`"),
                (table, ("--step", "it", "--loss", "nll"), "It has `train_nll`"),
                (log, ("--step", "it"), "torchtitan says itself"),
                (log, ("--loss", "nll"), "It has `loss`, `grad_norm`")):
            with self.subTest(options=options):
                result = self.run_isoloss("import", path, *options)

                self.assert_refused(result, words, path.name)

    def test_what_is_found_is_told_in_lines_of_80_columns(self):
        path = self.folder / "resumed.log"
        path.write_text("\n".join(torchtitan_line(step, loss, 1) for step, loss in
                                  ((1, 5), (10, 4), (20, 3), (10, 4.5), (20, 3), (50, 2), (60, 2.5), (70, 3))))

        result = self.run_isoloss("import", path)

        self.assertEqual(result.returncode, PASS, result.stderr)
        self.assertIn("another value, as after a resume: 1, the first is 10",
                      result.stdout)
        self.assertIn("Places that differ: 1, the first after step 20. Values missing: 2.",
                      result.stdout)
        for line in result.stdout.splitlines():
            if not line.startswith("-"):
                self.assertLessEqual(len(line), 80, line)

    def test_what_is_no_log_is_refused_with_what_would_be(self):
        for name, text, words in (
                ("empty.log", "", "0 bytes hold no value"),
                ("inference.json", '{"0": {"generated_text": "x"}}', "1 keys"),
                ("pointer", "version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
                ("stdout.txt", "{'loss': 8.3}\n", "single quote"),
                ("runs.csv", "Name,State,loss\nx,finished,2\n", "a run in each row")):
            with self.subTest(name=name):
                path = self.folder / name
                path.write_text(text)

                result = self.run_isoloss("import", path)

                self.assert_refused(result, words, name)
