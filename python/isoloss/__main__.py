"""python -m isoloss: makes run logs of journals and of several ranks' files, and tests a GPU."""

import argparse
import sys

from . import sick

_EXIT_CODES = """exit codes: 0: the log has all steps; 1: the log was made, but steps are missing that
the files had; 2: wrong usage; 3: no log was made, for the reason given"""


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m isoloss", description=__doc__.split(": ")[1])
    commands = parser.add_subparsers(dest="command", required=True)
    recover = commands.add_parser("recover", help="the log of a recording that was killed",
                                  epilog=_EXIT_CODES)
    recover.add_argument("journal")
    recover.add_argument("out")
    merge = commands.add_parser("merge", help="one log of the logs or journals of all ranks",
                                epilog=_EXIT_CODES)
    merge.add_argument("out")
    merge.add_argument("files", nargs="+")
    sick.declare(commands.add_parser("sick", help="whether a GPU multiplies as it should",
                                     description=sick.DESCRIPTION, epilog=sick.EPILOG,
                                     formatter_class=argparse.RawDescriptionHelpFormatter))
    options = parser.parse_args(arguments)
    if options.command == "sick":
        return sick.run(options)
    # h5py and xxhash are needed for logs only.
    from . import logs
    return logs.run(options)


if __name__ == "__main__":
    sys.exit(main())
