"""From training to a verdict: report, JSON, exit codes, what never passes."""

import json
import pathlib
import shutil
import sys

import h5py

sys.path.append(str(pathlib.Path(__file__).parent.parent / "runlog"))
from read_with_h5py import seal

from program import (ProgramTest, FAIL, INCONCLUSIVE, INVALID, PASS, TINY)

# A divergence within a few steps: no warm-up, no clipping, and experts' outputs
# scaled beyond what the update can follow.
DIVERGING = ("train.lr=1", "train.clip_norm=1e9", "train.warmup_steps=0",
             "train.beta2=0", "model.route_scale=1e9", "train.weight_decay=0")


class Verdict(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.passed = cls.verify("passed")
        cls.logs = {log.stem: log
                    for log in (cls.folder / "passed").glob("*.h5")}

    @classmethod
    def verify(cls, out, *settings, experiment="tiny.toml", options=()):
        return cls.run_isoloss(
            "verify", experiment, "--out", out, *options,
            *(f"--set={setting}" for setting in settings))

    def verdict(self, out):
        return json.loads((self.folder / out / "verdict.json").read_text())

    def assert_verdict(self, result, code, outcome):
        self.assertEqual(result.returncode, code, result.stdout + result.stderr)
        last = result.stdout.splitlines()[-1]
        self.assertTrue(last.startswith(outcome), last)
        self.assertTrue(last.endswith(f"(exit code {code})"), last)

    def edited_logs(self, out, edit):
        """Copies of the logs; edit(name, file) changes each."""
        folder = self.folder / out
        folder.mkdir()
        copies = []
        for name, log in sorted(self.logs.items()):
            copies.append(shutil.copy(log, folder))
            with h5py.File(copies[-1], "r+") as file:
                edit(name, file)
            seal(copies[-1])
        return copies

    def test_pass_with_both_curves_load_and_entropy(self):
        self.assert_verdict(self.passed, PASS, "PASS")
        for text in ("mxfp8 against bf16", "Loss in nats", "⠒⠒ bf16",
                     "⠂⠂ mxfp8", "busiest expert / mean",
                     "experts without tokens", "unigram entropy",
                     "entropy rate", "L5 final_window", "margin", "78 of 84"):
            self.assertIn(text, self.passed.stdout)

    def test_verdict_json_says_what_the_report_says(self):
        verdict = self.verdict("passed")

        self.assertEqual(verdict["outcome"], "PASS")
        self.assertEqual(verdict["exit_code"], PASS)
        self.assertEqual(verdict["schema_version"], 2)
        self.assertTrue(all(check["outcome"] == "PASS"
                            for check in verdict["checks"]))
        for key in ("experiment", "policy", "baseline", "candidate", "checks",
                    "warnings"):
            self.assertIn(key, verdict)

    def test_gate_on_the_logs_gives_the_verdict_of_verify(self):
        result = self.run_isoloss("gate", *sorted(self.logs.values()),
                                  "--out", "gated")

        self.assert_verdict(result, PASS, "PASS")
        ours, theirs = self.verdict("gated"), self.verdict("passed")
        self.assertEqual(ours["outcome"], theirs["outcome"])
        self.assertEqual(ours["final_window"], theirs["final_window"])
        self.assertEqual([check["outcome"] for check in ours["checks"]],
                         [check["outcome"] for check in theirs["checks"]])

    def test_ascii_reports_are_ascii(self):
        result = self.run_isoloss("gate", *self.logs.values(), "--ascii")

        self.assertEqual(result.returncode, PASS)
        self.assertTrue(result.stdout.isascii())

    def test_one_seed_is_inconclusive(self):
        result = self.verify("one_seed", "train.seeds=[1]")

        self.assert_verdict(result, INCONCLUSIVE, "INCONCLUSIVE")
        self.assertEqual(self.verdict("one_seed")["exit_code"], INCONCLUSIVE)

    def test_a_loss_beyond_the_margin_fails(self):
        def worse(name, log):
            if name.startswith("mxfp8"):
                for path in ("steps/loss_nats", "eval/loss_nats",
                             "eval/per_sequence_loss_nats"):
                    log[path][...] *= 1.01

        result = self.run_isoloss("gate", *self.edited_logs("worse", worse))

        self.assert_verdict(result, FAIL, "FAIL")
        self.assertIn("+1.0", result.stdout)

    def test_a_diverging_run_fails_and_its_step_is_named(self):
        result = self.verify("nan", *DIVERGING)

        self.assert_verdict(result, FAIL, "FAIL")
        with h5py.File(self.folder / "nan/bf16-seed1.h5") as log:
            step = len(log["steps/step"])
            self.assertEqual(list(log["events/kind"].asstr())[-1], "abort")
        self.assertLess(step, 20)
        report = " ".join(result.stdout.split())
        self.assertRegex(report,
                         rf"(loss_nats|grad_norm) is \S+ at step {step}\b")
        self.assertEqual(self.verdict("nan")["outcome"], "FAIL")

    def test_one_nan_or_a_missing_step_anywhere_never_passes(self):
        def with_nan(name, log):
            if name == "mxfp8-seed2":
                log["steps/loss_nats"][0] = float("nan")

        def without_last_step(name, log):
            if name == "bf16-seed1":
                for dataset in log["steps"].values():
                    dataset.resize(19, axis=0)

        for edit in (with_nan, without_last_step):
            with self.subTest(edit=edit.__name__):
                result = self.run_isoloss(
                    "gate", *self.edited_logs(edit.__name__, edit))

                self.assertIn(result.returncode, (FAIL, INVALID))

    def test_arms_that_are_identical_never_pass(self):
        same = self.verify("same", "arms.mxfp8.recipe=bf16")

        self.assert_verdict(same, FAIL, "FAIL")
        self.assertIn("identical", same.stdout)

    def test_an_arm_that_did_not_run_its_recipe_never_passes(self):
        def not_quantised(name, log):
            if name.startswith("mxfp8"):
                log["steps/quantized_gemms"][...] = 0

        result = self.run_isoloss(
            "gate", *self.edited_logs("idle", not_quantised))

        self.assertIn(result.returncode, (FAIL, INVALID), result.stdout)

    def test_runs_that_have_learnt_nothing_are_warned_about(self):
        # 20 steps leave the loss above the entropy of single tokens.
        warnings = self.verdict("passed")["warnings"]

        self.assertEqual(len(warnings), 2)
        for arm, warning in zip(("bf16", "mxfp8"), warnings):
            self.assertTrue(warning.startswith(arm), warning)
            self.assertIn("learnt nothing yet", warning)

    def test_a_single_arm_is_refused_before_training(self):
        self.write("single.toml", TINY.replace(
            '[arms.mxfp8]\nrecipe = "mxfp8_rceil"\n', ""))

        result = self.verify("single", experiment="single.toml")

        self.assert_refused(result, "second arm", "isoloss run")
        self.assert_no_files("single")

    def test_a_policy_sets_the_limits(self):
        self.write("strict.toml", "margin_percent = 1e-9\n")

        result = self.run_isoloss("gate", *self.logs.values(),
                                  "--policy", "strict.toml")

        self.assertIn(result.returncode, (FAIL, INCONCLUSIVE))


class Regression(ProgramTest):
    """gate --against: is this still the run that was approved?"""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.approved = list(cls.make_logs("approved").values())

    def gate(self, logs, *options):
        return self.run_isoloss("gate", *logs, "--against", *self.approved,
                                *options)

    def test_a_rerun_is_the_approved_run(self):
        result = self.gate(self.make_logs("again").values(), "--json")

        verdicts = json.loads(result.stdout)
        self.assertEqual(result.returncode, PASS, result.stderr)
        self.assertEqual(sorted(v["candidate"]["arm"] for v in verdicts),
                         ["bf16", "mxfp8"])
        self.assertEqual({v["policy"]["question"] for v in verdicts},
                         {"regression"})

    def test_another_learning_rate_is_not(self):
        result = self.gate(self.make_logs("other", "train.lr=1e-4").values())

        self.assertEqual(result.returncode, INVALID)

    def test_an_arm_without_approved_runs_is_refused(self):
        self.write("renamed.toml", TINY.replace("[arms.mxfp8]", "[arms.mx]"))
        self.run_isoloss("run", "renamed.toml", "--out", "renamed")
        logs = (self.folder / "renamed").glob("mx-*.h5")

        self.assert_refused(self.gate(logs), "arm `mx`", "bf16, mxfp8")


class SeveralArms(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.write("three.toml",
                  TINY + '[arms.floor]\nrecipe = "mxfp8_floor"\n')

    def test_json_is_one_document_with_a_verdict_per_candidate_arm(self):
        for experiment, arms in (("tiny.toml", ["mxfp8"]),
                                 ("three.toml", ["mxfp8", "floor"])):
            with self.subTest(experiment=experiment):
                result = self.run_isoloss("verify", experiment, "--json",
                                          "--out", experiment + ".out")

                verdicts = json.loads(result.stdout)
                self.assertEqual([v["candidate"]["arm"] for v in verdicts],
                                 arms)
                self.assertEqual({v["baseline"]["arm"] for v in verdicts},
                                 {"bf16"})
                self.assertEqual(max(v["exit_code"] for v in verdicts),
                                 result.returncode)
                names = (["verdict.json"] if len(arms) == 1 else
                         [f"verdict-{arm}.json" for arm in arms])
                for name, verdict in zip(names, verdicts):
                    path = self.folder / f"{experiment}.out" / name
                    self.assertEqual(json.loads(path.read_text()), verdict)


class ShowAndCompare(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.logs = cls.make_logs("logs")

    def test_show_tells_who_made_a_log_and_draws_it(self):
        result = self.run_isoloss("show", self.logs["mxfp8-seed2"], "--recipe")

        self.assertEqual(result.returncode, PASS, result.stderr)
        for text in ("arm         mxfp8, recipe mxfp8_rceil, seed 2",
                     "20 of 20 planned", "78 of 84 quantised per step",
                     "loss (nats)", "step      20  held-out loss", "lm_head"):
            self.assertIn(text, result.stdout)

    def test_compare_tells_equal_logs_from_others_by_exit_code(self):
        again = self.make_logs("again")["bf16-seed1"]
        first = self.logs["bf16-seed1"]

        equal = self.run_isoloss("compare", first, again)
        other = self.run_isoloss("compare", first, self.logs["mxfp8-seed1"])

        self.assertEqual(equal.returncode, PASS, equal.stderr)
        self.assertIn("equal to the bit", equal.stdout)
        self.assertEqual(other.returncode, FAIL, other.stderr)
        self.assertIn("First divergence: step 1, loss_nats", other.stdout)

    def test_compare_of_logs_of_different_length_is_no_equality(self):
        short = self.make_logs("short", "train.steps=20",
                               "train.decay_ratio=0", "train.warmup_steps=4")
        shorter = self.make_logs("shorter", "train.steps=10",
                                 "train.decay_ratio=0", "train.warmup_steps=4")

        result = self.run_isoloss("compare", short["bf16-seed1"],
                                  shorter["bf16-seed1"])

        self.assertEqual(result.returncode, FAIL, result.stderr)
        self.assertIn("10 common steps", result.stdout)
