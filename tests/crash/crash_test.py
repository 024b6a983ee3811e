"""A run that is killed, or whose disk fails, at any moment loses no step that
it acknowledged, leaves no unreadable file, and goes on to the same bits.

ISOLOSS_CRASH_KILLS: the number of random kills (default 6; the whole test has
200); ISOLOSS_CRASH_STRIDE: every how many-th file operation is tried (default
37; 1: all of them). Recorder.KilledAtAnyWrite* of tests/runlog try each write
of a shorter run.
"""

import functools
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "cli"))
from program import BINARY, INVALID, PASS, TINY, ProgramTest, same_bits

SHIM = os.environ["FILE_FAULT_LIBRARY"]
KILLS = int(os.environ.get("ISOLOSS_CRASH_KILLS", "6"))
STRIDE = int(os.environ.get("ISOLOSS_CRASH_STRIDE", "37"))

# Statistics and digests of every tensor in every step, a checkpoint every
# fourth one, the HDF5 file built anew after each.
SETTINGS = (
    "train.seeds=[1]", "train.steps=14", "parallel.workers=1",
    "log.statistics_first=14", "log.digests_first=14",
    "log.checkpoint_every=4", "log.refresh_seconds=0")
NAME = "mxfp8-seed1"
STEP = re.compile(r"\[mxfp8-seed1\] step:\s*(\d+)  loss:\s*([0-9.]+)")


