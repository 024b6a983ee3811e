#!/usr/bin/python3
"""Tabulates and draws the runs of tools/dev/recipes: recipes.md and recipes.svg.

Usage: tools/dev/recipe_table.py FOLDER [--record EXPERIMENT]
  FOLDER     of `isoloss verify`: run logs and verdict.json
  --record   also copy the picture into the folder EXPERIMENT, and loss, errors and
             verdict of the table into its README.md, between the lines that name
             this script

Example:
  tools/dev/recipe_table.py runs/recipes --record experiments/recipes
"""

import argparse
import dataclasses
import json
import pathlib
import statistics
import sys

import h5py
import numpy

BEGIN = "<!-- written by tools/dev/recipe_table.py -->"
END = "<!-- end -->"
# From small to large loss, as errors of their elements and scales would have it.
EXPECTED = ("fp32", "bf16", "mxfp8_rceil", "mxfp8_floor", "mxfp6_e2m3", "mxfp4_floor")


@dataclasses.dataclass
class Row:
    recipe: str
    loss: tuple          # mean, low and high end of the 90 % interval, %
    held_out: tuple
    sqnr: dict           # median dB by operand
    flips: tuple         # % of choices at the first and the last step
    time: float          # of a step, in units of the baseline's
    outcome: str


def difference(verdict, name):
    """(mean, low, high) in percent, as the gate has them; NaN without an interval."""
    check = next(c for c in verdict["checks"] if c["name"] == name)
    return tuple(float("nan") if check[key] is None else check[key] for key in ("value", "lower", "upper"))


def median_or_nan(values):
    values = values[numpy.isfinite(values)]
    return float(numpy.median(values)) if len(values) else float("nan")


def errors_of(log):
    """Median over tensors of the last step with statistics, in dB."""
    tensors = log["tensors"]
    names = tensors["names"].asstr()[:]
    found = {}
    for label, dataset, suffix in (("x", "sqnr_db", "_activation"), ("W", "sqnr_db", "_weight"),
                                   ("dy", "sqnr_db", "_gradient"),
                                   ("x of wgrad", "sqnr_db_columnwise", "_activation"),
                                   ("dy of wgrad", "sqnr_db_columnwise", "_gradient")):
        chosen = [i for i, name in enumerate(names) if name.endswith(suffix)]
        found[label] = median_or_nan(tensors[dataset][-1, :][chosen])
    return found


def flips_between(log, baseline, step):
    """Share of (token, slot) choices of a step that the baseline did not make for the token, %."""
    ours, theirs = log["moe/expert_ids"][step], baseline["moe/expert_ids"][step]
    same = (ours[..., :, None] == theirs[..., None, :]).any(axis=-1)
    return 100 * (1 - float(same.mean()))


def row_of(folder, verdict, baselines):
    arm = verdict["candidate"]["arm"]
    sqnr, first, last, times = [], [], [], []
    for run in verdict["candidate"]["runs"]:
        with h5py.File(folder / f"{arm}-seed{run['seed']}.h5") as log:
            baseline = baselines[run["seed"]]
            sqnr.append(errors_of(log))
            first.append(flips_between(log, baseline, 0))
            last.append(flips_between(log, baseline, -1))
            times.append(numpy.median(log["steps/step_seconds"][:]) /
                         numpy.median(baseline["steps/step_seconds"][:]))
    return Row(arm, difference(verdict, "final_window"), difference(verdict, "held_out"),
               {key: statistics.median(s[key] for s in sqnr) for key in sqnr[0]},
               (statistics.mean(first), statistics.mean(last)), statistics.median(times),
               verdict["outcome"])


def interval(of):
    return f"{of[0]:+.3f} [{of[1]:+.3f}, {of[2]:+.3f}]"


def decibels(value):
    return "–" if value != value else f"{value:.1f}"


def table(rows, seeds, steps):
    lines = ["| recipe | final window, % | held-out, % | SQNR of x, W, dy | of wgrad's x, dy | "
             "flips, first and last step, % | step time | verdict |", "|---|---|---|---|---|---|---|---|"]
    for row in rows:
        down = ", ".join(decibels(row.sqnr[key]) for key in ("x of wgrad", "dy of wgrad"))
        lines.append(f"| `{row.recipe}` | {interval(row.loss)} | {interval(row.held_out)} | {along(row)} | "
                     f"{down} | {row.flips[0]:.2f}, {row.flips[1]:.1f} | {row.time:.2f} | {row.outcome} |")
    lines += ["", f"{seeds} seeds of {steps} steps. SQNR in dB: median over tensors of the last step with "
              "statistics. Step time in units of BF16's.", "", order_of(rows)]
    return "\n".join(lines) + "\n"


