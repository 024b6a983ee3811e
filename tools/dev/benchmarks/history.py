"""One run beside another."""

import statistics

from . import BenchError

# Groups of many sizes, of which the history keeps medians.
GRIDS = ("gemm", "threads2")


def key_figures(figures):
    """{"benchmark counter": value}; of a grid only the median over its sizes."""
    kept = {}
    medians = {}
    for name, counters in figures.items():
        group = name.split("/")[0]
        for counter, value in counters.items():
            if group in GRIDS:
                medians.setdefault(f"{group} {counter}", []).append(value)
            else:
                kept[f"{name} {counter}"] = value
    kept.update((name, statistics.median(values)) for name, values in medians.items())
    return {name: float(f"{value:.5g}") for name, value in kept.items()}


def change(before, after):
    if before is None or after is None:
        return "not in both"
    if before == 0:
        return ""
    return f"{100 * (after / before - 1):+.1f} %"


def last_two(runs):
    """The last run and the one before on its processor, older first; the last two of all if it
    is the first there."""
    if len(runs) < 2:
        raise BenchError(f"the history has {len(runs)} run{'s' * (len(runs) != 1)}, but a "
                         f"comparison needs 2. Run tools/dev/bench first.")
    *earlier, last = runs
    processor = last["machine"].get("processor")
    same = [run for run in earlier if run["machine"].get("processor") == processor]
    return (same or earlier)[-1], last


def compare(runs):
    """The runs of last_two side by side, as text."""
    before, after = last_two(runs)
    lines = [f"{'':62} {before['commit'][:14]:>14} {after['commit'][:14]:>14}",
             f"{'':62} {before['date'][:10]:>14} {after['date'][:10]:>14}"]
    if before["machine"] != after["machine"]:
        lines.append("The machines differ; only ratios may be compared, and those with care.")
    lines += ["", "Bars"]
    values = {bar["name"]: bar for bar in before["bars"]}
    for bar in after["bars"]:
        old = values.get(bar["name"], {"value": None, "holds": None})
        note = "" if old["holds"] in (None, bar["holds"]) else (
            "  now holds" if bar["holds"] else "  NO LONGER HOLDS")
        lines.append(row(bar["name"], old["value"], bar["value"]) + note)
    lines += ["", "Figures"]
    for name in sorted({*before["figures"], *after["figures"]}):
        lines.append(row(name, before["figures"].get(name), after["figures"].get(name)))
    return "\n".join(lines)


def row(name, before, after):
    def shown(value):
        return "–" if value is None else f"{value:.5g}"
    return f"{name:62} {shown(before):>14} {shown(after):>14}  {change(before, after)}"
