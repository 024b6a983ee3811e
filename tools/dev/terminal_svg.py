#!/usr/bin/env python3
"""Draws terminal text (UTF-8, ANSI colours) from standard input as an SVG.

Usage: tools/dev/terminal_svg.py < TEXT > PICTURE.svg

Each character gets its own place, so the picture is aligned whatever font draws
it. docs/images/verify.png was made with

    script -qec 'stty cols 100; tools/demo' /dev/null |
      tools/dev/terminal_svg.py > verify.svg
    rsvg-convert verify.svg -o docs/images/verify.png
"""

import html
import re
import sys

CELL_WIDTH, LINE_HEIGHT, FONT_SIZE, MARGIN = 8, 17, 13, 16
COLORS = {"31": "#e5534b", "32": "#57ab5a", "33": "#daaa3f", "34": "#539bf5", "2": "#768390"}
FOREGROUND, BACKGROUND = "#cdd9e5", "#1c2128"


def spans(line):
    """Yields (column, text, codes) for runs of characters of one style."""
    column, codes = 0, []
    for part in re.split(r"(\x1b\[[0-9;]*m)", line):
        if part.startswith("\x1b["):
            new = [c for c in part[2:-1].split(";") if c not in ("", "0")]
            codes = codes + new if new else []
        elif part:
            yield column, part, codes
            column += len(part)


def plain(line):
    return re.sub(r"\x1b\[[0-9;]*m", "", line)


def main():
    if sys.argv[1:]:
        print(__doc__.strip())
        sys.exit(0 if sys.argv[1:] in (["--help"], ["-h"]) else 2)
    text = sys.stdin.read().replace("\r", "")
    # What a terminal erased (progress bars) is not part of the picture.
    text = re.split(r"\x1b\[[0-9]*[JK]", text)[-1]
    text = re.sub(r"\x1b\[[0-9;]*[A-Hf]", "", text)
    lines = text.rstrip("\n").split("\n")
    columns = max(len(plain(line)) for line in lines)
    width = columns * CELL_WIDTH + 2 * MARGIN
    height = len(lines) * LINE_HEIGHT + 2 * MARGIN
    print(f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
          f'font-family="DejaVu Sans Mono, FreeMono, monospace" font-size="{FONT_SIZE}">')
    print(f'<rect width="100%" height="100%" rx="8" fill="{BACKGROUND}"/>')
    for row, line in enumerate(lines):
        y = MARGIN + row * LINE_HEIGHT + FONT_SIZE
        for column, run, codes in spans(line):
            color = next((COLORS[c] for c in codes if c in COLORS), FOREGROUND)
            weight = ' font-weight="bold"' if "1" in codes else ""
            # One element a character: renderers may ignore a list of places.
            for i, character in enumerate(run):
                if character != " ":
                    print(f'<text x="{MARGIN + (column + i) * CELL_WIDTH}" y="{y}" fill="{color}"{weight}>'
                          f"{html.escape(character)}</text>")
    print("</svg>")


if __name__ == "__main__":
    main()
