#!/usr/bin/env python3
"""Checks every include of include/isoloss and lib/isoloss against lib/isoloss/LAYERS.

A module includes itself, base, and the modules on its line; a line names only
modules on lines above it. No file includes anything of tools/, tests/ or
experiments/, and a header of include/isoloss includes only its own kind.

Usage: tools/dev/check_layers.py [SOURCE_ROOT]

Example:
  tools/dev/check_layers.py .
"""

import pathlib
import re
import sys


def read_layers(path):
    allowed = {}
    problems = []
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        if not line.strip():
            continue
        module, _, rest = line.partition(":")
        module = module.strip()
        for name in rest.split():
            if name not in allowed:
                problems.append(
                    f"{path}:{number}: {module} names {name}, which is not on a line above")
        allowed[module] = {module, "base", *rest.split()}
    return allowed, problems


def check_file(path, module, allowed, public=None):
    """Checks one file of `module`; a header of `public` includes headers of that folder only."""
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        match = re.match(r'\s*#\s*include\s+(["<])([^">]+)[">]', line)
        if not match:
            continue
        quote, included = match.groups()
        if re.match(r"(tools|tests|experiments|support)/", included):
            yield f"{path}:{number}: the library includes {included}"
        target = re.match(r"isoloss/([a-z_]+)/", included)
        if target and target.group(1) not in allowed:
            yield (f"{path}:{number}: {module} includes {included}, but LAYERS allows "
                   f"{module} only {' '.join(sorted(allowed))}")
        if (public and quote == '"' and included.endswith(".h")
                and not (public / included).is_file()):
            yield f"{path}:{number}: a public header includes {included}, an internal one"


def main():
    if sys.argv[1:] in (["--help"], ["-h"]):
        print(__doc__.strip())
        return 0
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    library, include = root / "lib" / "isoloss", root / "include"
    layers, problems = read_layers(library / "LAYERS")
    files = 0
    for tree, public in ((library, None), (include / "isoloss", include)):
        for path in sorted(tree.rglob("*")):
            if path.suffix not in (".h", ".cc", ".cu", ".cuh", ".def"):
                continue
            module = path.relative_to(tree).parts[0]
            if module not in layers:
                problems.append(f"{path}: module {module} has no line in LAYERS")
                continue
            files += 1
            problems += check_file(path, module, layers[module], public)
    if files == 0:
        problems.append(f"{root}: no source file found")
    print("\n".join(problems) if problems else f"{files} files respect LAYERS")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