def short_table(rows):
    lines = ["| recipe | final window, % | SQNR of x, W, dy, dB | verdict |", "|---|---|---|---|"]
    lines += [f"| `{row.recipe}` | {interval(row.loss)} | {along(row)} | {row.outcome} |" for row in rows]
    return "\n".join(lines) + "\n"


def along(row):
    return ", ".join(decibels(row.sqnr[key]) for key in ("x", "W", "dy"))


def order_of(rows):
    """Says whether the means are in the expected order, and which neighbours are told apart."""
    means = {row.recipe: row.loss for row in rows}
    means["bf16"] = (0.0, 0.0, 0.0)
    chain = [name for name in EXPECTED if name in means]
    sentences = [f"The expected order of losses is {' ≤ '.join(f'`{n}`' for n in chain)}."]
    broken = [(a, b) for a, b in zip(chain, chain[1:]) if means[a][0] > means[b][0]]
    if broken:
        sentences.append("The means break it: " + ", ".join(f"`{a}` lies above `{b}`" for a, b in broken) + ".")
    else:
        sentences.append("The means have it.")
    apart = [(a, b) for a, b in zip(chain, chain[1:]) if means[a][2] < means[b][1]]
    sentences.append("Intervals that do not touch: " +
                     (", ".join(f"`{a}` and `{b}`" for a, b in apart) if apart else "none of neighbours") + ".")
    return " ".join(sentences)


def draw(rows, margin, file):
    import matplotlib  # --help needs none

    matplotlib.use("svg")
    from matplotlib import pyplot

    pyplot.rcParams.update({"svg.hashsalt": "isoloss", "font.size": 9})
    figure, (loss, error, time) = pyplot.subplots(
        1, 3, sharey=True, figsize=(11, 0.32 * len(rows) + 1.4), width_ratios=(5, 3, 2),
        layout="constrained")
    places = range(len(rows))
    loss.axvspan(-margin, margin, color="#2da44e", alpha=0.15, label=f"margin ±{margin} %")
    loss.axvline(0, color="black", linewidth=0.8)
    for place, row in zip(places, rows):
        mean, low, high = row.loss
        loss.plot([low, high], [place, place], color="#0969da", linewidth=2)
        loss.plot([mean], [place], "o", color="#0969da", markersize=4)
    loss.set_xlabel("final loss against BF16, % (90 % interval)")
    loss.legend(loc="lower right", frameon=False)
    for key, marker, color in (("x", "o", "#0969da"), ("W", "s", "#8250df"), ("dy", "^", "#bc4c00"),
                               ("dy of wgrad", "v", "#cf222e")):
        error.plot([row.sqnr[key] for row in rows], list(places), marker, color=color, markersize=4,
                   linestyle="none", label=key)
    error.set_xlabel("SQNR of operands, dB")
    error.legend(frameon=False, fontsize=8)
    time.barh(list(places), [row.time for row in rows], color="#8c959f", height=0.6)
    time.axvline(1, color="black", linewidth=0.8)
    time.set_xlabel("step time, BF16 = 1")
    loss.set_yticks(list(places), [row.recipe for row in rows])
    loss.invert_yaxis()
    for axis in (loss, error, time):
        axis.grid(axis="x", alpha=0.3)
        for side in ("top", "right"):
            axis.spines[side].set_visible(False)
    figure.savefig(file, metadata={"Date": None})


def record(folder, experiment, text):
    readme = experiment / "README.md"
    old = readme.read_text(encoding="utf-8")
    if BEGIN not in old or END not in old:
        sys.exit(f"recipe_table.py: {readme} lacks the lines `{BEGIN}` and `{END}`, between which the "
                 "table goes. Add them.")
    head, rest = old.split(BEGIN, 1)
    readme.write_text(f"{head}{BEGIN}\n{text}{END}{rest.split(END, 1)[1]}", encoding="utf-8")
    (experiment / "recipes.svg").write_bytes((folder / "recipes.svg").read_bytes())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--record", type=pathlib.Path, metavar="EXPERIMENT")
    options = parser.parse_args()
    report = json.loads((options.folder / "verdict.json").read_text(encoding="utf-8"))
    verdicts = report.get("verdicts", [report])
    baseline = verdicts[0]["baseline"]
    baselines = {run["seed"]: h5py.File(options.folder / f"{baseline['arm']}-seed{run['seed']}.h5")
                 for run in baseline["runs"]}
    rows = [row_of(options.folder, verdict, baselines) for verdict in verdicts]
    text = table(rows, len(baselines), verdicts[0]["steps_planned"])
    (options.folder / "recipes.md").write_text(text, encoding="utf-8")
    draw(rows, verdicts[0]["policy"]["margin_percent"], options.folder / "recipes.svg")
    if options.record:
        record(options.folder, options.record, short_table(rows))
    print(text, end="")


if __name__ == "__main__":
    main()
