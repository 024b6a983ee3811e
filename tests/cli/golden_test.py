"""Goldens: what is checked, what is refused, and that no edit goes unseen."""

import fcntl
import math
import os
import shutil

import h5py
import numpy

from golden_log import forged, mend_chain
from program import BINARY, ProgramTest, TINY, FAIL, INVALID, PASS, USAGE
from sealed_log import edited_log

REASON = "The first goldens of this experiment, for tests"
# Of the oracle's cases only the experiment as it is: the others are golden/curves/nano's.
TINY_GOLDEN = (TINY.replace("seeds = [1, 2]", "seeds = [1]")
               .replace("steps = 20", "steps = 8") + "digests_every = 1\n"
               '[gate]\npolicy = "../gate.toml"\n')


class GoldenTest(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.write("whole/experiment.toml", TINY_GOLDEN)
        cls.write("gate.toml", 'probe_cases = ["plain"]\n')
        result = cls.update("whole", "--new")
        if result.returncode != PASS:
            raise AssertionError(result.stderr + result.stdout)

    @classmethod
    def update(cls, folder, *options, reason=REASON):
        return cls.run_isoloss("golden", "update", folder, "--draft",
                               "--reason", reason, *options)

    @classmethod
    def check(cls, folder, *options):
        return cls.run_isoloss("golden", "check", folder, "--draft", *options)

    def setUp(self):
        self.golden = self.folder / "golden"
        shutil.rmtree(self.golden, ignore_errors=True)
        shutil.copytree(self.folder / "whole", self.golden)

    def assert_check_refused(self, *words):
        result = self.check("golden")

        self.assertEqual(result.returncode, INVALID, result.stdout)
        self.assertEqual(result.stdout, "")
        for word in words:
            self.assertIn(word, result.stderr)

    def assert_unchanged_by(self, result, *words, code=INVALID):
        self.assertEqual(result.returncode, code, result.stderr)
        for word in words:
            self.assertIn(word, result.stderr + result.stdout)
        for path in (self.folder / "whole").iterdir():
            self.assertEqual((self.golden / path.name).read_bytes(),
                             path.read_bytes(), path.name)
        self.assertFalse((self.golden / ".update").exists())


class Check(GoldenTest):
    def test_passes_in_both_lanes_and_leaves_the_folder_alone(self):
        result = self.check("golden", "--exact")

        self.assertEqual(result.returncode, PASS, result.stderr)
        for line in ("bf16-seed1           exact: pass", "mxfp8-seed1          exact: pass",
                     "bf16                 statistical: pass",
                     "mxfp8                statistical: pass"):
            self.assertIn(line, result.stdout)
        self.assert_unchanged_by(result, code=PASS)

    def test_keeps_what_it_computed(self):
        result = self.check("golden", "--out", "kept")

        self.assertEqual(result.returncode, PASS, result.stderr)
        self.assertTrue((self.folder / "kept" / "1-golden" / "mxfp8-seed1.h5").is_file())

    def test_takes_the_folders_below_golden_curves(self):
        result = self.run_isoloss("golden", "check")
        self.assert_refused(result, "golden/curves", "nothing would be checked")

        self.addCleanup(shutil.rmtree, self.folder / "golden")
        shutil.copytree(self.folder / "whole", self.folder / "golden" / "curves" / "tiny")
        shutil.copy(self.folder / "gate.toml", self.folder / "golden" / "curves")
        result = self.run_isoloss("golden", "check", "--draft")
        self.assertEqual(result.returncode, PASS, result.stderr)
        self.assertIn("golden golden/curves/tiny", result.stdout)

    def test_names_the_first_tensor_that_drifted(self):
        with forged(self.golden, "mxfp8-seed1") as log:
            log["tensors/digest"][4, 9] ^= 1
            log["tensors/digest"][4, 7] ^= 1
            log["tensors/digest"][6, 0] ^= 1
            name = log["tensors/names"][7].decode()

        result = self.check("golden")

        self.assertEqual(result.returncode, PASS, result.stderr)
        self.assertIn(f"exact: drift: step 5: digest of {name}", result.stdout)

    def test_honours_the_policy_of_its_experiment(self):
        experiment = self.golden / "experiment.toml"
        experiment.write_text(experiment.read_text().replace("../gate.toml", "gate.toml"))
        (self.golden / "gate.toml").write_text("margin_percent = -1\n")

        for result in (self.check("golden"), self.update("golden", reason=REASON + " again")):
            self.assert_refused(result, "gate.toml", "margin_percent")

        (self.golden / "gate.toml").write_text('margin_percent = 1\nprobe_cases = ["plain"]\n')
        self.assertEqual(self.check("golden").returncode, PASS)

    def test_a_changed_value_is_drift_with_a_verdict_of_its_own(self):
        with forged(self.golden, "mxfp8-seed1") as log:
            log["parameters/update_ratio"][6, 2] = numpy.nextafter(
                log["parameters/update_ratio"][6, 2], 1)

        result = self.check("golden")

        # Losses and weights are the same, so that the gate sees no harm.
        self.assertEqual(result.returncode, PASS, result.stderr)
        self.assertIn("bf16-seed1           exact: pass", result.stdout)
        self.assertIn("mxfp8-seed1          exact: drift: step 7: update_ratio of ",
                      result.stdout)
        self.assertIn("/parameters/update_ratio", result.stdout)
        self.assertIn("mxfp8                statistical: pass", result.stdout)
        self.assertIn("DRIFT", result.stdout)
        self.assertIn("isoloss golden update golden --reason", result.stdout)
        self.assertEqual(self.check("golden", "--exact").returncode, FAIL)

    def test_a_wrong_loss_in_the_golden_is_drift(self):
        with forged(self.golden, "mxfp8-seed1") as log:
            log["steps/loss_nats"][5] *= 1.25

        result = self.check("golden")

        # The oracle explains all of the new run: no fault of this program.
        self.assertEqual(result.returncode, PASS, result.stdout)
        self.assertIn("exact: drift: step 6: loss_nats", result.stdout)
        self.assertIn("DRIFT", result.stdout)
        self.assertEqual(self.check("golden", "--exact").returncode, FAIL)

    def test_a_golden_that_is_not_finite_fails(self):
        for value in (math.nan, math.inf):
            with self.subTest(value=value):
                self.setUp()
                with forged(self.golden, "mxfp8-seed1") as log:
                    log["parameters/grad_norm"][7, 1] = value
                    log["steps/lr"][7] = value

                result = self.check("golden")

                self.assertEqual(result.returncode, FAIL, result.stderr)
                self.assertIn("exact: drift", result.stdout)
                self.assertIn("L0 fail", result.stdout)

    def test_a_suite_may_spare_the_oracle_where_bits_are_equal(self):
        (self.golden / "suite.toml").write_text("probe_equal_bits = false\n")
        with forged(self.golden, "mxfp8-seed1") as log:
            log["steps/loss_nats"][7] *= 1 + 2.0 ** -40

        result = self.check("golden")

        self.assertEqual(result.returncode, PASS, result.stderr)
        self.assertIn("bf16                 statistical: pass (L0 pass, L1 pass)", result.stdout)
        self.assertIn("mxfp8                statistical: pass (L0 pass, L2 pass", result.stdout)

    def test_refuses_an_edited_text(self):
        twin = self.golden / "bf16-seed1.txt"
        twin.write_text(twin.read_text().replace("seed            1", "seed            2"))

        self.assert_check_refused("bf16-seed1.txt", "is not the text of bf16-seed1.h5")

    def test_refuses_an_edited_log(self):
        with edited_log(self.golden / "mxfp8-seed1.h5") as log:
            log["tensors/digest"][3, 1] ^= 1

        self.assert_check_refused("mxfp8-seed1.h5", "its content has digest")

    def test_refuses_a_log_that_was_edited_without_its_trailer(self):
        with h5py.File(self.golden / "mxfp8-seed1.h5", "r+") as log:
            log["tensors/digest"][3, 1] ^= 1

        self.assert_check_refused("mxfp8-seed1.h5", "trailer")

    def test_refuses_a_log_that_was_cut_off(self):
        path = self.golden / "mxfp8-seed1.h5"
        path.write_bytes(path.read_bytes()[:-1000])

        self.assert_check_refused("mxfp8-seed1.h5")

    def test_refuses_a_run_without_its_last_steps(self):
        with forged(self.golden, "mxfp8-seed1") as log:
            log.attrs["complete"] = numpy.bool_(False)

        self.assert_check_refused("mxfp8-seed1.h5", "8 of 8 steps", "a whole run")

    def test_refuses_missing_swapped_and_left_over_files(self):
        (self.golden / "bf16-seed1.txt").unlink()
        self.assert_check_refused("bf16-seed1.txt", "cannot be read")

        self.setUp()
        (self.golden / "bf16-seed1.h5").unlink()
        self.assert_check_refused("bf16-seed1.h5", "the golden is missing")

        self.setUp()
        for extension in ("h5", "txt"):
            shutil.copy(self.golden / f"bf16-seed1.{extension}",
                        self.golden / f"mxfp8-seed1.{extension}")
        self.assert_check_refused("mxfp8-seed1.h5", "its content has digest")

        self.setUp()
        shutil.copy(self.golden / "bf16-seed1.h5", self.golden / "bf16-seed2.h5")
        self.assert_check_refused("bf16-seed2.h5", "it is no run of")

    def test_refuses_a_golden_that_vanished_with_its_arm(self):
        experiment = self.golden / "experiment.toml"
        text = experiment.read_text()
        start = text.index("[arms.mxfp8]")
        end = text.find("\n[", start)
        experiment.write_text(text[:start] + text[end + 1:])
        for extension in ("h5", "txt"):
            (self.golden / f"mxfp8-seed1.{extension}").unlink()

        self.assert_check_refused("history.toml", "golden mxfp8-seed1", "--reconfigured")

        given_up = self.update("golden", "--reconfigured", reason="This test needs one arm alone")
        self.assertIn("given up", given_up.stdout, given_up.stderr)
        self.assertEqual(self.check("golden", "--exact").returncode, PASS)

    def test_refuses_an_edited_history(self):
        history = self.golden / "history.toml"
        text = history.read_text()
        for old, new in ((REASON, "It was always so, nothing to see here"),
                         ('before = ""', 'before = "0123456789abcdef"'),
                         ("[[entry]]", "note = 1\n[[entry]]"),
                         ("[[entry]]", "[[entry]] # innocent"),
                         ('verdict = "new"', "verdict = 3"),
                         ("[[entry]]", "[[entry]")):
            with self.subTest(new=new):
                history.write_text(text.replace(old, new))

                self.assert_check_refused("history.toml", "estore it")

    def test_refuses_goldens_of_another_configuration(self):
        path = self.golden / "experiment.toml"
        text = path.read_text()
        for old, new, word in (("dim = 24", "dim = 26", "model.dim: 24 before, 26 now"),
                               ("mxfp8_rceil", "mxfp8_floor", "recipe: mxfp8_rceil before"),
                               ("tokens = 4000", "tokens = 4001", "corpus"),
                               ("eval_every = 7", "eval_every = 6", "eval_every"),
                               ("digests_every = 1", "digests_every = 2", "digests_every")):
            with self.subTest(new=new):
                path.write_text(text.replace(old, new))

                self.assert_check_refused("of another configuration", word, "--reconfigured")

    def test_does_not_mind_how_it_is_executed(self):
        path = self.golden / "experiment.toml"
        path.write_text(path.read_text() + "[parallel]\nworkers = 1\n")

        result = self.check("golden", "--exact")

        self.assertEqual(result.returncode, PASS, result.stderr)

    def test_refuses_drafts_unless_asked(self):
        history = self.golden / "history.toml"
        commit = history.read_text().split('commit = "')[1].split('"')[0]
        history.write_text(history.read_text().replace(commit, "4b8fbb9-dirty"))
        mend_chain(self.golden)

        result = self.run_isoloss("golden", "check", "golden")

        self.assert_refused(result, "it is a draft", "`4b8fbb9-dirty`", "--draft")
        self.assertEqual(self.check("golden").returncode, PASS)


class Suite(GoldenTest):
    def suite(self, text):
        (self.golden / "suite.toml").write_text(text)

    def test_executes_the_experiment_in_further_ways(self):
        self.suite("""[lanes.kernel]
each_kernel = true
[lanes.threads]
set = ["parallel.workers=4"]
[lanes.resume]
stops = [2, 5]
[lanes.killed]
stops = [3, 5]
set = ["log.checkpoint_every=2"]
loses = ["checkpoint"]
resumes = [2, 4]
[lanes.cut]
stops = [3]
set = ["log.checkpoint_every=2"]
loses = ["record", "partial"]
[lanes.torn]
stops = [3]
set = ["log.refresh_seconds=0"]
loses = ["row"]
[lanes.damaged]
stops = [3]
set = ["log.refresh_seconds=0"]
loses = ["journal"]
""")

        result = self.check("golden", "--exact", "--out", "kept")

        self.assertEqual(result.returncode, PASS, result.stderr + result.stdout)
        for line in ("kernel-scalar        lane: pass", "threads              lane: pass",
                     "resume               lane: pass", "killed               lane: pass",
                     "cut                  lane: pass", "damaged              lane: pass",
                     "torn                 lane: pass"):
            self.assertIn(line, result.stdout)
        with h5py.File(self.folder / "kept" / "1-golden" / "lane-resume" /
                       "mxfp8-seed1.h5") as log:
            kinds = [kind.decode() for kind in log["events/kind"][()]]
        self.assertEqual(kinds.count("resume"), 2, kinds)
        with h5py.File(self.folder / "kept" / "1-golden" / "lane-killed" /
                       "mxfp8-seed1.h5") as log:
            texts = [text.decode() for text in log["events/text"][()]]
        self.assertIn("from step 2; 3 steps were on disk", texts)
        with h5py.File(self.folder / "kept" / "1-golden" / "lane-cut" /
                       "mxfp8-seed1.h5") as log:
            texts = [text.decode() for text in log["events/text"][()]]
        self.assertTrue(any("is cut off" in text for text in texts), texts)
        damaged = self.folder / "kept" / "1-golden" / "lane-damaged"
        self.assertTrue((damaged / "mxfp8-seed1.journal.damaged").exists())
        with h5py.File(self.folder / "kept" / "1-golden" / "lane-kernel-scalar" /
                       "mxfp8-seed1.h5") as log:
            self.assertEqual(log.attrs["cpu_target"], "scalar")

    def test_what_lanes_dump_is_what_the_log_counts_and_the_same_in_each(self):
        dump = """set = ["parallel.workers=2", "log.dump_tensors=['w2']", "log.dump_steps=[1]"]\n"""
        self.suite("[lanes.a]\n" + dump + "[lanes.b]\n" + dump)

        result = self.check("golden", "--exact", "--out", "dumping")

        self.assertEqual(result.returncode, PASS, result.stderr + result.stdout)
        for lane in "ab":
            self.assertTrue((self.folder / "dumping" / "1-golden" / f"lane-{lane}" / "dumps" /
                             "mxfp8-seed1.dump-000001.h5").exists())

    def test_a_lane_that_goes_on_from_another_step_fails(self):
        self.suite("""[lanes.killed]
stops = [3]
set = ["log.checkpoint_every=2"]
loses = ["checkpoint"]
resumes = [3]
""")

        result = self.check("golden")

        self.assertEqual(result.returncode, FAIL, result.stderr)
        self.assertIn("killed               lane: fail: bf16-seed1: it went on from step [2], "
                      "not [3]", result.stdout)

    def test_a_lane_that_parts_fails_and_says_where(self):
        self.suite('[lanes.faster]\nset = ["train.lr=0.002"]\n')

        result = self.check("golden")

        self.assertEqual(result.returncode, FAIL, result.stderr)
        self.assertIn("faster               lane: fail: bf16-seed1: step 1: ", result.stdout)
        self.assertIn("bf16-seed1           exact: pass", result.stdout)

    def test_refuses_what_it_does_not_know(self):
        for text, word in (("[lanes.x]\nkernel = 'scalar'\n", "unknown key"),
                           ("abort = true\n", "unknown key"),
                           ("[lanes.x]\nstops = [3, 2]\n", "must ascend"),
                           ("[lanes.x]\nprocesses = 1\n", "executes the runs as they are"),
                           ("[lanes.x]\nset = ['a=1']\nloses = ['record']\n", "needs `stops`"),
                           ("[lanes.x]\nstops = [1]\nloses = ['journals']\n",
                            "Did you mean `journal`?"),
                           ("[lanes.x]\nstops = [1]\nloses = ['checkpoint']\n",
                            "must name one for each of the 1 of `stops`"),
                           ("[lanes.x]\nset = ['a=1']\nmesh_after_stop = ['parallel.ranks=2']\n",
                            "needs `stops`"),
                           ("[lanes.x]\nprocesses = 0\n", "processes"),
                           ("[lanes.x\n", "Correct the TOML")):
            with self.subTest(text=text):
                self.suite(text)
                self.assert_check_refused("suite.toml", word)

    def test_a_lane_that_does_not_get_to_its_end_fails(self):
        self.suite('[lanes.unknown]\nset = ["train.step=1"]\n'
                   '[lanes.late]\nstops = [99]\n[lanes.threads]\nset = ["parallel.workers=2"]\n')

        result = self.check("golden")

        self.assertEqual(result.returncode, FAIL, result.stderr)
        self.assertRegex(result.stdout, r"unknown +lane: fail: .*`step` is no key|train\.step")
        self.assertRegex(result.stdout, r"late +lane: fail: .*--stop-after 99 ended with exit code 0")
        self.assertRegex(result.stdout, "threads +lane: pass")

    def test_whole_runs_are_no_goldens_of_runs_that_abort(self):
        self.suite("aborts = true\n")

        self.assert_check_refused("bf16-seed1.h5", "no event `abort`")


class Update(GoldenTest):
    def test_has_nothing_to_do_when_nothing_changed(self):
        history = self.golden / "history.toml"
        commit = history.read_text().split('commit = "')[1].split('"')[0]
        history.write_text(history.read_text().replace(commit, "4b8fbb9"))
        mend_chain(self.golden)
        shutil.rmtree(self.folder / "committed", ignore_errors=True)
        shutil.copytree(self.golden, self.folder / "committed")

        result = self.update("golden", reason="Nothing changed, but let us see it")

        self.assertEqual(result.returncode, INVALID, result.stdout)
        self.assertIn("nothing to update", result.stderr)
        self.assertEqual(history.read_text(),
                         (self.folder / "committed" / "history.toml").read_text())

    def test_confirms_a_draft(self):
        with forged(self.golden, "bf16-seed1") as log:  # any forged one is a draft
            log["parameters/update_ratio"][6, 2] *= 1.5
        history = self.golden / "history.toml"
        commit = history.read_text().split('commit = "')[1].split('"')[0]
        history.write_text(history.read_text().replace(commit, "4b8fbb9-dirty"))
        mend_chain(self.golden)

        result = self.update("golden", reason="The draft is what the commit computes")

        self.assertEqual(result.returncode, PASS, result.stderr)
        self.assertIn("equal to the draft", result.stdout)
        self.assertIn("2 of 2 goldens", result.stdout)

    def test_replaces_what_changed_and_tells_why(self):
        with forged(self.golden, "mxfp8-seed1") as log:
            log["steps/loss_nats"][7] *= 1 + 1e-12
        history = self.golden / "history.toml"
        commit = history.read_text().split('commit = "')[1].split('"')[0]
        history.write_text(history.read_text().replace(commit, "4b8fbb9"))
        mend_chain(self.golden)
        others = (self.golden / "bf16-seed1.h5").read_bytes()
        before = history.read_text()
        reason = 'The last loss was "rounded" twice; see numerics \\ section 5'

        result = self.update("golden", reason=reason)

        self.assertEqual(result.returncode, PASS, result.stderr)
        self.assertIn("1 of 2 goldens", result.stdout)
        self.assertIn("drift: step 8: loss_nats", result.stdout)
        self.assertEqual((self.golden / "bf16-seed1.h5").read_bytes(), others)
        self.assertTrue(history.read_text().startswith(before))
        self.assertIn('\\"rounded\\" twice', history.read_text())
        self.assertEqual(self.check("golden", "--exact").returncode, PASS)
        self.assertEqual((self.golden / "mxfp8-seed1.txt").read_text().split("\n\n")[2],
                         (self.folder / "whole" / "mxfp8-seed1.txt").read_text()
                         .split("\n\n")[2])

    def test_refuses_a_poor_reason(self):
        for reason, word in (("", "0 letters"), ("fix", "3 letters"),
                             ("a b c d e f g h i j k", "11 letters"),
                             ("two lines of a reason\nfor this change", "line break"),
                             (REASON, "that of an earlier update")):
            with self.subTest(reason=reason):
                self.assert_unchanged_by(self.update("golden", reason=reason), word)

        result = self.run_isoloss("golden", "update", "golden", "--draft")
        self.assert_unchanged_by(result, "`--reason` is missing", code=USAGE)

    def test_refuses_a_source_that_is_not_committed(self):
        version = self.run_isoloss("--version").stdout
        if "unknown" not in version and "-dirty" not in version:
            self.skipTest("this program is of a commit")

        result = self.run_isoloss("golden", "update", "golden", "--reason",
                                  "Numbers changed because of a reason")

        self.assert_unchanged_by(result, "built from commit", "--draft")

    def test_refuses_while_another_one_is_at_work(self):
        folder = os.open(self.golden, os.O_RDONLY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            self.assert_unchanged_by(self.update("golden", reason=REASON + " again"),
                                     "another `golden update` is at work")
        finally:
            os.close(folder)

    def test_refuses_what_it_would_overwrite(self):
        self.assert_unchanged_by(self.update("golden", "--new"), "but this is there")

    def test_refuses_a_changed_experiment_unless_told(self):
        path = self.golden / "experiment.toml"
        path.write_text(path.read_text().replace("steps = 8", "steps = 6"))
        result = self.update("golden", reason="Six steps are enough for this test")
        self.assertEqual(result.returncode, INVALID)
        self.assertIn("train.steps: 8 before, 6 now", result.stderr)

        path.write_text(path.read_text().replace("[arms.mxfp8]", "[arms.eight]"))
        result = self.update("golden", "--reconfigured",
                             reason="Six steps are enough for this test")

        self.assertEqual(result.returncode, PASS, result.stderr)
        self.assertIn("of another configuration, so not compared", result.stdout)
        self.assertIn("given up", result.stdout)
        self.assertFalse((self.golden / "mxfp8-seed1.h5").exists())
        self.assertEqual(self.check("golden", "--exact").returncode, PASS)

    def test_refuses_runs_that_are_not_finite(self):
        path = self.write("wild/experiment.toml",
                          TINY_GOLDEN.replace("[train]", "[train]\nlr = 1.0\neps = 1e-30\nbeta1 = 0.99\nbeta2 = 0.0"))

        result = self.update(path.parent, "--new")

        self.assertEqual(result.returncode, FAIL, result.stderr)
        self.assertIn("REFUSED", result.stdout)
        self.assertEqual([entry.name for entry in path.parent.iterdir()],
                         ["experiment.toml"])


del GoldenTest
