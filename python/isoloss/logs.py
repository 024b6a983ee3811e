"""The commands recover and merge: run logs of journals and of several ranks' files."""

import os
import sys

from . import journal, run_log


def _lines_of(rows):
    """Of a run, as text, since NaN is equal to nothing. Earlier merges marked no header."""
    return {journal.encode({**row, "merged": True} if row["row"] == "header" else row)
            for row in rows}


def _refuse_other(path, rows, inputs):
    """A log may be made again of the same run, or of more of it. What is anything
    else is not replaced."""
    found = run_log.kind_of(path)
    if found is None:
        return
    what = f"{found} and no log of this run"
    if os.path.exists(path) and any(os.path.samefile(path, each) for each in inputs):
        what = "also what was to be read"
    elif found == "a file":
        try:
            old = run_log.read_rows(path)
            if _lines_of(old) <= _lines_of(rows):
                return
            what = (f"a log of {run_log.steps_of(old)} steps, and the new log of "
                    f"{run_log.steps_of(rows)} steps lacks a part of it")
        except (OSError, ValueError, run_log.LogError):
            pass
    raise run_log.LogError(f"{path}: is {what}, so it is not replaced. Pass another path, or remove "
                           "that one.")


def _make_log(options, files, notes):
    """Number of steps of the new log, and whether one of the files has more, or a step
    contradicts itself. `notes` of a log are none if no log was made."""
    parts, missing, of_log = [], False, []
    for path in files:
        rows, told, lost = run_log.read_part(path)
        notes += told
        missing = missing or lost
        parts.append(rows)
    rows = parts[0] if options.command == "recover" else run_log.merge(parts, of_log)
    steps = run_log.steps_of(rows)
    _refuse_other(options.out, rows, files)
    run_log.write_log(options.out, rows)
    notes += of_log
    has_faults = any(row.get("event") in run_log.FAULTS for row in rows)
    return steps, missing or has_faults or any(run_log.steps_of(part) > steps for part in parts)


def run(options):
    """Exit code of the command."""
    files = [options.journal] if options.command == "recover" else options.files
    notes = []
    try:
        steps, is_bad = _make_log(options, files, notes)
    except (OSError, run_log.LogError, journal.JournalError) as error:
        notes.append(str(error))
        steps = None
    except MemoryError:
        notes.append(f"{', '.join(files)}: needs more memory than there is. Use a larger machine.")
        steps = None
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, ArithmeticError) as error:
        notes.append(f"{', '.join(files)}: a line has other values than those of a recorder "
                     f"({type(error).__name__}: {error}). Pass journals or logs of the recorder.")
        steps = None
    for note in notes:
        print(f"isoloss: {run_log.printable(note)}", file=sys.stderr)
    if steps is None:
        return 3
    print(f"{run_log.printable(options.out)}: {steps} steps")
    return 1 if is_bad else 0
