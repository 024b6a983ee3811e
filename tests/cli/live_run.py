"""Runs that are watched, killed and interrupted while they are made."""

import codecs
import fcntl
import json
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
import unittest

from program import BINARY, ENVIRONMENT, FORBIDDEN, ProgramTest
from terminal import PATIENCE

# Long enough to be killed in the middle on any machine.
LONG = ("train.steps=100000", "train.seeds=[1]", "log.eval_every=100000",
        "log.statistics_every=0", "log.digests_every=0")


def visible(text):
    """What a terminal shows of `text`: colours and cursor steps take no
    room."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text).replace("\r", "")


class Background:
    """A program whose standard output is a pipe or a terminal."""

    def __init__(self, folder, *arguments, terminal=None, environment=None):
        self.text = ""
        # A read may end in the middle of a letter.
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        if terminal:
            try:
                self._end, other_end = pty.openpty()
            except OSError as error:  # a bare chroot without /dev/pts
                raise unittest.SkipTest(f"no pseudo-terminal here: {error}")
            fcntl.ioctl(other_end, termios.TIOCSWINSZ,
                        struct.pack("HHHH", *terminal, 0, 0))
        else:
            self._end, other_end = os.pipe()
        self.process = subprocess.Popen(
            [BINARY, *map(str, arguments)], cwd=folder,
            stdin=subprocess.DEVNULL, stdout=other_end,
            stderr=subprocess.PIPE, encoding="utf-8",
            env={**ENVIRONMENT, **(environment or {})})
        os.close(other_end)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()
        os.close(self._end)

    def _read(self, seconds=0.1):
        if select.select([self._end], [], [], seconds)[0]:
            try:
                data = os.read(self._end, 65536)
            except OSError:  # Linux: the other end of a terminal is closed
                return False
            self.text += self._decode(data)
            return bool(data)
        return True

    def wait_for(self, text, seconds=PATIENCE):
        deadline = time.monotonic() + seconds
        while text not in self.text:
            if not self._read() or time.monotonic() > deadline:
                raise AssertionError(f"no `{text}` in: {self.text[-2000:]!r}")

    def end(self, seconds=PATIENCE):
        """Reads to the end; returns the exit code. What went to standard error
        is then in `errors`."""
        deadline = time.monotonic() + seconds
        while self._read():
            if time.monotonic() > deadline:
                raise AssertionError(f"still running: {self.text[-2000:]!r}")
        _, self.errors = self.process.communicate(timeout=seconds)
        for word in FORBIDDEN:
            if word in self.errors:
                raise AssertionError(self.errors)
        return self.process.returncode


class LiveRunTest(ProgramTest):
    """A test that starts runs which go on until it ends them."""

    @classmethod
    def start_run(cls, out):
        run = Background(cls.folder, "run", cls.tiny, "--out", out, "--arm",
                         "bf16", *(f"--set={setting}" for setting in LONG))
        journal = cls.folder / out / "bf16-seed1.journal"
        deadline = time.monotonic() + PATIENCE
        while cls.steps_in(journal) < 10:
            if time.monotonic() > deadline or run.process.poll() is not None:
                raise AssertionError("the run writes no journal")
            time.sleep(0.05)
        return run, journal

    @classmethod
    def steps_in(cls, journal):
        if not journal.exists():
            return 0
        result = cls.run_isoloss("show", journal, "--json")
        return json.loads(result.stdout)["steps"] if result.stdout else 0
