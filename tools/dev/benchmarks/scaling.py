"""How the cost of a step grows with tokens, experts and depth: exponents of power laws."""

import contextlib
import math
import statistics

from . import steps

# What grows; sizes of dsv3-small that grow with it, as (sequences, layers, experts).
AXES = {
    "tokens": [(count, (count, 4, 16)) for count in (8, 16, 32, 64)],
    "experts": [(count, (8, 4, count)) for count in (8, 16, 32, 64)],
    "layers": [(count, (8, count, 16)) for count in (2, 4, 8, 16)],
}
RECIPES = ("bf16", "mxfp8_rceil")
LAYER = "dsv3-16b-layer"


def power_law(points):
    """(exponent, largest deviation) of value ~ size^exponent, by least squares of logarithms."""
    xs, ys = zip(*((math.log(size), math.log(value)) for size, value in points))
    x_mean, y_mean = statistics.fmean(xs), statistics.fmean(ys)
    exponent = (sum((x - x_mean) * (y - y_mean) for x, y in zip(xs, ys))
                / sum((x - x_mean) ** 2 for x in xs))
    return exponent, max(abs(math.expm1(y - y_mean - exponent * (x - x_mean)))
                         for x, y in zip(xs, ys))


def growth(recipe, axis, rounds):
    """How processor time and memory of a step grow along an axis.

    Steps of all sizes are made in turn, so that no size has another machine than the others. Time
    is counted in operations of the FMA peak beside the step.
    """
    with contextlib.ExitStack() as stack:
        servers = [(size, stack.enter_context(steps.ours(
            recipe, 1, sequences, more=("dsv3-small", layers, experts))))
                   for size, (sequences, layers, experts) in AXES[axis]]
        samples = {size: [] for size, _ in servers}
        for _ in range(rounds):
            for size, server in servers:
                answer = server.step()
                samples[size].append(answer["cpu_ms"] / answer["peak_ms"] * server.ready["flops"])
        ready = {size: server.ready for size, server in servers}
    time = [(size, statistics.median(values)) for size, values in samples.items()]
    memory = [(size, ready[size]["resident_bytes"]) for size in ready]
    figures = {"from": time[0][0], "to": time[-1][0]}
    for name, points in (("time", time), ("memory", memory)):
        figures[f"{name}_exponent"], figures[f"{name}_deviation"] = power_law(points)
        figures[f"{name}_last_doubling"] = points[-1][1] / points[-2][1]
    if axis == "experts":  # the same tokens, so that nothing but parameters grows
        first, last = ready[time[0][0]], ready[time[-1][0]]
        figures["bytes_per_parameter"] = ((last["resident_bytes"] - first["resident_bytes"])
                                          / (last["parameters"] - first["parameters"]))
    return figures


def layer(recipe, rounds):
    """A step of the 16B's layer at its true widths: fraction of FMA peak, and memory."""
    with steps.ours(recipe, 1, more=(LAYER,)) as server:
        samples = [server.step() for _ in range(rounds)]
        ready = server.ready
    return {
        "of_peak": statistics.median(step["peak_ms"] / step["cpu_ms"] for step in samples),
        "cpu_seconds": statistics.median(step["cpu_ms"] for step in samples) / 1e3,
        "tera_flop": ready["flops"] / 1e12,
        "bytes": ready["resident_bytes"],
        "parameters": ready["parameters"],
    }


def measure(quick, progress):
    """All figures; of a quick run, what takes less than half a minute."""
    figures = {}
    for recipe in RECIPES[1:] if quick else RECIPES:
        for axis in ("experts",) if quick else AXES:
            progress.show(f"growth with {axis}, {recipe}")
            figures[f"growth/{recipe}/{axis}"] = growth(recipe, axis, 2 if quick else 5)
        if not quick:
            progress.show(f"{LAYER}, {recipe}")
            figures[f"layer/{recipe}"] = layer(recipe, 3)
    return figures
