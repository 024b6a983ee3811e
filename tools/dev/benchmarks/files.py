"""The document with the tables and the history, each written whole or not at all."""

import json
import os
import pathlib
import re
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


BLOCK = re.compile(r"(<!-- bench:begin (\w+) -->\n)(.*?)(<!-- bench:end -->)", re.DOTALL)


def replace_tables(document, tables, where="the document"):
    """Puts each table between its markers.

    Errors   a table without markers, markers without a table, an unclosed or repeated block.
    """
    begins = re.findall(r"<!-- bench:begin (\w+) -->", document)
    blocks = [name for _, name, body, _ in BLOCK.findall(document) if "bench:begin" not in body]
    if begins != blocks or document.count("<!-- bench:end -->") != len(begins):
        raise BenchError(f"{where}: {len(begins)} `bench:begin` and "
                         f"{document.count('<!-- bench:end -->')} `bench:end`, but each begins "
                         f"one block that is closed before the next. Mend the markers by hand.")
    for name in {*begins, *tables}:
        if begins.count(name) != 1 or name not in tables:
            raise BenchError(f"{where}: {begins.count(name)} blocks named `{name}`, and "
                             f"{'a' if name in tables else 'no'} table of that name, but one of "
                             f"each is needed. Known tables: {', '.join(sorted(tables))}.")
    return BLOCK.sub(lambda block: f"{block[1]}{tables[block[2]]}\n{block[4]}", document)


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
