"""gate, compare, report and ensemble build on logs of other programs."""

import json
import math
import random

from program import FAIL, INCONCLUSIVE, INVALID, PASS, USAGE, ProgramTest

STEPS = 400


def losses(seed, percent=0.0, run=0, steps=STEPS):
    """Of a seed, with the noise of its batches and, far less, of the run."""
    batches = random.Random(seed)
    chance = random.Random(1000 * seed + run)
    return [(2 + 8 * math.exp(-step / 40) + batches.gauss(0, 0.02)) * (1 + percent / 100)
            + chance.gauss(0, 0.003) for step in range(1, steps + 1)]


class GateForeign(ProgramTest):
    def write_text(self, name, text):
        path = self.folder / name
        path.write_text(text, encoding="utf-8")
        return path

    def torchtitan(self, name, values, every=10):
        """Lines as torchtitan prints them, of every `every`-th step."""
        return self.write_text(name, "".join(
            f"[titan] 2026-05-03 02:00:01,123 - root - INFO - step: {step:2d}  "
            f"loss: {value:8.5f}  grad_norm: {1 + 1 / step:7.4f}  tps: 1,234\n"
            for step, value in enumerate(values, 1) if step == 1 or step % every == 0))

    def chart(self, name, runs):
        """What W&B exports of a chart."""
        columns = [f'"{run} - train/loss{part}"' for run in runs for part in ("", "__MIN", "__MAX")]
        rows = [",".join(['"Step"', *columns])]
        for step in range(STEPS):
            rows.append(",".join([f'"{step + 1}"'] + [
                f'"{values[step]!r}"' for values in runs.values() for _ in range(3)]))
        return self.write_text(name, "\n".join(rows) + "\n")

    def gate(self, *arguments, code):
        result = self.run_isoloss("gate", *arguments)
        self.assertEqual(result.returncode, code, result.stdout + result.stderr)
        return " ".join((result.stdout + result.stderr).split())

    def test_a_published_pair_gets_a_verdict_and_a_report(self):
        chart = self.chart("published.csv", {"bf16": losses(1), "fp8": losses(1, 0.04, 5)})
        out = self.folder / "out"
        text = self.gate(chart, "--out", out, code=INCONCLUSIVE)
        self.assertIn("that fp8 ends within 0.25 % of bf16", text)
        self.assertIn("at least 2 seed pairs are needed", text)
        verdict = json.loads((out / "verdict.json").read_text())
        self.assertEqual(verdict["outcome"], "INCONCLUSIVE")
        self.assertEqual(verdict["origin"], "wandb_chart")
        page = (out / "report.html").read_text()
        self.assertIn("fp8", page)

    def test_several_seeds_in_one_chart_pass_or_fail(self):
        def runs(percent):
            return {**{f"bf16-seed{seed}": losses(seed) for seed in (1, 2, 3, 4)},
                    **{f"fp8-seed{seed}": losses(seed, percent, 5) for seed in (1, 2, 3, 4)}}
        good = self.gate(self.chart("good.csv", runs(0.02)), "--verbose", code=PASS)
        self.assertIn("is not checked", good)
        self.assertIn("megatron_approximate accepts 4 of 4", good)
        self.assertIn("no extrapolation", good)
        bad = self.gate(self.chart("bad.csv", runs(1)), code=FAIL)
        self.assertIn("trains worse", bad)

    def test_text_logs_with_arms_on_the_command_line(self):
        words = []
        for seed in (1, 2, 3):
            words.append(f"base={self.torchtitan(f'a{seed}.txt', losses(seed))}")
            words.append(f"mx={self.torchtitan(f'b{seed}.txt', losses(seed, 0.02, 5))}")
        self.assertIn("mx ends within 0.25 % of base", self.gate(*words, code=PASS))

    def test_two_common_losses_are_no_curve(self):
        words = []
        for seed in (1, 2, 3):
            words.append(f"base={self.torchtitan(f'c{seed}.txt', losses(seed), every=STEPS)}")
            words.append(f"mx={self.torchtitan(f'd{seed}.txt', losses(seed, 0.02, 5), every=STEPS)}")

        self.assertIn("a curve needs at least 3", self.gate(*words, code=INCONCLUSIVE))

    def test_a_run_that_ended_early_is_cut_only_on_demand(self):
        whole = self.torchtitan("whole.log", losses(1))
        short = self.torchtitan("short.log", losses(1, 0.02, 5)[:200])
        self.assertIn("--until 200", self.gate(whole, short, code=INVALID))
        self.gate(whole, short, "--until", "200", code=INCONCLUSIVE)

    def test_a_run_that_broke_off_is_no_run(self):
        logs = [self.torchtitan(f"{name}.log", losses(1)) for name in ("approved", "new")]
        for log in logs:
            with log.open("a", encoding="utf-8") as file:
                file.write("Traceback (most recent call last):\n  File \"train.py\", line 1\n")
        text = self.gate(logs[1], "--against", logs[0], code=INVALID)
        self.assertIn("after step 400 its log has `Traceback", text)
        self.gate(logs[1], "--against", logs[0], "--until", "400", code=PASS)

    def test_a_run_that_began_anew_is_told_in_the_first_lines(self):
        approved = self.torchtitan("approved.log", losses(1))
        first = self.torchtitan("first.log", losses(1, 3)[:50]).read_text()
        new = self.write_text("new.log", first + approved.read_text())
        text = self.gate(new, "--against", approved, code=PASS)
        self.assertIn("The last attempt counts alone", text)

    def test_equal_digits_pass_a_regression(self):
        approved = self.torchtitan("approved.log", losses(1))
        new = self.torchtitan("new.log", losses(1))
        text = self.gate(new, "--against", approved, code=PASS)
        self.assertIn("as far as the logs' digits go", text)
        other = self.torchtitan("other.log", losses(1, 0, 7))
        self.gate(other, "--against", approved, code=INCONCLUSIVE)

    def test_a_log_is_no_evidence_for_itself(self):
        log = self.torchtitan("log.log", losses(1))
        text = self.gate(log, "--against", self.folder / "." / "log.log", code=INCONCLUSIVE)
        self.assertIn("a file is always equal to itself", text)
        twice = self.gate(f"a={log}", f"b={self.folder}/./log.log", code=INCONCLUSIVE)
        self.assertIn("a file is always equal to itself", " ".join(twice.split()))
        compared = self.run_isoloss("compare", log, log)
        self.assertIn("A and B are one file", compared.stdout)
        copy = self.torchtitan("copy.log", losses(1))
        self.assertIn("equal in every byte", self.gate(copy, "--against", log, code=PASS))

    def test_two_versions_of_an_arm_are_called_approved_and_now(self):
        (self.folder / "later").mkdir()
        logs = {name: [self.torchtitan(f"{name}a-seed{seed}.log", losses(seed, 0, run))
                       for seed in (1, 2, 3)] for name, run in (("", 0), ("later/", 1))}
        out = self.folder / "out"
        text = self.gate(*logs["later/"], "--against", *logs[""], "--out", out, code=PASS)
        self.assertIn("Paired loss difference a now - approved", text)
        self.assertIn("PASS a now against approved: ", text)
        page = (out / "report.html").read_text()
        for name in ("a now", "a approved"):
            self.assertIn(f'"name":"{name}"', page)

    def test_equal_arms_take_few_lines_after_the_first(self):
        folder = self.folder / "now"
        folder.mkdir()
        for arm in ("a", "b"):
            for where in ("", "now/"):
                self.torchtitan(f"{where}{arm}-seed1.log", losses(1))
        text = self.gate(*sorted(folder.iterdir()), "--against", self.folder / "a-seed1.log",
                         self.folder / "b-seed1.log", code=PASS)
        self.assertEqual(text.count("Nothing was given for"), 1)
        self.assertEqual(text.count("(exit code 0)"), 2)

    def test_a_folder_of_logs_is_an_arm(self):
        for arm, percent in (("bf16", 0), ("fp8", 0.02)):
            (self.folder / arm).mkdir()
            for seed in (1, 2, 3):
                self.torchtitan(f"{arm}/seed{seed}.log", losses(seed, percent, 5))
        self.assertIn("fp8 ends within 0.25 % of bf16",
                      self.gate(self.folder / "bf16", self.folder / "fp8", code=PASS))
        (self.folder / "fp8" / "seed2.log").unlink()
        text = self.gate(self.folder / "bf16", self.folder / "fp8", code=INVALID)
        self.assertIn("arm fp8 has 1, 3", text)

    def test_a_loss_that_is_not_known_at_the_end_is_no_pass(self):
        def table(name, values, unknown):
            return self.write_text(name, "step,loss,grad_norm\n" + "".join(
                f"{step},{'' if step in unknown else f'{value:.5f}'},1.25\n"
                for step, value in enumerate(values, 1)))
        approved = [table(f"a{seed}.csv", losses(seed, steps=100), ()) for seed in (1, 2, 3)]
        for unknown, code, words in (((95, 96), INCONCLUSIVE, "losses of 2 of 10 steps are not known"),
                                     ((99, 100), INVALID, "The first is 99, the last 100"),
                                     (range(41, 47), INCONCLUSIVE, "losses of 6 of 10 steps are not known"),
                                     ((40, 41), PASS, "The loss of 2 steps is not known")):
            with self.subTest(unknown=unknown):
                new = [table(f"b{seed}.csv", losses(seed, 0.01, 5, 100), unknown)
                       for seed in (1, 2, 3)]
                text = self.gate(*(f"a={log}" for log in approved), *(f"b={log}" for log in new),
                                 "--verbose", code=code)
                self.assertIn(words, text)

    def test_good_runs_are_the_yardstick_of_a_trainer_that_is_not_deterministic(self):
        good = [self.torchtitan(f"good{run}.log", losses(1, 0, run)) for run in range(6)]
        ensemble = self.folder / "good.h5"
        built = self.run_isoloss("ensemble", "build", "--from", *good, "--out", ensemble)
        self.assertEqual(built.returncode, PASS, built.stderr)
        self.assertIn("6 good runs", built.stdout)
        same = self.torchtitan("same.log", losses(1, 0, 50))
        worse = self.torchtitan("worse.log", losses(1, 0.8, 50))
        self.assertIn("still the run", self.gate(same, "--ensemble", ensemble, code=PASS))
        self.assertIn("no longer the run", self.gate(worse, "--ensemble", ensemble, code=FAIL))
        self.gate(same, "--against", good[2], "--ensemble", ensemble, code=PASS)
        # Of two arms the baseline's own runs are the yardstick.
        bf16 = self.torchtitan("bf16.log", losses(1, 0, 60))
        self.gate(bf16, same, "--ensemble", ensemble, code=INVALID)

    def test_an_ensemble_is_of_an_experiment_or_of_logs(self):
        good = self.torchtitan("good.log", losses(1))
        for arguments in ((), ("--from", good), ("--from", good, good, "--runs", "3"),
                          (self.tiny, "--from", good, good)):
            with self.subTest(arguments=arguments):
                out = self.folder / "no.h5"
                result = self.run_isoloss("ensemble", "build", *arguments, "--out", out)
                self.assertIn(result.returncode, (USAGE, INVALID))
                self.assertNotEqual(result.stderr, "")
                self.assertFalse(out.exists())

    def test_smoothed_curves_are_refused(self):
        def smooth(values):
            mean, smoothed = values[0], []
            for value in values:
                mean = 0.9 * mean + 0.1 * value
                smoothed.append(mean)
            return smoothed
        runs = {f"{arm}-seed{seed}": smooth(losses(seed, percent, 5 * (percent > 0)))
                for arm, percent in (("bf16", 0), ("fp8", 0.01)) for seed in (1, 2, 3)}
        text = self.gate(self.chart("smooth.csv", runs), code=INCONCLUSIVE)
        self.assertIn("without smoothing", text)

    def test_other_commands_take_them(self):
        a = self.torchtitan("a.log", losses(1))
        b = self.torchtitan("b.log", losses(1, 0.02, 5))
        compared = self.run_isoloss("compare", a, b)
        self.assertIn("First divergence: step 1", compared.stdout)
        shown = self.run_isoloss("show", a)
        self.assertIn("format torchtitan", shown.stdout)
        page = self.folder / "page.html"
        reported = self.run_isoloss("report", a, b, "--out", page)
        self.assertEqual(reported.returncode, PASS, reported.stderr)
        self.assertTrue(page.exists())
        chart = self.chart("two.csv", {"bf16": losses(1), "fp8": losses(1, 0.04, 5)})
        refused = self.run_isoloss("compare", chart, a)
        self.assertIn("it holds 2 runs", refused.stderr)

