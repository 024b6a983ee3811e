"""export: run logs as CSV and JSON lines that other programs read."""

import csv
import fcntl
import io
import json
import math
import os
import struct
import subprocess

import h5py

from program import ProgramTest, INVALID, PASS, USAGE


def bits(value):
    return struct.pack("<d", value)


class Export(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.logs = cls.make_logs("logs")
        cls.log = cls.logs["mxfp8-seed1"]

    def export(self, *arguments):
        result = self.run_isoloss("export", self.log, *arguments)
        self.assertEqual(result.returncode, PASS, result.stderr)
        return result.stdout

    def test_csv_holds_the_bits_of_the_log(self):
        rows = list(csv.reader(io.StringIO(self.export("--group", "steps"))))

        with h5py.File(self.log) as log:
            for name, unit in (("loss_nats", "nat"), ("grad_norm", "1"),
                               ("tokens_per_second", "token/s")):
                column = rows[0].index(f"{name}[{unit}]")
                self.assertEqual([bits(float(row[column])) for row in rows[1:]],
                                 [bits(value) for value in log["steps"][name]])

    def test_jsonl_holds_the_bits_of_the_log(self):
        lines = self.export("--group", "parameters", "--format", "jsonl")
        rows = [json.loads(line) for line in lines.splitlines()]

        with h5py.File(self.log) as log:
            names = list(log["parameters/names"].asstr())
            for row, norms in zip(rows, log["parameters/grad_norm"],
                                  strict=True):
                self.assertEqual(list(row["grad_norm"]), names)
                for value, norm in zip(row["grad_norm"].values(), norms,
                                       strict=True):
                    self.assertEqual(bits(float(value)), bits(norm))

    def test_tensors_as_csv_have_a_row_for_each_step_and_name(self):
        for group, cell in (("tensors", "l2_norm[1]"),
                            ("parameters", "grad_norm[1]")):
            with self.subTest(group=group):
                rows = list(csv.reader(io.StringIO(
                    self.export("--group", group))))
                self.assertEqual(rows[0][:2], ["step[step]", "name"])
                column = rows[0].index(cell)

                with h5py.File(self.log) as log:
                    held = log[group]
                    names = list(held["names"].asstr())
                    values = held[cell.removesuffix("[1]")][...]
                    expected = [(str(step), name, bits(values[i, j]))
                                for i, step in enumerate(held["step"])
                                for j, name in enumerate(names)
                                if not math.isnan(values[i, j])]
                self.assertEqual(
                    [(row[0], row[1], bits(float(row[column])))
                     for row in rows[1:] if row[column] != "NaN"], expected)

    def test_steps_as_csv_is_the_default(self):
        self.assertEqual(self.export(),
                         self.export("--group", "steps", "--format", "csv"))

    def test_out_writes_all_groups_that_have_rows(self):
        result = self.run_isoloss("export", self.log, "--out", "tables")

        self.assertEqual(result.returncode, PASS, result.stderr)
        files = {path.name for path in (self.folder / "tables").iterdir()}
        self.assertLessEqual({"steps.csv", "eval.csv", "parameters.csv",
                              "tensors.csv", "moe.csv", "events.csv"}, files)
        for name in files:
            self.assertIn(name, result.stdout)
        self.assertEqual((self.folder / "tables/steps.csv").read_text(),
                         self.export("--group", "steps"))

    def test_out_with_a_group_is_a_file(self):
        self.export("--group", "eval", "--format", "jsonl", "--out", "e.jsonl")

        self.assertEqual((self.folder / "e.jsonl").read_text(),
                         self.export("--group", "eval", "--format", "jsonl"))

    def test_tensor_statistics_that_are_not_defined_are_nan(self):
        lines = self.export("--group", "tensors", "--format", "jsonl")
        values = {value for row in map(json.loads, lines.splitlines())
                  for value in row["sqnr_db"].values()}

        self.assertIn("NaN", values)
        self.assertTrue(any(isinstance(value, float) and math.isfinite(value)
                            for value in values))

    def test_what_a_killed_export_left_is_removed(self):
        ended = subprocess.Popen(["true"])
        ended.wait()
        file = self.folder / "killed.csv"
        self.export("--group", "steps", "--out", file)
        stale = file.with_name(f".{file.name}.{ended.pid}-0.tmp")
        others = [file.with_name(f".{file.name}.{os.getpid()}-0.tmp"),  # of one that lives
                  file.with_name(f".{file.name}.{ended.pid}-1.tmp"),  # of one on another machine
                  file.with_name(f".another.{ended.pid}-0.tmp"), file.with_name(f".{file.name}.tmp")]
        for path in (stale, *others):
            path.write_text("half")
        with open(others[1], encoding="utf-8") as locked:
            fcntl.flock(locked, fcntl.LOCK_EX)
            self.export("--group", "steps", "--out", file)
        self.assertEqual([path.exists() for path in (stale, *others)], [False] + [True] * 4)

    def test_wrong_arguments_are_refused(self):
        self.assert_refused(
            self.run_isoloss("export", self.log, "--group", "parameter"),
            "`parameter`", "Did you mean `parameters`?")
        self.assert_refused(
            self.run_isoloss("export", self.log, "--format", "xml"),
            "--format", code=USAGE)
        self.assert_refused(self.run_isoloss("export", "missing.h5"),
                            "missing.h5")
        self.assert_refused(self.run_isoloss("export", "tiny.toml"),
                            "tiny.toml")
        self.assert_refused(
            self.run_isoloss("export", self.log, "--out", "tiny.toml"),
            "tiny.toml", code=INVALID)
