"""From training to a verdict: report, JSON, exit codes, what never passes."""

import json
import pathlib
import shutil
import sys

import h5py

SOURCE = pathlib.Path(__file__).parent.parent.parent
sys.path.append(str(SOURCE / "tests/runlog"))
from read_with_h5py import seal

from program import (ProgramTest, FAIL, INCONCLUSIVE, INVALID, PASS, PLAIN_POLICY, TINY, USAGE)

# A divergence within a few steps: no warm-up, no clipping, and experts' outputs
# scaled beyond what the update can follow.
DIVERGING = ("train.lr=1", "train.clip_norm=1e9", "train.warmup_steps=0",
             "train.beta2=0", "model.route_scale=1e9", "train.weight_decay=0")


class Verdict(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        # In 20 steps nothing is learnt.
        cls.untuned = ("--policy", cls.write("untuned.toml", "require_tuning = false\n"))
        cls.passed = cls.verify("passed", options=["--verbose"])
        cls.logs = {log.stem: log
                    for log in (cls.folder / "passed").glob("*.h5")}

    @classmethod
    def verify(cls, out, *settings, experiment="tiny.toml", options=()):
        policy = () if "--policy" in options else cls.untuned
        return cls.run_isoloss(
            "verify", experiment, "--out", out, *options, *policy,
            *(f"--set={setting}" for setting in settings))

    def verdict(self, out):
        return json.loads((self.folder / out / "verdict.json").read_text())

    def assert_verdict(self, result, code, outcome):
        self.assertEqual(result.returncode, code, result.stdout + result.stderr)
        last = result.stdout.splitlines()[-1]
        self.assertTrue(last.startswith(outcome), last)
        self.assertTrue(last.endswith(f"(exit code {code})"), last)

    def edited_logs(self, out, edit, logs=None):
        """Copies of the logs; edit(name, file) changes each."""
        folder = self.folder / out
        folder.mkdir()
        copies = []
        for name, log in sorted((logs or self.logs).items()):
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

    def test_a_negative_seed_is_no_seed(self):
        def negate(name, file):
            file.attrs["seed"] = -file.attrs["seed"]

        result = self.run_isoloss("gate", *self.edited_logs("negative", negate))

        self.assertEqual(result.returncode, INVALID, result.stdout + result.stderr)

    def test_a_call_that_judges_nothing_says_so(self):
        result = self.verify("nothing", options=["--list-runs", "list.txt", "--json",
                                                 "--junit", "nothing.xml"])

        self.assertEqual(result.returncode, PASS, result.stderr)
        self.assertIs(json.loads(result.stdout)["judged"], False)
        self.assertIn("<skipped", (self.folder / "nothing.xml").read_text())

    def test_a_verdict_on_an_arm_that_is_gone_does_not_stay(self):
        shutil.copytree(self.folder / "passed", self.folder / "stale")
        verdict = self.verdict("stale")
        (self.folder / "stale/verdict-copy.json").write_text(json.dumps(verdict))
        verdict["candidate"]["arm"] = "gone"
        (self.folder / "stale/verdict-gone.json").write_text(json.dumps(verdict))

        self.assert_verdict(self.verify("stale"), PASS, "PASS")

        self.assertFalse((self.folder / "stale/verdict-gone.json").exists())
        self.assertTrue((self.folder / "stale/verdict-copy.json").exists())

    def test_gate_on_the_logs_gives_the_verdict_of_verify(self):
        result = self.run_isoloss("gate", *sorted(self.logs.values()), "--probe",
                                  "passed/probes", "--out", "gated", *self.untuned)

        self.assert_verdict(result, PASS, "PASS")
        ours, theirs = self.verdict("gated"), self.verdict("passed")
        self.assertEqual(ours["outcome"], theirs["outcome"])
        self.assertEqual(ours["final_window"], theirs["final_window"])
        self.assertEqual([check["outcome"] for check in ours["checks"]],
                         [check["outcome"] for check in theirs["checks"]])

    def test_gate_prints_the_keys_of_a_policy(self):
        listed = self.run_isoloss("gate", "--keys", "--json")
        text = self.run_isoloss("gate", "--keys")

        self.assertEqual((listed.returncode, text.returncode), (PASS, PASS))
        keys = json.loads(listed.stdout)["keys"]
        self.assertEqual({key["name"] for key in keys}, set(self.verdict("passed")["policy"]))
        for key in keys:
            self.assertIn(f"{key['name']} = {key['default']}".split(",")[0], text.stdout)
        self.assert_refused(self.run_isoloss("gate", "--keys", *self.logs.values()), "--keys",
                            code=USAGE)

    def test_ascii_reports_are_ascii(self):
        for options in ((), ("--verbose",)):
            result = self.run_isoloss("gate", *self.logs.values(), "--ascii", *options, *self.untuned)

            self.assertEqual(result.returncode, PASS)
            self.assertTrue(result.stdout.isascii())

    def test_a_verdict_fits_on_a_screen_unless_everything_is_asked_for(self):
        brief = self.run_isoloss("gate", *self.logs.values(), *self.untuned)
        full = self.run_isoloss("gate", *self.logs.values(), "--verbose", *self.untuned)

        self.assert_verdict(brief, PASS, "PASS")
        self.assertLessEqual(len(brief.stdout.splitlines()), 25)
        self.assertLessEqual(max(map(len, brief.stdout.splitlines())), 80)
        self.assertIn("mxfp8 ends within 0.1 % of bf16 here", brief.stdout)
        self.assertNotIn("L0 recipe_ran", brief.stdout)
        self.assertIn("L0 recipe_ran", full.stdout)

    def test_one_seed_is_inconclusive(self):
        result = self.verify("one_seed", "train.seeds=[1]", options=PLAIN_POLICY)

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
        # A verdict that was given on other losses, beside these runs.
        for out, noted in (("passed", False), ("worse", True)):
            if noted:
                shutil.copy(self.folder / "passed/verdict.json",
                            self.folder / out)
            page = self.run_isoloss("report", out, "--out", f"{out}.html")
            self.assertEqual("was given on other losses" in page.stderr, noted,
                             page.stderr)

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
        same = self.verify("same", "arms.mxfp8.recipe=bf16", options=PLAIN_POLICY)

        self.assert_verdict(same, FAIL, "FAIL")
        self.assertIn("identical", same.stdout)

    def test_a_control_that_fails_leaves_a_pass_and_one_that_does_not_takes_it(self):
        def worse(name, log):
            if name.startswith("mxfp4"):
                for path in ("steps/loss_nats", "eval/loss_nats",
                             "eval/per_sequence_loss_nats"):
                    log[path][...] *= 1.05

        def as_the_candidate(name, log):
            if name.startswith("mxfp4"):
                candidate = self.logs[name.replace("mxfp4", "mxfp8")]
                with h5py.File(candidate) as good:
                    for path in ("steps/loss_nats", "eval/loss_nats",
                                 "eval/per_sequence_loss_nats"):
                        log[path][...] = good[path][...]

        # Logs only: `gate` judges them.
        self.verify("controlled", "arms.mxfp4.recipe=mxfp4_floor",
                    "gate.control=mxfp4", options=["--no-oracle"])
        self.assertFalse((self.folder / "controlled/verdict-mxfp4.json").exists())
        logs = {log.stem: log
                for log in (self.folder / "controlled").glob("*.h5")}
        good = self.edited_logs("control_fails", worse, logs)
        bad = self.edited_logs("control_passes", as_the_candidate, logs)

        passed = self.run_isoloss("gate", *good, *self.untuned, "--out", "seen")
        inconclusive = self.run_isoloss("gate", *bad, "--control", "mxfp4", *self.untuned)

        self.assert_verdict(passed, PASS, "PASS")
        self.assertIn('The control "mxfp4" came out worse',
                      " ".join(self.verdict("seen")["reading"]["could_have_seen"]))
        self.assert_verdict(inconclusive, INCONCLUSIVE, "INCONCLUSIVE")
        self.assertIn("smaller than the margin, so it shows nothing of larger ones",
                      " ".join(inconclusive.stdout.split()))
        self.assert_verdict(
            self.run_isoloss("gate", *self.logs.values(), *self.untuned), PASS, "PASS")
        self.assertIn("control: none named", self.passed.stdout)

    def test_an_arm_that_did_not_run_its_recipe_never_passes(self):
        def not_quantised(name, log):
            if name.startswith("mxfp8"):
                log["steps/quantized_gemms"][...] = 0

        result = self.run_isoloss(
            "gate", *self.edited_logs("idle", not_quantised))

        self.assertIn(result.returncode, (FAIL, INVALID), result.stdout)

    def test_runs_that_have_learnt_nothing_pass_no_tuned_question(self):
        result = self.run_isoloss("gate", *self.logs.values())

        self.assert_verdict(result, INCONCLUSIVE, "INCONCLUSIVE")
        self.assertIn("L5 learnt", result.stdout.splitlines()[-1])
        self.assertIn("nine tenths of the way from the source's unigrams", " ".join(result.stdout.split()))

    def test_runs_that_have_learnt_nothing_are_warned_about(self):
        # 20 steps leave the loss above the entropy of single tokens.
        # A build of a modified tree is warned about as well.
        warnings = [w for w in self.verdict("passed")["warnings"]
                    if "does not pin" not in w]

        self.assertEqual(len(warnings), 3)
        self.assertIn("nine tenths of the way", warnings.pop())
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

        verdicts = json.loads(result.stdout)["verdicts"]
        self.assertEqual(result.returncode, PASS, result.stderr)
        self.assertEqual(sorted(v["candidate"]["arm"] for v in verdicts),
                         ["bf16", "mxfp8"])
        self.assertEqual({v["policy"]["question"] for v in verdicts},
                         {"regression"})

    def test_an_approved_arm_that_is_not_judged_is_named(self):
        bf16 = [log for log in self.approved if log.name.startswith("bf16")]

        result = self.gate(bf16)

        self.assertEqual(result.returncode, INCONCLUSIVE, result.stderr)
        self.assertIn("not judged, since no new log is of it: approved arm mxfp8", result.stderr)
        self.assertNotIn("not judged", self.gate(self.approved).stderr)

    def test_the_same_question_cannot_abort_early(self):
        self.write("regression.toml", 'question = "regression"\n')

        result = self.run_isoloss("verify", self.tiny, "--out", "early", "--abort-early",
                                  "--policy", "regression.toml")

        self.assert_refused(result, "regression", "--abort-early")

    def test_the_same_question_has_no_looks(self):
        self.write("regression.toml", 'question = "regression"\n')

        result = self.run_isoloss("verify", self.tiny, "--out", "looks", "--policy",
                                  "regression.toml", "--set", "gate.looks=[2,3]")

        self.assert_refused(result, "regression", "--looks")

    def test_another_learning_rate_is_not(self):
        result = self.gate(self.make_logs("other", "train.lr=1e-4").values())

        self.assertEqual(result.returncode, INVALID)

    def test_an_arm_without_approved_runs_is_refused(self):
        self.write("renamed.toml", TINY.replace("[arms.mxfp8]", "[arms.mx]"))
        self.run_isoloss("run", "renamed.toml", "--out", "renamed")
        logs = (self.folder / "renamed").glob("mx-*.h5")

        self.assert_refused(self.gate(logs), "arm `mx`", "bf16, mxfp8")


class ApprovedFolder(ProgramTest):
    """verify --against a folder: its run logs, and nothing else of it."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.make_logs("approved")
        result = cls.run_isoloss("ensemble", "build", cls.tiny, "--arm", "mxfp8", "--runs", 40,
                                 "--out", "approved/benign.h5")
        assert result.returncode == PASS, result.stderr
        cls.run_isoloss("probe", cls.tiny, "--arm", "mxfp8", "--case", "plain", "--out", "approved")

    def verify(self, *options):
        return self.run_isoloss("verify", self.tiny, "--out", "now", "--restart", *options)

    def test_ensembles_and_probes_beside_the_logs_are_no_logs(self):
        # Under a name of the user's, too.
        shutil.copy(self.folder / "approved/mxfp8-seed1.probe.h5",
                    self.folder / "approved/oracle.h5")
        options = ("--against", "approved", "--ensemble", "approved/benign.h5", *PLAIN_POLICY)

        verified = self.verify(*options)
        gated = self.run_isoloss("gate", *sorted((self.folder / "now").glob("*-seed?.h5")),
                                 *options)

        for result in (verified, gated):
            self.assertEqual(result.returncode, PASS, result.stdout + result.stderr)
        (self.folder / "approved/oracle.h5").unlink()

    def test_models_of_other_parts_are_judged_too(self):
        """Nothing is wrong with any: probes and verdicts must say so."""
        for name, changes in {
                "tied": ("model.tied_embeddings=true",),
                "dense": ("model.n_dense_layers=2",),
                "one_expert": ("model.num_experts=1", "model.top_k=1"),
                "every_expert": ("model.top_k=4",),
                "one_step": ("train.steps=1", "train.warmup_steps=0"),
                "forced": ("routing.mode=forced_balance",)}.items():
            settings = [word for change in changes for word in ("--set", change)]
            # All cases of the oracle, of few tokens: parts are there in each.
            settings += ["--set", "train.seeds=[1]", "--set", "train.sequences_per_batch=1"]
            run = self.run_isoloss("run", self.tiny, "--out", name, *settings)
            self.assertEqual(run.returncode, PASS, run.stderr)

            result = self.verify("--against", name, *settings)

            self.assertEqual(result.returncode, PASS, f"{name}: {result.stdout}{result.stderr}")

    def test_a_damaged_log_is_not_passed_over(self):
        folder = self.folder / "damaged"
        shutil.copytree(self.folder / "approved", folder)
        log = folder / "mxfp8-seed2.h5"
        log.write_bytes(log.read_bytes()[:-1])

        result = self.verify("--against", "damaged")

        self.assertEqual(result.returncode, INVALID)
        self.assertIn("damaged/mxfp8-seed2.h5", result.stderr)

    def test_a_folder_without_logs_is_refused(self):
        folder = self.folder / "others"
        folder.mkdir()
        shutil.copy(self.folder / "approved/benign.h5", folder)

        self.assert_refused(self.verify("--against", "others"), "others", "0 run logs")


class Evidence(ProgramTest):
    """What is given is used, or refused before anything is trained."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.logs = cls.make_logs("logs")
        for name, options in (("seeds", ("--kind", "seeds")), ("again", ("--kind", "seeds")),
                              ("benign", ()), ("baseline", ("--arm", "bf16"))):
            cls.build(name, *options)

    @classmethod
    def build(cls, name, *options, runs=2, steps=1):
        result = cls.run_isoloss("ensemble", "build", cls.tiny, "--runs", runs,
                                 "--steps", steps, "--probe-steps", "1",
                                 "--out", name + ".h5", *options)
        assert result.returncode == PASS, result.stderr

    def verify(self, *options, experiment="tiny.toml", out="out"):
        return self.run_isoloss("verify", experiment, "--out", out, *options)

    def test_ensembles_that_judge_nothing_are_refused(self):
        for ensembles, options, words in (
                (("benign",), (), ["benign.h5", "of kind benign", "question is precision"]),
                (("seeds",), ("--against", "logs"),
                 ["seeds.h5", "of kind seeds", "question is regression"]),
                (("seeds", "again"), (), ["again.h5", "seeds.h5", "of arm `mxfp8`"]),
                (("benign", "benign"), ("--against", "logs"), ["one judges an arm"])):
            options = (*options, "--ensemble", *(name + ".h5" for name in ensembles))
            for command in (("verify", "tiny.toml", "--out", "out"),
                            ("gate", *self.logs.values())):
                with self.subTest(ensembles=ensembles, command=command[0]):
                    self.assert_refused(self.run_isoloss(*command, *options), *words)
        self.assertFalse((self.folder / "out").exists())

    def test_an_ensemble_of_the_baseline_is_refused(self):
        with self.subTest("regression judges it"):
            result = self.run_isoloss("gate", *self.logs.values(), "--against", "logs",
                                      "--ensemble", "baseline.h5")
            self.assertNotEqual(result.returncode, INVALID, result.stderr)
        swapped = self.run_isoloss("gate", *self.logs.values(), "--baseline", "mxfp8",
                                   "--ensemble", "seeds.h5")
        self.assert_refused(swapped, "seeds.h5", "of arm `mxfp8`", "could judge are bf16")


class AbortEarly(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.write("three.toml", TINY + '[arms.floor]\nrecipe = "mxfp8_floor"\n')

    def verify(self, experiment, out, *options):
        return self.run_isoloss("verify", experiment, "--out", out, "--abort-early", *options,
                                *(f"--set={setting}" for setting in DIVERGING))

    def test_a_stopped_run_is_a_verdict_like_others(self):
        result = self.verify("tiny.toml", "one")
        printed = json.loads(self.verify("tiny.toml", "json", "--json").stdout)
        written = json.loads((self.folder / "json/verdict.json").read_text())

        self.assertEqual(result.returncode, FAIL, result.stderr)
        self.assertEqual(result.stdout.splitlines()[-1],
                         "FAIL  mxfp8 against bf16: L6 sequential (exit code 1)")
        self.assertEqual(printed, written)
        self.assertEqual((written["outcome"], written["exit_code"]), ("FAIL", FAIL))
        check, = written["checks"]
        self.assertEqual((check["level"], check["name"], check["outcome"]),
                         ("L6", "sequential", "FAIL"))
        self.assertRegex(check["quantity"], r"seed 1, step \d+: the \w+ has loss")
        self.assertIn("--resume", check["next"])
        self.assertEqual(written["candidate"]["recipe"], "mxfp8_rceil")
        schema = json.loads((SOURCE / "docs/verdict.schema.json").read_text())
        self.assertEqual(set(written) - set(schema["properties"]), set())
        self.assertEqual(set(schema["required"]) - set(written), set())

    def test_other_arms_are_inconclusive(self):
        result = self.verify("three.toml", "three", "--json")

        verdicts = json.loads(result.stdout)["verdicts"]
        self.assertEqual(result.returncode, FAIL, result.stderr)
        self.assertEqual([v["candidate"]["arm"] for v in verdicts], ["mxfp8", "floor"])
        self.assertEqual(sorted(v["outcome"] for v in verdicts), ["FAIL", "INCONCLUSIVE"])
        for verdict in verdicts:
            path = self.folder / "three" / f"verdict-{verdict['candidate']['arm']}.json"
            self.assertEqual(json.loads(path.read_text()), verdict)


class Looks(ProgramTest):
    """The folder remembers how often its seeds were tested."""

    def verify(self, *options, out="out"):
        return self.run_isoloss("verify", "tiny.toml", "--out", out, "--seeds", "1,2",
                                "--set", "gate.looks=[2,3,4]", "--policy", "strict.toml", *options)

    def verdict(self, result):
        return json.loads(result.stdout)

    def test_looks_share_alpha_and_are_counted_once(self):
        # So little alpha that no look at these runs decides.
        self.write("strict.toml", 'alpha = 1e-6\nmargin_percent = 1e-3\nprobe_cases = ["plain"]\n')
        dry = self.verify("--dry-run")
        self.assertIn("after 2, 3, 4 seed pairs, alpha 1e-06 in all", dry.stderr)
        self.assertFalse((self.folder / "out").exists())

        first = self.verify("--json")
        self.assertEqual(first.returncode, INCONCLUSIVE, first.stderr)
        self.assertEqual(first.stderr.count("not decided: more seeds follow"), 2)
        looks = self.verdict(first)["looks"]
        self.assertEqual([look["pairs"] for look in looks["taken"]], [2, 3, 4])
        self.assertLess(looks["nominal_alpha"], 1e-6)
        check, = (c for c in self.verdict(first)["checks"] if c["name"] == "final_window")
        self.assertEqual(check["interval_level"], 1 - 2 * looks["nominal_alpha"])

        remembered = (self.folder / "out/looks.json").read_text()
        self.assertEqual(self.verdict(self.verify("--json"))["looks"], looks)
        self.assertEqual((self.folder / "out/looks.json").read_text(), remembered)

        gate = ("gate", "--policy", "strict.toml", "--json")
        self.assertEqual(self.verdict(self.run_isoloss(*gate, "out"))["looks"], looks)
        shutil.copytree(self.folder / "out", self.folder / "copy",
                        ignore=shutil.ignore_patterns("*.json"))
        unknown = self.verdict(self.run_isoloss(*gate, "copy"))["looks"]
        self.assertIn("no looks.json", unknown["unknown"])
        self.assertNotIn("a look was taken", unknown["unknown"])
        # Without looks.json, the folder of the results knows the look before.
        two = sorted(str(log) for log in (self.folder / "copy").glob("*-seed[12].h5"))
        self.run_isoloss(*gate, *two, "--out", "judged")
        more = self.verdict(self.run_isoloss(*gate, "copy", "--out", "judged"))["looks"]
        self.assertIn("was of 2 of these 4 pairs: a look was taken before", more["unknown"])

        edited = remembered.replace('"INCONCLUSIVE"', '"PASS"', 1)
        (self.folder / "out/looks.json").write_text(edited)
        self.assert_refused(self.verify(), "looks.json", "it was edited")
        self.assert_refused(self.run_isoloss("gate", "out"), "looks.json", "it was edited")


class SeveralArms(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.write("three.toml",
                  TINY + '[arms.floor]\nrecipe = "mxfp8_floor"\n')

    def test_json_is_one_object_and_that_of_verdict_json(self):
        for experiment, arms in (("tiny.toml", ["mxfp8"]),
                                 ("three.toml", ["mxfp8", "floor"])):
            with self.subTest(experiment=experiment):
                result = self.run_isoloss("verify", experiment, "--json", *PLAIN_POLICY,
                                          "--out", experiment + ".out")

                printed = json.loads(result.stdout)
                out = self.folder / f"{experiment}.out"
                written = json.loads((out / "verdict.json").read_text())
                self.assertEqual(printed, written)
                self.assertEqual(printed["exit_code"], result.returncode)
                self.assertIn(f"results are in {experiment}.out: verdict.json",
                              result.stderr)
                verdicts = printed.get("verdicts", [printed])
                self.assertEqual([v["candidate"]["arm"] for v in verdicts],
                                 arms)
                self.assertEqual({v["baseline"]["arm"] for v in verdicts},
                                 {"bf16"})
                self.assertEqual(max(v["exit_code"] for v in verdicts),
                                 result.returncode)
                names = (["verdict.json"] if len(arms) == 1 else
                         [f"verdict-{arm}.json" for arm in arms])
                for name, verdict in zip(names, verdicts):
                    self.assertEqual(json.loads((out / name).read_text()),
                                     verdict)
                    self.assertIn(name, result.stderr)


class ShowAndCompare(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.logs = cls.make_logs("logs")

    def test_show_tells_who_made_a_log_and_draws_it(self):
        result = self.run_isoloss("show", self.logs["mxfp8-seed2"], "--recipe")

        self.assertEqual(result.returncode, PASS, result.stderr)
        for text in ("arm        mxfp8, recipe mxfp8_rceil, seed 2",
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
