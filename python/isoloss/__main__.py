"""python -m isoloss: makes run logs of journals and of several ranks' files."""

import argparse
import sys

from . import journal, run_log


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m isoloss", description=__doc__.split(": ")[1])
    commands = parser.add_subparsers(dest="command", required=True)
    recover = commands.add_parser("recover", help="the log of a recording that was killed")
    recover.add_argument("journal")
    recover.add_argument("out")
    merge = commands.add_parser("merge", help="one log of the logs or journals of all ranks")
    merge.add_argument("out")
    merge.add_argument("files", nargs="+")
    options = parser.parse_args(arguments)
    try:
        if options.command == "recover":
            rows = run_log.read_rows(options.journal)
        else:
            rows = run_log.merge([run_log.read_rows(path) for path in options.files])
        run_log.write_log(options.out, rows)
    except (OSError, run_log.LogError, journal.JournalError) as error:
        print(f"isoloss: {error}", file=sys.stderr)
        return 3
    steps = sum(row["row"] == "step" for row in rows)
    print(f"{options.out}: {steps} steps")
    return 0


if __name__ == "__main__":
    sys.exit(main())
