"""python -m isoloss: makes run logs of journals and of several ranks' files."""

import argparse
import sys

from . import journal, run_log

_EXIT_CODES = """exit codes: 0: the log has all steps; 1: the log was made, but steps are missing that
the files had; 2: wrong usage; 3: no log was made, for the reason given"""


def _refuse_other(path, rows):
    """A log may be made again, but what is anything else is not replaced."""
    found = run_log.kind_of(path)
    if found is None:
        return
    try:
        if found == "a file":
            known = ("name", "arm", "seed", "experiment", "config", "ranks")
            old = run_log.read_rows(path)[0]
            if all(old.get(key) == rows[0].get(key) for key in known):
                return
    except (OSError, ValueError, run_log.LogError):
        pass
    raise run_log.LogError(f"{path}: is {found} and no log of this run, so it is not replaced. Pass "
                           "another path, or remove that one.")


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m isoloss", description=__doc__.split(": ")[1],
                                     epilog=_EXIT_CODES)
    commands = parser.add_subparsers(dest="command", required=True)
    recover = commands.add_parser("recover", help="the log of a recording that was killed",
                                  epilog=_EXIT_CODES)
    recover.add_argument("journal")
    recover.add_argument("out")
    merge = commands.add_parser("merge", help="one log of the logs or journals of all ranks",
                                epilog=_EXIT_CODES)
    merge.add_argument("out")
    merge.add_argument("files", nargs="+")
    options = parser.parse_args(arguments)
    notes, missing = [], False
    try:
        files = [options.journal] if options.command == "recover" else options.files
        parts = []
        for path in files:
            rows, told, lost = run_log.read_part(path)
            notes += told
            missing = missing or lost
            parts.append(rows)
        rows = parts[0] if options.command == "recover" else run_log.merge(parts, notes)
        _refuse_other(options.out, rows)
        run_log.write_log(options.out, rows)
    except (OSError, run_log.LogError, journal.JournalError) as error:
        notes.append(str(error))
        missing = None
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        notes.append(f"{', '.join(files)}: a line has other values than those of a recorder "
                     f"({type(error).__name__}: {error}). Pass journals or logs of the recorder.")
        missing = None
    for note in notes:
        print(f"isoloss: {run_log.plain(note)}", file=sys.stderr)
    if missing is None:
        return 3
    steps = sum(row["row"] == "step" for row in rows)
    print(f"{options.out}: {steps} steps")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
