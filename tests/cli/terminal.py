"""The program with a pseudo-terminal as its standard error."""

import codecs
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

from program import BINARY, ENVIRONMENT


# Seconds until a program counts as hung; sanitizers slow it down fifty times.
PATIENCE = 300


class TerminalProgram:
    """Collects what is written to the terminal while the program runs."""

    def __init__(self, folder, *arguments, columns=80, rows=24,
                 environment=None):
        self.columns, self.rows = columns, rows
        self.text = ""
        # A read may end in the middle of a letter.
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        try:
            self._end, other_end = pty.openpty()
        except OSError as error:  # a bare chroot without /dev/pts
            raise unittest.SkipTest(f"no pseudo-terminal here: {error}")
        fcntl.ioctl(other_end, termios.TIOCSWINSZ,
                    struct.pack("HHHH", rows, columns, 0, 0))
        self._process = subprocess.Popen(
            [BINARY, *map(str, arguments)], cwd=folder, encoding="utf-8",
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=other_end,
            env={**ENVIRONMENT, **(environment or {})})
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
            self.text += self._decode(data)
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
        """What was drawn between two returns to its begin."""
        return [frame.replace("\r", "").replace("\x1b[K", "").split("\n")[:-1]
                for frame in re.split(r"\x1b\[\d+F", self.text)]

    def screen(self):
        """What is left on a terminal that never scrolls or wraps."""
        assert "\x1b[J" not in self.text, "tmux keeps what is erased at once"
        lines, row, column = [""], 0, 0
        text = self.text.replace("\r\n", "\n")
        for token in re.split(r"(\x1b\[\d*[A-Z]|\n|\r)", text):
            up = re.fullmatch(r"\x1b\[(\d+)F", token)
            if up:  # to the begin of a line above
                assert int(up[1]) <= row, self.text
                row, column = row - int(up[1]), 0
            elif token == "\n":
                row, column = row + 1, 0
                lines += [""] * (row + 1 - len(lines))
            elif token == "\r":
                column = 0
            elif token == "\x1b[K":  # to the end of the line
                lines[row] = lines[row][:column]
            else:
                lines[row] = (lines[row][:column].ljust(column) + token +
                              lines[row][column + len(token):])
                column += len(token)
        while len(lines) > 1 and lines[-1] == lines[-2] == "":
            lines.pop()
        return "\n".join(lines)


def on_terminal(folder, arguments, columns, environment=None, exit_code=0):
    """What the program writes to a standard output of so many columns."""
    try:
        end, other_end = pty.openpty()
    except OSError as error:  # a bare chroot without /dev/pts
        raise unittest.SkipTest(f"no pseudo-terminal here: {error}")
    fcntl.ioctl(other_end, termios.TIOCSWINSZ,
                struct.pack("HHHH", 24, columns, 0, 0))
    process = subprocess.Popen(
        [BINARY, *map(str, arguments)], cwd=folder, stdin=subprocess.DEVNULL,
        stdout=other_end, stderr=other_end,
        env={**ENVIRONMENT, **(environment or {})})
    os.close(other_end)
    data = b""
    try:
        while part := os.read(end, 65536):
            data += part
    except OSError:  # Linux: the other end is closed
        pass
    os.close(end)
    assert process.wait(timeout=PATIENCE) == exit_code, data
    return data.decode("utf-8").replace("\r", "")
