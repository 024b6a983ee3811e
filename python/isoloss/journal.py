"""The journal of a live recording: one line for each step, appended whole.

A line is the CRC-32 of its text in eight hexadecimal digits, a space, and the
text, a JSON object. The first line describes the run. What was written belongs
to the system: a process that is killed loses no line, and of the one that it
was writing nothing is read.
"""

import json
import os
import zlib


class JournalError(Exception):
    """A journal that cannot be begun or read."""


def encode(row):
    text = json.dumps(row, separators=(",", ":")).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


def decode(data):
    """Rows of all lines before the first that is not whole."""
    rows = []
    for line in data.split(b"\n")[:-1]:
        code, _, text = line.partition(b" ")
        try:
            if int(code, 16) != zlib.crc32(text):
                break
        except ValueError:
            break
        rows.append(json.loads(text))
    return rows


class Journal:
    """Appends to a new file."""

    def __init__(self, path, header):
        try:
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o666)
        except FileExistsError:
            raise JournalError(
                f"{path}: exists, but a journal is of one run that still lasts or was killed. "
                f"Make its log with `python -m isoloss recover {path} LOG`, then remove it."
            ) from None
        self._size = 0  # of whole lines
        self.append(header)

    def append(self, row):
        data = encode(row)
        rest = data
        try:
            while rest:
                rest = rest[os.write(self._file, rest):]
        except BaseException:
            # A disk that is full, or an interrupt: a part of a line would hide those behind it.
            os.ftruncate(self._file, self._size)
            raise
        self._size += len(data)

    def sync(self):
        os.fsync(self._file)

    def close(self):
        if self._file is not None:
            os.close(self._file)
            self._file = None
