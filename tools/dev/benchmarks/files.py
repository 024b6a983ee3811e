"""Files that are written whole or not at all, and the history of runs."""

import json
import os
import pathlib
import tempfile

from . import BenchError


def write_whole(path, text):
    """Writes a temporary file in the same folder and renames it."""
    path = pathlib.Path(path)
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    except OSError as error:
        raise BenchError(f"{path}: cannot be written: {error.strerror}. Give a folder that "
                         f"exists and may be written to.") from error
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except OSError as error:
        os.unlink(temporary)
        raise BenchError(f"{path}: cannot be written: {error.strerror}. Nothing was "
                         f"changed.") from error


def read(path):
    try:
        return pathlib.Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise BenchError(f"{path}: cannot be read: {error.strerror}.") from error


def read_history(path):
    """The runs so far, oldest first; none if there is no such file."""
    if not pathlib.Path(path).exists():
        return []
    runs = []
    for line_number, line in enumerate(read(path).splitlines(), start=1):
        try:
            run = json.loads(line)
            run["date"], run["commit"], run["machine"], run["bars"], run["figures"]
        except (ValueError, KeyError, TypeError) as error:
            raise BenchError(f"{path}:{line_number}: is no run ({error!r}), but every line is one "
                             f"in JSON with date, commit, machine, bars and figures. Restore the "
                             f"file from version control.") from error
        runs.append(run)
    return runs


def append_history(path, run):
    runs = [*read_history(path), run]
    write_whole(path, "".join(json.dumps(entry, sort_keys=True) + "\n" for entry in runs))
