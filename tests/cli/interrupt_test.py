"""Ctrl-C, SIGTERM and SIGHUP end a run early and leave nothing half done."""

import shutil
import signal

import h5py

from program import (ProgramTest, FAIL, INCONCLUSIVE, INTERRUPTED, INVALID, PASS,
                     PLAIN_POLICY, same_bits)
from terminal import TerminalProgram


class Interrupt(ProgramTest):
    def interrupt(self, number, out, *settings, command="verify",
                  when="loss "):
        with TerminalProgram(
                self.folder, command, "tiny.toml", "--out", out,
                *(f"--set={setting}" for setting in settings)) as program:
            program.wait_for(when)
            program.signal(number)
            code = program.wait()

        self.assertEqual(code, INTERRUPTED, program.text)
        # The bars are gone; the message is all that stays.
        message = program.screen()
        self.assertTrue(message.startswith("isoloss: interrupted"), message)
        self.assertIn(f"{out}/", message)
        self.assertEqual(message.count("\n"), 1, message)
        return {path.name: path for path in (self.folder / out).iterdir()}

    def test_signals_leave_partial_logs_and_no_verdict(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            for command in ("verify", "run"):
                with self.subTest(signal=number, command=command):
                    out = f"{command}-{number.name}"
                    files = self.interrupt(
                        number, out, "train.steps=40000", "train.seeds=[1]",
                        "parallel.workers=2", command=command)

                    self.assertGreater(len(files), 0)
                    self.assertLessEqual(
                        set(files),
                        {f"{arm}-seed1.{kind}" for arm in ("bf16", "mxfp8")
                         for kind in ("partial.h5", "journal", "checkpoints")})
                    for name, path in files.items():
                        if name.endswith(".partial.h5"):
                            self.assert_partial(path)

    def assert_partial(self, path):
        with h5py.File(path) as log:
            self.assertFalse(log.attrs["complete"])
            kinds = list(log["events/kind"].asstr())
            self.assertEqual(kinds, ["start", "checkpoint", "cost", "interrupt"])
            steps = len(log["steps/step"])
            self.assertEqual(len(log["steps/loss_nats"]), steps)
        shown = self.run_isoloss("show", path)
        self.assertEqual(shown.returncode, PASS, shown.stderr)
        self.assertIn(f"{steps} of 40000 planned, incomplete", shown.stdout)

    def test_finished_runs_are_kept_and_the_rest_never_passes(self):
        seeds = f"train.seeds={list(range(1, 21))}"
        settings = (seeds, "train.steps=1000", "parallel.workers=1")
        files = self.interrupt(signal.SIGINT, "kept", *settings,
                               when="1 of 40 runs finished")

        logs = {n: p for n, p in files.items() if n.endswith(".h5")}
        whole = [n for n in logs if not n.endswith(".partial.h5")]
        self.assertIn("bf16-seed1.h5", whole)
        self.assertLessEqual(len(logs) - len(whole), 1)
        self.assertLess(len(logs), 40)
        for name in whole:
            with h5py.File(files[name]) as log:
                self.assertTrue(log.attrs["complete"], name)
        judged = self.run_isoloss("gate", *logs.values())
        self.assertEqual(judged.returncode, INVALID, judged.stdout)

    def test_a_resumed_run_is_the_one_that_was_never_stopped(self):
        settings = ("train.steps=3000", "train.seeds=[1]")
        whole = self.make_logs("undisturbed", *settings)
        self.interrupt(signal.SIGINT, "resumed", *settings, command="run")

        result = self.run_isoloss(
            "run", "tiny.toml", "--out", "resumed", "--resume",
            *(f"--set={setting}" for setting in settings))

        self.assertEqual(result.returncode, PASS, result.stderr)
        self.assertIn("resumed from step", result.stderr)
        files = sorted(p.name for p in (self.folder / "resumed").iterdir())
        self.assertEqual(files, ["bf16-seed1.h5", "mxfp8-seed1.h5"])
        for name, path in whole.items():
            self.assertEqual(same_bits(path),
                             same_bits(self.folder / f"resumed/{name}.h5"))

    def test_resuming_as_another_run_is_refused_and_loses_nothing(self):
        self.interrupt(signal.SIGINT, "other", "train.steps=40000",
                       "train.seeds=[1]", command="run")
        before = self.contents("other")
        for setting, words in (
                ("train.lr=0.5", ("train.lr: 0.001 before, 0.5 now",)),
                ("data.seed=9", ("data.seed: 0 before, 9 now", "corpus: ")),
                ("arms.bf16.recipe=fp32", ("recipe: bf16 before, fp32 now",))):
            with self.subTest(setting=setting):
                result = self.run_isoloss(
                    "run", "tiny.toml", "--arm", "bf16", "--out", "other",
                    "--resume", "--set", "train.steps=40000", "--set",
                    "train.seeds=[1]", "--set", setting)

                self.assertEqual(result.returncode, INVALID, result.stderr)
                for word in words + ("--restart",):
                    self.assertIn(word, result.stderr)
                self.assertEqual(self.contents("other"), before)

    def test_resuming_with_other_columns_is_refused(self):
        settings = ("train.steps=40000", "train.seeds=[1]")
        self.interrupt(signal.SIGINT, "columns", *settings, command="run")
        before = self.contents("columns")

        result = self.run_isoloss(
            "run", "tiny.toml", "--out", "columns", "--resume",
            *(f"--set={s}" for s in settings), "--set=log.statistics_every=150")

        self.assertEqual(result.returncode, INVALID, result.stderr)
        self.assertIn("log.statistics_every: 200 before, 150 now", result.stderr)
        self.assertEqual(self.contents("columns"), before)

    def test_a_refused_resume_begins_no_run_and_keeps_the_verdict(self):
        one = ("verify", "tiny.toml", "--out", "judged", *PLAIN_POLICY,
               "--set=train.seeds=[1]")
        first = self.run_isoloss(*one)
        (self.folder / "judged/mxfp8-seed1.h5").unlink()
        before = self.contents("judged")

        result = self.run_isoloss(*one, "--resume", "--set=train.lr=0.01")

        self.assertEqual(result.returncode, INVALID, result.stderr)
        self.assertIn("train.lr: 0.001 before, 0.01 now", result.stderr)
        self.assertEqual(self.contents("judged"), before)

        self.assertEqual(self.run_isoloss(*one, "--resume").returncode,
                         first.returncode)

    def test_a_checkpoint_of_another_run_is_passed_over(self):
        settings = ("train.seeds=[1]", "train.steps=12",
                    "log.checkpoint_every=5")
        mine = self.make_logs("mine", *settings)["bf16-seed1"]
        self.make_logs("foreign", *settings, "train.lr=0.1")
        # What a kill after step 12 leaves, with the other run's state in it.
        self.interrupt(signal.SIGINT, "mixed", "train.steps=40000",
                       "train.seeds=[1]", "log.checkpoint_every=5",
                       command="run")
        place = self.folder / "mixed/bf16-seed1.checkpoints"
        shutil.rmtree(place)
        shutil.copytree(self.folder / "foreign/bf16-seed1.checkpoints", place)

        with TerminalProgram(
                self.folder, "run", "tiny.toml", "--arm", "bf16", "--out",
                "mixed", "--resume", "--set=train.steps=40000",
                "--set=train.seeds=[1]",
                "--set=log.checkpoint_every=5") as program:
            program.wait_for("loss ")
            program.signal(signal.SIGINT)
            program.wait()

        with h5py.File(mine) as expected, h5py.File(
                self.folder / "mixed/bf16-seed1.partial.h5") as log:
            notes = list(log["events/text"].asstr())
            self.assertTrue(any("it is of another run" in n for n in notes),
                            notes)
            # Warm-up ends with step 4: until then both plans agree.
            steps = min(4, len(log["steps/loss_nats"]))
            self.assertGreater(steps, 0)
            self.assertEqual(list(log["steps/loss_nats"][:steps]),
                             list(expected["steps/loss_nats"][:steps]))

    def test_a_run_whose_loss_is_not_finite_keeps_its_checkpoints(self):
        result = self.run_isoloss(
            "run", "tiny.toml", "--arm", "bf16", "--out", "nan",
            "--set=train.seeds=[1]", "--set=log.checkpoint_minutes=0.000001",
            *(f"--set={s}" for s in (
                "train.lr=1", "train.warmup_steps=0", "train.beta1=0.99",
                "train.beta2=0.0001", "train.eps=1e-30")))

        self.assertEqual(result.returncode, FAIL, result.stderr)
        self.assertIn("First: ", result.stderr)
        steps = list((self.folder / "nan/bf16-seed1.checkpoints").glob("step-*"))
        self.assertGreater(len(steps), 0)

    def contents(self, out):
        return {str(path): path.read_bytes()
                for path in sorted((self.folder / out).rglob("*"))
                if path.is_file()}

    def test_a_later_run_discards_nothing_unasked(self):
        arguments = ("verify", "tiny.toml", "--out", "again", *PLAIN_POLICY)
        self.interrupt(signal.SIGINT, "again", "train.steps=40000")
        before = self.contents("again")

        refused = self.run_isoloss(*arguments)

        self.assert_refused(refused, "again", "unfinished run", "--resume",
                            "--restart", "--out")
        self.assertEqual(self.contents("again"), before)

        last = self.run_isoloss(*arguments, "--restart")

        self.assertIn(last.returncode, (PASS, INCONCLUSIVE), last.stderr)
        self.assertRegex(last.stderr, "--restart discards .*unfinished run")
        self.assertEqual(
            sorted(path.name for path in (self.folder / "again").iterdir()),
            ["bf16-seed1.h5", "bf16-seed2.h5", "looks.json", "mxfp8-seed1.h5",
             "mxfp8-seed2.h5", "probes", "report.html", "verdict.json"])
