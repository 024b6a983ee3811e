"""The command isoloss: runs the program, or one of the commands that are made in Python."""

import argparse
import os
import subprocess
import sys

from . import program

_EXIT_CODES = """exit codes: 0: the log has all steps; 1: the log was made, but steps are missing
that the files had, or contradict themselves: loads, batches or gradients; 2: wrong usage; 3: no log
was made, for the reason given"""
# Of Python, by name, with their help.
COMMANDS = {
    "recover": "The log of a recording that was killed",
    "merge": "One log of the logs or journals of all ranks",
    "sick": "Whether a GPU multiplies as it should",
}


def _parser():
    from . import sick
    parser = argparse.ArgumentParser(prog="isoloss")
    commands = parser.add_subparsers(dest="command", required=True)
    recover = commands.add_parser("recover", help=COMMANDS["recover"],
                                  epilog="example: isoloss recover run.journal run.h5. "
                                         f"{_EXIT_CODES}")
    recover.add_argument("journal")
    recover.add_argument("out")
    merge = commands.add_parser("merge", help=COMMANDS["merge"],
                                epilog="example: isoloss merge run.h5 run.rank-0.h5 run.rank-1.h5. "
                                       f"{_EXIT_CODES}")
    merge.add_argument("out")
    merge.add_argument("files", nargs="+")
    sick.declare(commands.add_parser("sick", help=COMMANDS["sick"],
                                     description=sick.DESCRIPTION, epilog=sick.EPILOG,
                                     formatter_class=argparse.RawDescriptionHelpFormatter))
    return parser


def _run_program(arguments):
    try:
        file = program.find()
    except program.ProgramError as error:
        print(f"isoloss: {error}", file=sys.stderr)
        return 2
    if arguments not in ([], ["--help"], ["-h"], ["help"]):
        os.execve(file, ["isoloss", *arguments], program.environment())
    code = subprocess.run([file, *arguments], check=False, env=program.environment()).returncode
    print("\nPython:", *(f"  {name:26}{told}" for name, told in COMMANDS.items()), sep="\n",
          file=sys.stderr if code else sys.stdout)
    return code


def main(arguments=None):
    """Exit code; it does not return from most commands of the program."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if not arguments or arguments[0] not in COMMANDS:
        return _run_program(arguments)
    options = _parser().parse_args(arguments)
    if options.command == "sick":
        from . import sick
        return sick.run(options)
    try:
        from . import logs
    except ModuleNotFoundError as error:
        print(f"isoloss: {options.command} needs {error.name}, which is not installed. Install it: "
              "pip install torch h5py xxhash (the extra `record`)", file=sys.stderr)
        return 3
    return logs.run(options)


if __name__ == "__main__":
    sys.exit(main())
