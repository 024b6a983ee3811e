#!/usr/bin/env python3
"""Programs look for libraries in absolute folders only.

An empty or relative element of a search path is the folder in which a user
stands: whoever writes a libhdf5 there would run code in each command.

usage: search_path_test.py FILE...
"""

import re
import subprocess
import sys


def search_paths(file):
    """The elements of RPATH and RUNPATH of an ELF file."""
    section = subprocess.run(["readelf", "--dynamic", "--wide", file],
                             capture_output=True, check=True,
                             encoding="utf-8").stdout
    if "(NEEDED)" not in section:
        raise SystemExit(f"{file}: readelf shows no library that it needs, but "
                         "the program is linked with some. Build it again.")
    lists = re.findall(r"\((?:RPATH|RUNPATH)\)[^[]*\[(.*)\]", section)
    return [element for paths in lists for element in paths.split(":")]


def is_safe(element):
    return element.startswith(("/", "$ORIGIN/")) or element == "$ORIGIN"


def main():
    unsafe = [(file, element) for file in sys.argv[1:]
              for element in search_paths(file) if not is_safe(element)]
    for file, element in unsafe:
        print(f"{file}: its search path for libraries has the element "
              f"'{element}', but each must be absolute")
    return 1 if unsafe or len(sys.argv) < 2 else 0


if __name__ == "__main__":
    sys.exit(main())
