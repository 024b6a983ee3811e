"""Ctrl-C and SIGTERM end a run early and leave nothing half done."""

import signal

import h5py

from program import ProgramTest, INTERRUPTED, INVALID, PASS
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
                        {"bf16-seed1.partial.h5", "mxfp8-seed1.partial.h5"})
                    for path in files.values():
                        self.assert_partial(path)

    def assert_partial(self, path):
        with h5py.File(path) as log:
            self.assertFalse(log.attrs["complete"])
            kinds = list(log["events/kind"].asstr())
            self.assertEqual(kinds, ["start", "interrupt"])
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

        whole = [n for n in files if not n.endswith(".partial.h5")]
        self.assertIn("bf16-seed1.h5", whole)
        self.assertLessEqual(len(files) - len(whole), 1)
        self.assertLess(len(files), 40)
        for name in whole:
            with h5py.File(files[name]) as log:
                self.assertTrue(log.attrs["complete"], name)
        judged = self.run_isoloss("gate", *files.values())
        self.assertEqual(judged.returncode, INVALID, judged.stdout)

    def test_a_later_run_replaces_partial_logs_and_old_verdicts(self):
        arguments = ("verify", "tiny.toml", "--out", "again")
        first = self.run_isoloss(*arguments)
        self.assertTrue((self.folder / "again/verdict.json").exists())

        self.interrupt(signal.SIGINT, "again", "train.steps=100000")
        self.assertFalse((self.folder / "again/verdict.json").exists())

        last = self.run_isoloss(*arguments)
        self.assertEqual(last.returncode, first.returncode)
        self.assertEqual(
            sorted(path.name for path in (self.folder / "again").iterdir()),
            ["bf16-seed1.h5", "bf16-seed2.h5", "mxfp8-seed1.h5",
             "mxfp8-seed2.h5", "verdict.json"])
