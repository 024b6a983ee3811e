#!/usr/bin/env python3
"""Prints a document's files and commands as one shell script, in their order.

Usage: tools/dev/document_steps.py DOCUMENT

A block `sh` holds commands, which all run in one shell. A comment `exit code N` or `exit code N or M`
behind a command is what it must end with, else 0. Commands marked `# with your server` are left out. A block `toml` or
`python` is a file, which the prose above it names, last of all files of its kind there.

tests/tools/readme_test.py runs the same steps, and leaves out those marked `# as root`, too.
"""

import collections
import re
import shlex
import sys

# A command's text, exit codes that it may end with, and who alone can run it, or "".
Command = collections.namedtuple("Command", "text codes mark")
File = collections.namedtuple("File", "name text")
AS_ROOT, WITH_SERVER = "as root", "with your server"
ENDINGS = {"toml": "toml", "python": "py"}


def steps_of(document):
    """Files and commands of a document, in its order."""
    prose_start = 0
    for block in re.finditer(r"^```(\w*)\n(.*?)^```$", document, re.MULTILINE | re.DOTALL):
        prose = document[prose_start:block.start()]
        prose_start = block.end()
        if block[1] in ENDINGS:
            ending = ENDINGS[block[1]]
            names = re.findall(rf"`([\w./-]+\.{ending})`", prose)
            if not names:
                raise ValueError(f"no `NAME.{ending}` stands in the prose above\n{block[2]}")
            yield File(names[-1], block[2])
        elif block[1] == "sh":
            for line in block[2].replace("\\\n", " ").splitlines():
                text, _, comment = line.partition(" #")
                if not text.strip():
                    continue
                code = re.search(r"exit code (\d+)(?: or (\d+))?", comment)
                codes = [int(digits) for digits in code.groups() if digits] if code else [0]
                mark = re.match(rf" ({AS_ROOT}|{WITH_SERVER})\b", comment)
                yield Command(text.strip(), codes, mark[1] if mark else "")


def script_of(document):
    """All that bash needs to go through a document; it stops at the first command that fails."""
    lines = ["set -u"]
    for step in steps_of(document):
        if isinstance(step, File):
            name = shlex.quote(step.name)
            lines += [f'mkdir -p "$(dirname {name})"', f"cat > {name} <<'END_OF_FILE'",
                      step.text + "END_OF_FILE"]
        elif step.mark != WITH_SERVER:
            shown = shlex.quote(step.text)
            codes = " or ".join(map(str, step.codes))
            lines += [f"printf '[%4d s] $ %s\\n' $SECONDS {shown}", step.text, "code=$?",
                      f"[[ ' {codes} ' == *\" $code \"* ]] || {{ echo \"exit code $code in place of "
                      f"{codes}\"; exit 1; }}"]
    return "\n".join([*lines, "printf '[%4d s] done\\n' $SECONDS", ""])


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] in ("--help", "-h"):
        print(__doc__.strip())
        sys.exit(0 if sys.argv[1:] in (["--help"], ["-h"]) else 2)
    with open(sys.argv[1], encoding="utf-8") as file:
        print(script_of(file.read()), end="")
