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


class LogError(Exception):
    """Rows that are no run, or that do not fit each other."""


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
            row = json.loads(text)
        except (ValueError, RecursionError):
            break
        if not isinstance(row, dict) or "row" not in row:
            break
        rows.append(row)
    return rows


def split(rows, origin):
    """Header, steps and events. `origin` is for messages."""
    if not rows or rows[0]["row"] != "header":
        raise LogError(f"{origin}: its first line does not describe a run. Pass a journal or a log "
                       "of the recorder.")
    return (rows[0], [row for row in rows if row["row"] == "step"],
            [row for row in rows if row["row"] == "event"])


def _in_order(steps, origin, notes):
    """Each step once, and ascending."""
    found = {}
    for row in steps:
        # As text, since NaN is equal to nothing.
        if encode(found.setdefault(row["step"], row)) != encode(row):
            raise LogError(f"{origin}: step {row['step']} stands in it twice, with different values, "
                           "but a step has one line. It was edited: remove one of the two lines.")
    if len(found) < len(steps):
        notes.append(f"{origin}: {len(steps) - len(found)} lines of steps stand in it twice. Each was "
                     "read once.")
    ordered = [found[step] for step in sorted(found)]
    if ordered != list(found.values()):
        notes.append(f"{origin}: its steps are out of order. They were put in order.")
    return ordered


def whole(data, origin):
    """Rows of a journal that may be damaged, what is to be said of it, and
    whether steps are missing. Rows end before the first that is missing.

    Errors   LogError if it is no journal, or has two lines of one step that
             differ.
    """
    rows, lines, notes = decode(data), data.count(b"\n"), []
    header, steps, events = split(rows, origin)
    lost = len(rows) < lines
    if lost:
        notes.append(f"{origin}: line {len(rows) + 1} of {lines} is damaged, as its checksum does not "
                     f"fit its text. The {len(rows)} lines before it were read. The file is kept.")
    elif not data.endswith(b"\n"):
        notes.append(f"{origin}: its last line is not whole, as a kill leaves it. The {lines} lines "
                     "before it were read.")
    steps = _in_order(steps, origin, notes)
    first = header.get("first_step", steps[0]["step"] if steps else 1)
    kept = [row for place, row in enumerate(steps) if row["step"] == first + place]
    if len(kept) < len(steps):
        lost = True
        notes.append(f"{origin}: step {first + len(kept)} is missing, but the log has steps up to "
                     f"{steps[-1]['step']}. The {len(kept)} steps before the gap were read.")
        # What ended the run is not what ends the part.
        events = [event for event in events if event["event"] != "finish"]
    if not notes:
        return rows, notes, lost
    return [header, *kept, *events], notes, lost


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
