"""What a user has made stays: finished runs are kept or the command is refused,
seeds can be added, outputs replace neither inputs nor other files, and no
verdict stands beside logs that it was not given on."""

import json
import os
import pathlib
import re
import shutil
import signal
import time

import h5py

from live_run import Background
from program import (ProgramTest, FAIL, INTERRUPTED, INVALID, PASS,
                     PLAIN_POLICY, same_bits)
from terminal import PATIENCE

def seeds_of(verdict):
    """Those of the candidate's runs."""
    return sorted(run["seed"] for run in verdict["candidate"]["runs"])


class Results(ProgramTest):
    def command(self, name, out, *more, experiment="tiny.toml"):
        return self.run_isoloss(name, experiment, "--out", out, *more)

    def files(self, out):
        """Bytes and inode of each file: a file that is written anew has
        another one."""
        folder = self.folder / out
        return {str(path.relative_to(folder)):
                (path.read_bytes(), path.stat().st_ino)
                for path in folder.rglob("*") if path.is_file()}

    def passed(self, result, *codes):
        self.assertIn(result.returncode, codes or (PASS,), result.stderr)
        return result

    # ---- finished runs -------------------------------------------------------

    def test_finished_runs_are_kept_and_said_so(self):
        self.make_logs("kept")
        before = self.files("kept")

        for more in ((), ("--resume",), ("--seeds", "1"), ("--arm", "mxfp8"),
                     ("--set=parallel.workers=1",), ("--set=parallel.ranks=2",)):
            with self.subTest(more=more):
                result = self.passed(self.command("run", "kept", *more))

                self.assertIn("mxfp8-seed1: kept, as it is finished: 20 steps",
                              result.stderr)
                self.assertEqual(self.files("kept"), before)

    def test_only_what_is_missing_is_trained(self):
        logs = self.make_logs("missing")
        whole = {name: same_bits(path) for name, path in logs.items()}
        logs["bf16-seed2"].unlink()
        kept = self.files("missing")

        result = self.passed(self.command("run", "missing"))

        after = self.files("missing")
        for name, file in kept.items():
            self.assertEqual(after[name], file)
        self.assertNotIn("bf16-seed2: kept", result.stderr)
        self.assertEqual(same_bits(logs["bf16-seed2"]), whole["bf16-seed2"])

    def test_what_is_another_run_is_refused_with_the_difference(self):
        self.make_logs("other")
        before = self.files("other")
        for more, words in (
                (("--set=train.lr=0.01",), ("train.lr: 0.001 before, 0.01 now",)),
                (("--set=train.steps=30",), ("train.steps: 20 before, 30 now",)),
                (("--set=data.seed=9",), ("data.seed: 0 before, 9 now", "corpus:")),
                (("--set=arms.bf16.recipe=fp32",), ("recipe: bf16 before, fp32 now",)),
                (("--set=arms.bf16.payload=mx1x32", "--set=arms.bf16.exchange=rank"),
                 ("exchange:", "mx1x32")),
                (("--set=name=new",), ("name: tiny before, new now",)),
                (("--set=log.routing=true",), ("log.routing: false before, true now",)),
                (("--dump", "wq_"), ("log.dump_tensors: [] before",))):
            for command in ("run", "verify"):
                if command == "verify" and "--dump" in more:
                    continue
                for resume in ((), ("--resume",)):
                    with self.subTest(command=command, more=more, resume=resume):
                        result = self.command(command, "other", *more, *resume)

                        self.assertEqual(result.returncode, INVALID, result.stderr)
                        for word in words + ("other/bf16-seed1.h5", "--out",
                                             "--restart"):
                            self.assertIn(word, result.stderr)
                        self.assertEqual(self.files("other"), before)

    def test_a_damaged_log_is_not_replaced(self):
        log = self.make_logs("damaged", "train.seeds=[1]")["bf16-seed1"]
        log.write_bytes(log.read_bytes()[:-100])
        before = self.files("damaged")

        result = self.command("run", "damaged", "--set=train.seeds=[1]")

        self.assert_refused(result, "damaged/bf16-seed1.h5")
        self.assertEqual(self.files("damaged"), before)

    def test_only_restart_discards_and_says_what(self):
        self.make_logs("restart", "train.seeds=[1]")

        result = self.passed(self.command(
            "run", "restart", "--restart", "--set=train.seeds=[1, 2]",
            "--set=train.lr=0.01"))

        self.assertIn("restart: --restart discards 2 finished runs (bf16-seed1, "
                      "mxfp8-seed1).", result.stderr)
        for path in (self.folder / "restart").glob("*.h5"):
            with h5py.File(path) as log:
                self.assertIn("lr = 0.01", log.attrs["experiment_text"])

    def test_a_dump_without_its_log_is_not_replaced(self):
        arguments = ("--arm", "bf16", "--set=train.seeds=[1]", "--dump", "wq_")
        self.passed(self.command("run", "dump", *arguments))
        (self.folder / "dump/bf16-seed1.h5").unlink()
        before = self.files("dump")

        result = self.command("run", "dump", *arguments)

        self.assert_refused(result, "dump/dumps/bf16-seed1.dump-000001.h5", "--out")
        self.assertEqual(self.files("dump"), before)

    # ---- seeds ---------------------------------------------------------------

    def test_seeds_trained_apart_are_the_same_logs_and_judged_together(self):
        together = self.make_logs("together", "train.seeds=[1, 2, 3]")
        apart = {**self.make_logs("one", "train.seeds=[3]"),
                 **self.make_logs("two", "train.seeds=[2, 1]",
                                  "parallel.workers=1")}

        for name, path in together.items():
            self.assertEqual(same_bits(path), same_bits(apart[name]), name)
        judged = self.run_isoloss("gate", *apart.values(), "--json")
        self.assertNotEqual(judged.returncode, INVALID, judged.stderr)
        self.assertEqual(seeds_of(json.loads(judged.stdout)), [1, 2, 3])

    def test_one_seed_twice_is_refused(self):
        one = self.make_logs("first", "train.seeds=[1, 2]")
        two = self.make_logs("second", "train.seeds=[2]")

        result = self.run_isoloss("gate", *one.values(), two["bf16-seed2"])

        self.assertEqual(result.returncode, INVALID)
        self.assertIn("exactly one run", re.sub(r"\s+", " ", result.stdout))

    def test_verify_adds_seeds_and_judges_all(self):
        # So little alpha that nothing is decided, or no seeds would be added.
        policy = self.write("strict.toml", "alpha = 1e-6\nmargin_percent = 1e-3\n")
        verify = ("verify", "more", "--no-oracle", "--policy", policy)
        self.passed(self.command(*verify), 4)
        before = self.files("more")
        before.pop("verdict.json")
        before.pop("report.html")

        added = self.passed(self.command(*verify, "--seeds", "+2"), 4)

        after = self.files("more")
        for name, file in before.items():
            self.assertEqual(after[name], file)
        self.assertEqual(
            sorted(name for name in after if name.endswith(".h5")),
            sorted(f"{arm}-seed{seed}.h5" for arm in ("bf16", "mxfp8")
                   for seed in (1, 2, 3, 4)))
        self.assertEqual(self.seeds_judged("more"), [1, 2, 3, 4])
        self.assertIn("bf16-seed2: kept", added.stderr)

        # A list takes the place of the experiment's; all that is there counts.
        self.passed(self.command(*verify, "--seeds", "9"), 4)
        self.assertEqual(self.seeds_judged("more"), [1, 2, 3, 4, 9])
        # Behind the largest of all that are there.
        self.passed(self.command("run", "more", "--seeds", "+1"))
        self.assertTrue((self.folder / "more/mxfp8-seed10.h5").exists())

    def seeds_judged(self, out):
        path = self.folder / out / "verdict.json"
        return seeds_of(json.loads(path.read_text()))

    def test_seeds_that_cannot_be_judged_are_named(self):
        self.make_logs("partly")
        self.passed(self.command("run", "partly", "--arm", "bf16", "--seeds", "7"))
        other = self.make_logs("elsewhere", "train.seeds=[8]", "train.lr=0.01")
        for log in other.values():
            shutil.copy(log, self.folder / "partly")

        result = self.passed(self.command("verify", "partly", *PLAIN_POLICY), PASS, 4)

        self.assertIn("seed 7 is not judged: mxfp8-seed7 is not finished",
                      result.stderr)
        self.assertRegex(result.stderr, "seed 8 is not judged: .* train.lr: 0.01 "
                                        "before, 0.001 now")
        self.assertEqual(self.seeds_judged("partly"), [1, 2])

    def test_what_is_no_seeds_is_refused(self):
        for text in ("+0", "+x", "1,", "4-5", "+99999", "1 2"):
            with self.subTest(text=text):
                self.assert_refused(self.command("run", "none", f"--seeds={text}"),
                                    f"--seeds {text}", "+N", "1,2,9")
        self.assert_refused(self.command("run", "none", "--seeds=3,3"),
                            "holds 3 twice")
        self.assert_no_files("none")

    # ---- verdicts ------------------------------------------------------------

    def test_a_verdict_goes_when_logs_change_and_only_then(self):
        self.passed(self.command("verify", "verdict", *PLAIN_POLICY), PASS, 4)
        verdict = self.folder / "verdict/verdict.json"
        page = self.folder / "verdict/report.html"
        before = self.files("verdict")

        self.passed(self.command("run", "verdict"))
        self.assertEqual(self.files("verdict"), before)
        self.assertEqual(self.command("run", "verdict", "--set=train.lr=0.1")
                         .returncode, INVALID)
        self.assertEqual(self.files("verdict"), before)

        self.passed(self.command("run", "verdict", "--seeds", "+1"))
        self.assertFalse(verdict.exists())
        self.assertFalse(page.exists())

    def test_a_verdict_that_its_checks_contradict_is_not_shown(self):
        self.passed(self.command("verify", "forged", *PLAIN_POLICY), PASS, 1, 4)
        file = self.folder / "forged/verdict.json"
        honest = json.loads(file.read_text())
        failed = [{**check, "outcome": "FAIL", "gates": True} for check in honest["checks"]]
        for changes in ({"outcome": "PASS", "exit_code": 0, "checks": failed}, {"exit_code": 2}, {"outcome": "GOOD"},
                        {"outcome": "PASS", "exit_code": 0, "checks": []}):
            with self.subTest(changes=list(changes)):
                file.write_text(json.dumps({**honest, **changes}))
                self.assert_refused(self.run_isoloss("report", "forged", "--out", "forged.html"),
                                    "verdict.json", "isoloss gate")

    def test_a_verdict_that_was_edited_is_not_shown(self):
        self.passed(self.command("verify", "edited", *PLAIN_POLICY), PASS, 1, 4)
        file = self.folder / "edited/verdict.json"
        honest = file.read_text()
        for edit in (lambda v: v["checks"][-1].update(value=9.9), lambda v: v["policy"].update(margin_percent=99),
                     lambda v: v["levels"][0].update(outcome="FAIL"), lambda v: v["reading"].update(headline="Equal.")):
            verdict = json.loads(honest)
            edit(verdict)
            file.write_text(json.dumps(verdict))
            self.assert_refused(self.run_isoloss("report", "edited", "--out", "edited.html"),
                                "verdict.json: its digest is not that of its content", "isoloss gate")
        # As any program writes it, or an earlier version, which had no digest.
        for verdict in (json.loads(honest), {key: value for key, value in json.loads(honest).items() if key != "digest"}):
            file.write_text(json.dumps(verdict))
            self.assertEqual(self.run_isoloss("report", "edited", "--out", "edited.html").returncode, PASS)

    def test_an_interrupted_verify_leaves_no_verdict(self):
        long = ("--set=train.steps=200", "--set=train.seeds=[1]", *PLAIN_POLICY)
        self.passed(self.command("verify", "broken", *long), PASS, 1, 4)
        self.assertTrue((self.folder / "broken/verdict.json").exists())
        with Background(self.folder, "verify", "tiny.toml", "--out", "broken",
                        *long, "--seeds", "+500") as program:
            deadline = time.monotonic() + PATIENCE
            while not (self.folder / "broken/bf16-seed3.journal").exists():
                self.assertLess(time.monotonic(), deadline)
                time.sleep(0.01)
            program.process.send_signal(signal.SIGINT)
            self.assertEqual(program.end(), INTERRUPTED, program.errors)

        self.assertFalse((self.folder / "broken/verdict.json").exists())

    def test_what_is_no_verdict_is_not_replaced(self):
        logs = self.make_logs("notes")
        for name in ("verdict.json", "report.html"):
            with self.subTest(name=name):
                notes = self.write(f"notes/{name}", "[1, 2]\n")

                for result in (self.command("verify", "notes"),
                               self.command("verify", "notes", "--dry-run"),
                               self.command("run", "notes", "--dry-run"),
                               self.run_isoloss("gate", *logs.values(),
                                                "--out", "notes")):
                    self.assertEqual(result.returncode, INVALID, result.stderr)
                    self.assertIn(f"{name}: the output is there already",
                                  result.stderr)
                    self.assertEqual(notes.read_text(), "[1, 2]\n")
                notes.unlink()

    def test_what_is_no_probe_is_refused_before_training(self):
        notes = self.write("late/probes/mxfp8-seed1.probe.h5", "my notes\n")

        for more in ((), ("--dry-run",)):
            result = self.command("verify", "late", *more)
            self.assertEqual(result.returncode, INVALID, result.stderr)
            self.assertIn("mxfp8-seed1.probe.h5", result.stderr)

        self.assertEqual(self.files("late").keys(), {"probes/mxfp8-seed1.probe.h5"})
        self.assertEqual(notes.read_text(), "my notes\n")

    # ---- outputs -------------------------------------------------------------

    def test_export_never_replaces_its_input_nor_another_file(self):
        log = self.make_logs("export", "train.seeds=[1]")["bf16-seed1"]
        before = log.read_bytes()
        os.link(log, self.folder / "hard.h5")
        (self.folder / "soft.csv").symlink_to(log)
        notes = self.write("notes.csv", "what,I,noted\n")
        for out in (log, "hard.h5", "soft.csv", "notes.csv", "tiny.toml"):
            for layout in ("csv", "jsonl"):
                with self.subTest(out=out, layout=layout):
                    result = self.run_isoloss("export", log, "--group", "steps",
                                              "--format", layout, "--out", out)

                    self.assert_refused(result, str(out), "another --out")
                    self.assertEqual(log.read_bytes(), before)
                    self.assertEqual(notes.read_text(), "what,I,noted\n")

    def test_export_replaces_an_earlier_table_and_an_empty_file(self):
        log = self.make_logs("tables", "train.seeds=[1]")["bf16-seed1"]
        self.write("empty.csv", "")
        for out in ("table.csv", "table.csv", "empty.csv"):
            self.passed(self.run_isoloss("export", log, "--group", "steps",
                                         "--out", out))
        self.write("all/steps.csv", "mine\n")
        self.assert_refused(self.run_isoloss("export", log, "--out", "all"),
                            "all/steps.csv")

    def test_a_probe_replaces_that_of_the_same_run_only(self):
        arguments = ("--case", "plain", "--steps", "1")
        self.passed(self.command("probe", "probe", *arguments))
        self.passed(self.command("probe", "probe", *arguments))
        before = self.files("probe")

        result = self.command("probe", "probe", *arguments, "--set=train.lr=0.01")

        self.assertEqual(result.returncode, INVALID, result.stderr)
        self.assertIn("train.lr: 0.001 before, 0.01 now", result.stderr)
        self.assertEqual(self.files("probe"), before)

    def test_zoom_does_not_work_among_other_runs(self):
        a = self.make_logs("zoom-a", "train.seeds=[1]")["bf16-seed1"]
        b = self.make_logs("zoom-b", "train.seeds=[1]")["mxfp8-seed1"]
        self.make_logs("zoomed/A", "train.seeds=[1]")
        before = self.files("zoomed/A")

        result = self.run_isoloss("compare", a, b, "--zoom", "--experiment",
                                  "tiny.toml", "--out", "zoomed")

        self.assertEqual(result.returncode, INVALID, result.stderr)
        self.assertIn("zoomed/A: it holds files of a run", result.stderr)
        self.assertEqual(self.files("zoomed/A"), before)

    def test_goldens_are_not_computed_into_a_folder_with_files(self):
        source = pathlib.Path(__file__).parent.parent.parent
        kept = self.write("check/1-nano/bf16-seed1.h5", "mine")

        result = self.run_isoloss("golden", "check", source / "golden/curves/nano",
                                  "--out", "check")

        self.assert_refused(result, "check/1-nano", "holds files already")
        self.assertEqual(kept.read_text(), "mine")

    # ---- a folder that goes away ---------------------------------------------

    def begin(self, out):
        return Background(
            self.folder, "run", "tiny.toml", "--out", out, "--print-steps",
            "--arm", "bf16", "--set=train.seeds=[1]", "--set=train.steps=100000",
            "--set=log.eval_every=100000", "--set=log.statistics_every=0",
            "--set=log.digests_every=0")

    def test_a_folder_that_is_renamed_or_removed_is_a_clear_error(self):
        for out, act in (("renamed", lambda p: p.rename(f"{p}-away")),
                         ("removed", shutil.rmtree)):
            with self.subTest(out=out), self.begin(out) as program:
                program.wait_for("step: 20 ")
                act(self.folder / out)

                self.assertEqual(program.end(), INVALID)
                text = program.errors
                self.assertIn(f"{out}: the folder was removed or renamed while "
                              "run bf16-seed1 wrote to it", text)
                self.assertIn("--resume", text)

    def test_an_interrupted_run_names_the_seeds_that_go_on(self):
        with Background(
                self.folder, "run", "tiny.toml", "--out", "named",
                "--print-steps", "--arm", "bf16", "--seeds", "+1",
                "--set=train.steps=100000") as program:
            program.wait_for("step: 20 ")
            program.process.send_signal(signal.SIGINT)
            self.assertEqual(program.end(), INTERRUPTED)
        self.assertIn("--resume, and with --seeds 1,2,3 in place of --seeds +1, goes on", program.errors)
