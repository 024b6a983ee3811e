"""Ctrl-C and SIGTERM end a run early and leave nothing half done."""

import signal

import h5py

from program import ProgramTest, INTERRUPTED, INVALID, PASS, same_bits
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
        for number in (signal.SIGINT, signal.SIGTERM):
            for command in ("verify", "run"):
                with self.subTest(signal=number, command=command):
                    out = f"{command}-{number.name}"
                    files = self.interrupt(
                        number, out, "train.steps=100000", "train.seeds=[1]",
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
            self.assertEqual(kinds, ["start", "checkpoint", "interrupt"])
            steps = len(log["steps/step"])
            self.assertEqual(len(log["steps/loss_nats"]), steps)
        shown = self.run_isoloss("show", path)
        self.assertEqual(shown.returncode, PASS, shown.stderr)
        self.assertIn(f"{steps} of 100000 planned, incomplete", shown.stdout)

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
        self.interrupt(signal.SIGINT, "other", "train.steps=100000",
                       "train.seeds=[1]", command="run")
        before = self.contents("other")
        for setting, words in (
                ("train.lr=0.5", ("train.lr: 0.001 before, 0.5 now",)),
                ("data.seed=9", ("data.seed: 0 before, 9 now", "corpus: ")),
                ("arms.bf16.recipe=fp32", ("recipe: bf16 before, fp32 now",))):
            with self.subTest(setting=setting):
                result = self.run_isoloss(
                    "run", "tiny.toml", "--arm", "bf16", "--out", "other",
                    "--resume", "--set", "train.steps=100000", "--set",
                    "train.seeds=[1]", "--set", setting)

                self.assertEqual(result.returncode, INVALID, result.stderr)
                for word in words + ("--restart",):
                    self.assertIn(word, result.stderr)
                self.assertEqual(self.contents("other"), before)

    def contents(self, out):
        return {str(path): path.read_bytes()
                for path in sorted((self.folder / out).rglob("*"))
                if path.is_file()}

    def test_a_later_run_discards_nothing_unasked(self):
        arguments = ("verify", "tiny.toml", "--out", "again")
        first = self.run_isoloss(*arguments)
        self.assertTrue((self.folder / "again/verdict.json").exists())

        self.interrupt(signal.SIGINT, "again", "train.steps=100000")
        self.assertFalse((self.folder / "again/verdict.json").exists())
        before = self.contents("again")

        refused = self.run_isoloss(*arguments)

        self.assert_refused(refused, "again", "unfinished run", "--resume",
                            "--restart", "--out")
        self.assertEqual(self.contents("again"), before)

        last = self.run_isoloss(*arguments, "--restart")

        self.assertEqual(last.returncode, first.returncode)
        self.assertEqual(
            sorted(path.name for path in (self.folder / "again").iterdir()),
            ["bf16-seed1.h5", "bf16-seed2.h5", "mxfp8-seed1.h5",
             "mxfp8-seed2.h5", "verdict.json"])
