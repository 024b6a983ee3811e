"""Folders and disks that can't take the results."""

import ctypes
import os
import pathlib
import resource
import signal
import subprocess

from program import BINARY, ENVIRONMENT, INVALID, PASS, ProgramTest
from terminal import TerminalProgram

MNT_DETACH = 2  # <sys/mount.h>


class Output(ProgramTest):
    def test_a_folder_that_is_a_file_or_can_not_be_made(self):
        for out, words in (("tiny.toml", ["Not a directory"]),
                           ("tiny.toml/below", ["Not a directory"]),
                           ("/dev/null/below", ["Not a directory"])):
            for command in ("run", "verify"):
                with self.subTest(out=out, command=command):
                    result = self.run_isoloss(command, "tiny.toml",
                                              "--out", out)

                    self.assert_refused(result, f"{out}: ", "--out", *words)

    def test_a_name_begins_no_line_and_commands_no_terminal(self):
        forged = "no\nPASS  all\n  is\n\x1b[2Jwell"
        paths = '"no\\nPASS  all\\u001b[2J"'
        for arguments in (("gate", forged), ("verify", "tiny.toml", "--out", f"tiny.toml/{forged}"), ("show", forged),
                          ("run", "tiny.toml", "--set=data.source='files'", f"--set=data.paths=[{paths}]"),
                          ("verify", "tiny.toml", f"--set=gate.policy={paths}"), ("lab", "formats", forged),
                          (forged,), ("run", "tiny.toml", "--set", forged), ("run", "tiny.toml", "--out", forged, "--x")):
            with self.subTest(arguments=arguments):
                result = self.run_isoloss(*arguments)
                self.assertNotEqual(result.returncode, PASS)
                self.assertEqual([line for line in result.stderr.splitlines() if not line.startswith(("isoloss", "  "))],
                                 [])
                self.assertNotIn("\x1b", result.stdout + result.stderr)

    def test_a_read_only_folder(self):
        folder = self.folder / "read_only"
        folder.mkdir()
        folder.chmod(0o555)
        with self.unprivileged() as options:
            for out in ("read_only", "read_only/below"):
                with self.subTest(out=out):
                    result = self.run_isoloss("verify", "tiny.toml",
                                              "--out", out, **options)

                    self.assert_refused(result, f"{out}: ", "--out",
                                        "Permission denied")
                    self.assert_no_files("read_only")

    def test_a_verdict_that_can_not_be_written(self):
        logs = self.make_logs("logs").values()

        result = self.run_isoloss("gate", *logs, "--out", "tiny.toml")

        self.assert_refused(result, "tiny.toml", "Not a directory")

    def test_no_room_is_noticed_before_training(self):
        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))

        result = self.run_isoloss("run", "tiny.toml", "--out", "limited",
                                  preexec_fn=limit)

        self.assert_refused(result, "limited: ", "KiB", "File too large")
        self.assert_no_files("limited")

    def test_a_full_standard_output(self):
        log = self.make_logs("shown")["bf16-seed1"]
        with open("/dev/full", "w", encoding="ascii") as full:
            result = self.run_isoloss("show", log, stdout=full)

        self.assert_refused(result, "standard output", "No space left")

    def test_a_full_standard_error_leaves_the_exit_code(self):
        with open("/dev/full", "w", encoding="ascii") as full:
            result = subprocess.run([BINARY, "show", "nowhere.h5"], cwd=self.folder, check=False,
                                    stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                    stderr=full, env=ENVIRONMENT)

        self.assertEqual(result.returncode, INVALID)

    def disk(self, size):
        """A file system of that many bytes in folder disk."""
        folder = self.folder / "disk"
        folder.mkdir(exist_ok=True)
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder],
            check=False, capture_output=True)
        if mounted.returncode != 0:
            self.skipTest("mounting a small file system is not permitted here")
        # Not umount(8): it reads /proc, which a bare chroot does not have.
        self.addCleanup(ctypes.CDLL(None).umount2, bytes(folder), MNT_DETACH)
        return folder

    def test_a_full_disk_is_noticed_before_training(self):
        self.disk(65536)

        result = self.run_isoloss("run", "tiny.toml", "--out", "disk")

        self.assert_refused(result, "disk: ", "No space left", "--out")
        self.assert_no_files("disk")

    def test_a_disk_that_fills_while_training(self):
        disk = self.disk(512 << 20)
        with TerminalProgram(self.folder, "run", "tiny.toml", "--out", "disk",
                             "--set=train.steps=20000") as program:
            program.wait_for("loss ")
            with open(disk / "filler", "wb", buffering=0) as filler:
                try:
                    while filler.write(bytes(1 << 16)):
                        pass
                except OSError:
                    pass
            program.signal(signal.SIGINT)
            code = program.wait()

        self.assertEqual(code, 3, program.screen())
        self.assertIn("No space left on device", program.screen())
        # What was computed is still there, and nothing half-written.
        left = set(os.listdir(disk)) - {"filler"}
        self.assertTrue(left)
        self.assertLessEqual(
            {pathlib.Path(name).suffixes[-1] for name in left},
            {".journal", ".h5", ".checkpoints"})
        for name in left:
            if (disk / name).is_dir():
                continue
            shown = self.run_isoloss("show", disk / name)
            self.assertEqual(shown.returncode, PASS, shown.stderr)
