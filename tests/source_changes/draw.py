#!/usr/bin/env python3
"""Draws lines of the code between corpus and log, at which somebody then plants a bug (README.md)."""
import argparse
import pathlib
import random
import re

MODULES = ("base formats corpus kernels precision optim expert_parallel model probes train transport runlog "
           "checkpoint").split()
# Comments, braces, labels, includes, names of other code, and texts and throws of errors.
NO_CODE = re.compile(r"""^(//.*|/\*.*|\*.*|[{}()\[\];,]*|\}\s*//.*|#.*|(public|private|protected):|namespace\b.*|using\b.*"""
                     r"""|(class|struct|enum)\b[^=]*[;{]?|template\b.*|extern\b.*|else|\}?\s*else\s*\{|default:|break;"""
                     r"""|\+?\s*"[^"]*".*|.*\b(throw|Error|Fail\w*|Require\w*|Refuse\w*|static_assert|HWY_\w+_(BEGIN|END))\b.*)$""")


def code_lines(root):
    for module in MODULES:
        for path in sorted((root / "lib/isoloss" / module).rglob("*")):
            if path.suffix not in (".cc", ".h"):
                continue
            for number, line in enumerate(path.read_text().splitlines(), 1):
                if not NO_CODE.match(line.strip()):
                    yield path.relative_to(root), number, line.strip()


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--seed", type=int, required=True)
parser.add_argument("--count", type=int, required=True)
options = parser.parse_args()
lines = list(code_lines(pathlib.Path(__file__).resolve().parents[2]))
print(f"{len(lines)} lines of code; seed {options.seed}")
for place, (path, number, text) in enumerate(random.Random(options.seed).sample(lines, options.count), 1):
    print(f"{place:4} {path}:{number}: {text}")
