"""The program with a pseudo-terminal as its standard error."""

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
import unittest

from program import BINARY


# Seconds until a program counts as hung; sanitizers slow it down fifty times.
PATIENCE = 300


class TerminalProgram:
    """Collects what is written to the terminal while the program runs."""

    def __init__(self, folder, *arguments, columns=80, rows=24):
        self.columns, self.rows = columns, rows
        self.text = ""
        try:
            self._end, other_end = pty.openpty()
        except OSError as error:  # a bare chroot without /dev/pts
            raise unittest.SkipTest(f"no pseudo-terminal here: {error}")
        fcntl.ioctl(other_end, termios.TIOCSWINSZ,
                    struct.pack("HHHH", rows, columns, 0, 0))
        self._process = subprocess.Popen(
            [BINARY, *map(str, arguments)], cwd=folder, encoding="utf-8",
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=other_end)
        os.close(other_end)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.kill()
        self._process.communicate()
        os.close(self._end)

    def _read(self, seconds):
        """Adds what came; False when the program has closed the terminal."""
        if select.select([self._end], [], [], seconds)[0]:
            try:
                data = os.read(self._end, 65536)
            except OSError:  # Linux: the other end is closed
                return False
            self.text += data.decode("utf-8", errors="replace")
        return True

    def wait_for(self, text, seconds=PATIENCE):
        deadline = time.monotonic() + seconds
        while text not in self.text:
            if not self._read(0.1) or time.monotonic() > deadline:
                raise AssertionError(f"no `{text}` in: {self.text[-2000:]!r}")

    def signal(self, number):
        self._process.send_signal(number)

    def wait(self, seconds=PATIENCE):
        """Reads to the end and returns the exit code."""
        deadline = time.monotonic() + seconds
        while self._read(0.1):
            if time.monotonic() > deadline:
                raise AssertionError(f"still running: {self.text[-2000:]!r}")
        self.stdout, _ = self._process.communicate(timeout=seconds)
        return self._process.returncode

    def frames(self):
        """What was drawn between two erasures."""
        return [frame.replace("\r", "").split("\n")[:-1]
                for frame in re.split(r"\x1b\[\d+F\x1b\[J", self.text)]

    def screen(self):
        """What is left on a terminal that never scrolls or wraps."""
        lines = [""]
        for token in re.split(r"(\x1b\[\d*[A-Z]|\n)", self.text):
            up = re.fullmatch(r"\x1b\[(\d+)F", token)
            if up:  # to the begin of a line above; erasing follows
                assert lines[-1] == "" and int(up[1]) < len(lines), self.text
                del lines[len(lines) - int(up[1]):]
                lines[-1] = ""
            elif token == "\n":
                lines.append("")
            elif token != "\x1b[J":
                lines[-1] += token.replace("\r", "")
        return "\n".join(lines)