class Crash(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        result = cls.train("whole")
        assert result.returncode == PASS, result.stderr
        cls.whole = cls.folder / "whole" / f"{NAME}.h5"
        cls.bits = same_bits(cls.whole)
        cls.losses = dict(STEP.findall(result.stdout))
        assert len(cls.losses) == 14, result.stdout

    @classmethod
    def command(cls, out, *more):
        return ["run", cls.tiny, "--arm", "mxfp8", "--out", out,
                "--print-steps", *(f"--set={s}" for s in SETTINGS), *more]

    @classmethod
    def train(cls, out, *more, **environment):
        return cls.run_isoloss(*cls.command(out, *more),
                               environment=environment)

    def faulty(self, out, at, fault, lasting=False):
        return self.run_isoloss(
            *self.command(out),
            environment={
                "LD_PRELOAD": SHIM, "FILE_FAULT_FOLDER": f"/{out}",
                "FILE_FAULT_AT": str(at), "FILE_FAULT": fault,
                "FILE_FAULT_LASTING": "1" if lasting else "0",
                "FILE_FAULT_LOG": str(self.folder / f"{out}.calls")})

    @functools.cached_property
    def calls(self):
        """The file operations of an undisturbed run, in their order."""
        out = f"counted-{self._testMethodName}"
        result = self.faulty(out, 0, "kill")
        self.assertEqual(result.returncode, PASS, result.stderr)
        return self.calls_of(out)

    def calls_of(self, out):
        return (self.folder / f"{out}.calls").read_text().split()

    def assert_nothing_lost(self, out, acknowledged):
        """Every file is readable, every acknowledged step is on disk, and a
        resumed run ends in the bits of the undisturbed one."""
        folder = self.folder / out
        on_disk = 0
        for path in sorted(folder.glob("*")) if folder.exists() else []:
            if path.is_dir() or path.name.startswith("."):
                continue
            self.assertIn(path.suffix, (".h5", ".journal"), path)
            shown = self.run_isoloss("show", path)
            if shown.returncode == INVALID and path.suffix == ".journal":
                # Killed before its head was whole: nothing was acknowledged.
                self.assertEqual(acknowledged, {}, shown.stderr)
                continue
            self.assertEqual(shown.returncode, PASS, shown.stderr)
            steps = int(re.search(r"steps\s+(\d+) of 14", shown.stdout)[1])
            on_disk = max(on_disk, steps)
        if acknowledged:
            self.assertGreaterEqual(on_disk, max(map(int, acknowledged)))
        for step, loss in acknowledged.items():
            self.assertEqual(loss, self.losses[step])

        resumed = self.train(out, "--resume")

        self.assertEqual(resumed.returncode, PASS, resumed.stderr)
        self.assertEqual(same_bits(folder / f"{NAME}.h5"), self.bits)
        left = {path.name for path in folder.iterdir()
                if not path.name.startswith(".")}
        self.assertLessEqual(left, {f"{NAME}.h5", f"{NAME}.checkpoints"})
        shutil.rmtree(folder)

    def test_random_kills(self):
        begin = time.monotonic()
        self.train("timed")
        duration = time.monotonic() - begin
        # Counter-based in spirit: the same moments in every execution, as far
        # as a clock can have the same moments.
        moments = random.Random(1)
        for kill in range(KILLS):
            out = f"killed{kill}"
            with subprocess.Popen(
                    [BINARY, *map(str, self.command(out))], cwd=self.folder,
                    stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                    encoding="utf-8") as program:
                time.sleep(moments.uniform(0.05, 1) * duration)
                program.send_signal(signal.SIGKILL)
                output = program.stdout.read()
            with self.subTest(kill=kill):
                self.assert_nothing_lost(out, dict(STEP.findall(output)))

    def test_files_that_are_removed_during_the_run(self):
        """What is printed behind the removal is on disk again, with all that
        was before it."""
        journal, partial = f"{NAME}.journal", f"{NAME}.partial.h5"
        for removed in ((journal,), (partial,), (journal, partial), "replaced",
                        "all"):
            with self.subTest(removed=removed):
                out = "removed"
                folder = self.folder / out
                lines = []
                with subprocess.Popen(
                        [BINARY, *map(str, self.command(out))], cwd=self.folder,
                        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                        encoding="utf-8") as program:
                    for _ in range(5):
                        lines.append(program.stdout.readline())
                    program.send_signal(signal.SIGSTOP)
                    if removed == "replaced":
                        shutil.copy(folder / journal, folder / "copy")
                        (folder / "copy").rename(folder / journal)
                    elif removed == "all":
                        for path in folder.iterdir():
                            shutil.rmtree(path) if path.is_dir() else path.unlink()
                    else:
                        for name in removed:
                            (folder / name).unlink()
                    program.send_signal(signal.SIGCONT)
                    for _ in range(3):
                        lines.append(program.stdout.readline())
                    program.send_signal(signal.SIGKILL)
                    lines.append(program.stdout.read())
                    news = program.stderr.read()
                self.assertEqual(program.returncode, -signal.SIGKILL, news)
                if removed != (partial,):
                    self.assertIn("it was removed or replaced while the run went "
                                  "on, so it was written anew", news)
                self.assert_nothing_lost(
                    out, dict(STEP.findall("".join(lines))))

    def test_killed_at_file_operations(self):
        calls = self.calls
        self.assertGreater(len(calls), 100, calls)
        for fault in ("kill", "torn"):
            for at in range(1, len(calls) + 1, STRIDE):
                with self.subTest(fault=fault, at=at, call=calls[at - 1]):
                    out = f"{fault}{at}"
                    result = self.faulty(out, at, fault)
                    if result.returncode == PASS:
                        # How often the HDF5 file is built anew goes by the
                        # clock: this run was through before.
                        self.assertLess(len(self.calls_of(out)), at)
                    else:
                        self.assertEqual(result.returncode, -signal.SIGKILL)
                    self.assert_nothing_lost(
                        out, dict(STEP.findall(result.stdout)))

    def test_a_disk_that_is_full_from_some_moment_on(self):
        calls = self.calls
        for fault in ("ENOSPC", "EIO"):
            for at in range(1, len(calls) + 1, STRIDE):
                with self.subTest(fault=fault, at=at, call=calls[at - 1]):
                    out = f"full{fault}{at}"
                    result = self.faulty(out, at, fault, lasting=True)
                    self.assert_refused_or_whole(result, fault, out)
                    self.assert_nothing_lost(
                        out, dict(STEP.findall(result.stdout)))

    def assert_refused_or_whole(self, result, fault, out):
        """A failure that only hinders tidying up may be ignored."""
        if result.returncode == PASS:
            return
        self.assertEqual(result.returncode, INVALID, result.stderr)
        self.assertRegex(
            result.stderr, {"ENOSPC": "No space left on device",
                            "EIO": "Input/output error"}[fault])
        self.assertIn(out, result.stderr)

    def test_an_interrupted_system_call_is_repeated(self):
        for at in range(1, len(self.calls) + 1, 7 * STRIDE):
            with self.subTest(at=at):
                result = self.faulty("again", at, "EINTR")
                if result.returncode == PASS:
                    self.assertEqual(
                        same_bits(self.folder / f"again/{NAME}.h5"),
                        self.bits)
                shutil.rmtree(self.folder / "again", ignore_errors=True)

    @unittest.skipUnless(os.geteuid() == 0, "needs a mount")
    def test_a_small_disk(self):
        with tempfile.TemporaryDirectory() as place:
            mounted = subprocess.run(
                ["mount", "-t", "tmpfs", "-o", "size=1200k", "tmpfs", place],
                stderr=subprocess.DEVNULL)
            if mounted.returncode != 0:
                self.skipTest("this machine does not let tests mount")
            try:
                out = pathlib.Path(place) / "small"
                result = self.train(out)
                self.assertEqual(result.returncode, INVALID, result.stdout)
                self.assertIn("No space left on device", result.stderr)
                self.assertRegex(result.stderr, "--out|--resume")
                for path in out.glob("*.journal"):
                    shown = self.run_isoloss("show", path)
                    self.assertEqual(shown.returncode, PASS, shown.stderr)
            finally:
                subprocess.run(["umount", place], check=True)

    def test_a_read_only_folder(self):
        self.write("closed/keep", "")
        (self.folder / "closed").chmod(0o555)
        with self.unprivileged() as options:
            result = self.run_isoloss(
                *self.command("closed/run"), **options)
        (self.folder / "closed").chmod(0o755)

        self.assert_refused(result, "closed/run", "Permission denied", "--out")
