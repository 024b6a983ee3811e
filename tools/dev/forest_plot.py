#!/usr/bin/python3
"""Draws what verdicts found of each arm's final loss, beside null arms and the control.

Usage: tools/dev/forest_plot.py VERDICT.json ... --out PICTURE.svg [--label ARM=TEXT]
  VERDICT.json   of `isoloss verify`, on precision and of one experiment: one of each candidate,
                 or one of several. The first says what is known of null arms and the control
  --label        what stands beside an arm, in place of its recipe; repeatable

The picture has an arm a row, and of both tests of level L5 the mean difference from the baseline
with its interval over seeds, the margin, and how far a null arm's single seeds spread.

Example:
  tools/dev/forest_plot.py mxfp8.json floor.json --out experiments/mxfp8_recipes/arms.svg
"""

import argparse
import collections
import json
import pathlib
import sys

TESTS = (("final_window", "training loss, final fifth of the steps"),
         ("held_out", "held-out loss after the last step"))
CANDIDATE, NULL, CONTROL = "#0969da", "#6e7781", "#bc4c00"

Row = collections.namedtuple("Row", "arm recipe color tests")


def read(path):
    report = json.loads(path.read_text(encoding="utf-8"))
    return report.get("verdicts", [report])


def tests_of_candidate(verdict):
    """{test: (mean, lower, upper, outcome)} in percent."""
    return {check["name"]: (check["value"], check["lower"], check["upper"], check["outcome"])
            for check in verdict["checks"] if check["name"] in dict(TESTS) and check["lower"] is not None}


def row_beside(arm, color):
    return Row(arm["arm"], arm["recipe"], color,
               {test["name"]: (test["mean"], test["lower"], test["upper"], test["outcome"])
                for test in arm["tests"]})


def rows_of(verdicts):
    """Null arms first, then candidates, then the control, each arm once."""
    beside = verdicts[0]["controls"]
    rows = [row_beside(arm, NULL) for arm in beside["null_arms"]]
    control = [row_beside(beside["control"], CONTROL)] if beside["control"] else []
    known = {row.arm for row in rows + control}
    for verdict in verdicts:
        arm = verdict["candidate"]["arm"]
        if arm in known:
            continue
        known.add(arm)
        rows.append(Row(arm, verdict["candidate"]["recipe"], CANDIDATE, tests_of_candidate(verdict)))
    return rows + control


def spread_of_nulls(verdict, test):
    """Standard deviation over seeds of the first null arm; None without one."""
    for arm in verdict["controls"]["null_arms"]:
        return next((t["sd"] for t in arm["tests"] if t["name"] == test), None)
    return None


def draw(rows, verdict, labels, file):
    import matplotlib  # --help needs none

    matplotlib.use("svg")
    from matplotlib import pyplot

    pyplot.rcParams.update({"svg.hashsalt": "isoloss", "font.size": 10})
    margin = verdict["policy"]["margin_percent"]
    baseline = verdict["baseline"]["arm"]
    height = 0.46 * len(rows) + 1.9  # inches, of which the title has 0.8 and axis and legend 1
    figure, axes = pyplot.subplots(1, 2, sharex=True, sharey=True, figsize=(11, height))
    figure.subplots_adjust(left=0.23, right=0.985, wspace=0.06, top=1 - 0.8 / height, bottom=1 / height)
    places = list(range(len(rows)))
    for axis, (test, title) in zip(axes, TESTS):
        axis.axvspan(-margin, margin, color="#2da44e", alpha=0.13, linewidth=0)
        axis.axvline(0, color="black", linewidth=0.8)
        sd = spread_of_nulls(verdict, test)
        if sd is not None:
            for side in (-1, 1):
                axis.axvline(side * sd, color=NULL, linewidth=1, linestyle=":")
        for place, row in zip(places, rows):
            if test not in row.tests:
                continue
            mean, lower, upper, outcome = row.tests[test]
            axis.plot([lower, upper], [place, place], color=row.color, linewidth=2.5, solid_capstyle="butt")
            axis.plot([mean], [place], "o", color=row.color, markersize=6)
            axis.annotate(outcome, (1, place), xycoords=("axes fraction", "data"), ha="right", va="center",
                          fontsize=8, color=row.color)
        axis.set_title(title, fontsize=10)
        axis.set_xlabel(f"difference from {baseline}, %; to the right is worse")
        axis.grid(axis="x", alpha=0.25)
        for side in ("top", "right", "left"):
            axis.spines[side].set_visible(False)
        axis.tick_params(axis="y", length=0)
    ends = [end for row in rows for test in row.tests.values() for end in test[1:3]] + [-margin, margin]
    width = max(ends) - min(ends)
    axes[0].set_xlim(min(ends) - 0.05 * width, max(ends) + 0.3 * width)  # the outcomes stand on the right
    axes[0].set_yticks(places, [labels.get(row.arm, f"{row.arm}: {row.recipe}") for row in rows])
    axes[0].set_ylim(len(rows) - 0.4, -0.6)
    handles = [pyplot.Line2D([], [], color=color, marker="o", linewidth=2.5, label=text) for color, text in
               ((CANDIDATE, "candidate"), (NULL, "null arm: chance alone"), (CONTROL, "control: must fail"))
               if any(row.color == color for row in rows)]
    handles.append(pyplot.Rectangle((0, 0), 1, 1, color="#2da44e", alpha=0.13, label=f"margin ±{margin} %"))
    if any(row.color == NULL for row in rows):
        handles.append(pyplot.Line2D([], [], color=NULL, linewidth=1, linestyle=":",
                                     label="one seed of the null arm (± 1 SD)"))
    figure.legend(handles=handles, loc="lower center", ncols=len(handles), frameon=False, fontsize=9)
    level = next(c["interval_level"] for c in verdict["checks"] if c["name"] == TESTS[0][0])
    figure.suptitle(f"Loss against {baseline}: mean of {len(verdict['baseline']['runs'])} paired seeds and "
                    f"{100 * level:.0f} % interval", fontsize=11, y=1 - 0.15 / height, va="top")
    figure.savefig(file, metadata={"Date": None})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verdicts", type=pathlib.Path, nargs="+", metavar="VERDICT.json")
    parser.add_argument("--out", type=pathlib.Path, required=True, metavar="PICTURE.svg")
    parser.add_argument("--label", action="append", default=[], metavar="ARM=TEXT")
    options = parser.parse_args()
    verdicts = [verdict for path in options.verdicts for verdict in read(path)]
    if {verdict["experiment"] for verdict in verdicts} != {verdicts[0]["experiment"]}:
        sys.exit("forest_plot.py: the verdicts are of several experiments, but one picture shows one.")
    rows = rows_of(verdicts)
    draw(rows, verdicts[0], dict(text.split("=", 1) for text in options.label), options.out)


if __name__ == "__main__":
    main()
