"""The limits of a run. Every one is a ratio within a run, or stated per second or in seconds."""

import collections
import math
import operator
import statistics

from . import BenchError

DIRECTIONS = {">=": operator.ge, "<=": operator.le}

Bar = collections.namedtuple("Bar", "name direction limit figure")


def median_of(group, counter):
    """The median of a counter over all benchmarks of a group, as `gemm/...`."""
    def figure(figures):
        return statistics.median(values_of(figures, group, counter))
    return figure


def worst_of(choose, *places):
    """`choose` (min or max) of single figures, each as (benchmark, counter)."""
    def figure(figures):
        return choose(figures[name][counter] for name, counter in places)
    return figure


def single(name, counter):
    return worst_of(min, (name, counter))


def values_of(figures, group, counter):
    values = [counters[counter] for name, counters in figures.items()
              if name.startswith(group + "/") and counter in counters]
    if not values:
        raise KeyError(f"{group}/*: {counter}")
    return values


BARS = (
    Bar("GEMM, both operands packed in the call, of FMA peak", ">=", 0.85,
        median_of("gemm", "of_peak_bf16")),
    Bar("GEMM, MXFP8 quantised in the packing, of FMA peak", ">=", 0.80,
        median_of("gemm", "of_peak_mxfp8")),
    Bar("GEMM, right side packed beforehand, of FMA peak", ">=", 0.90,
        median_of("gemm", "of_peak_bf16_prepacked")),
    Bar("GEMM, oneDNN's time over ours, packed in the call", ">=", 1.0,
        median_of("gemm", "vs_onednn")),
    Bar("GEMM, oneDNN's time over ours, right side packed beforehand", ">=", 1.05,
        median_of("gemm", "vs_onednn_prepacked")),
    Bar("GEMM, OpenBLAS's time over ours", ">=", 1.1, median_of("gemm", "vs_openblas")),
    Bar("GEMM, Eigen's time over ours", ">=", 1.1, median_of("gemm", "vs_eigen")),
    Bar("GEMM, sums of Hopper's BF16 tensor cores, of the FP32 chain's speed", ">=", 0.084,
        median_of("accumulator", "of_chain_hopper_bf16")),
    Bar("16 uneven experts, BF16, of FMA peak", ">=", 0.78,
        single("experts/routed", "of_peak_bf16")),
    Bar("16 uneven experts, MXFP8, of FMA peak", ">=", 0.70,
        single("experts/routed", "of_peak_mxfp8")),
    Bar("two threads over one, packed GEMM", ">=", 1.85, median_of("threads2", "speedup")),
    Bar("two threads over one, step BF16", ">=", 1.88, single("step/threads2/bf16", "speedup")),
    Bar("two threads over one, step MXFP8", ">=", 1.88,
        single("step/threads2/mxfp8_rceil", "speedup")),
    Bar("quantise along rows in L2, G elements/s", ">=", 6,
        single("rows_l2/e4m3_rceil", "giga_elements_per_s")),
    Bar("quantise transposing in L2, G elements/s", ">=", 5,
        single("transposing_l2/e4m3_rceil", "giga_elements_per_s")),
    Bar("quantise from memory, of a copy", ">=", 0.9, single("rows_memory/e4m3_rceil", "of_copy")),
    Bar("step BF16, of FMA peak", ">=", 0.72, single("step/one_thread", "of_peak_bf16")),
    Bar("step MXFP8, of FMA peak", ">=", 0.68, single("step/one_thread", "of_peak_mxfp8")),
    Bar("step FP32, of FMA peak", ">=", 0.72, single("step/one_thread", "of_peak_fp32")),
    Bar("nano, share of a step outside GEMMs", "<=", 0.35,
        worst_of(max, ("small_model/outside_gemms/bf16", "share"),
                 ("small_model/outside_gemms/mxfp8_rceil", "share"))),
    Bar("nano, two runs side by side, of twice one alone", ">=", 0.95,
        worst_of(min, ("small_model/side_by_side/bf16", "of_sum"),
                 ("small_model/side_by_side/mxfp8_rceil", "of_sum"))),
    Bar("PyTorch FP32 step over ours", ">=", 1.7, single("torch/fp32/threads1", "ratio")),
    Bar("PyTorch MXFP8 step, usual emulation, over ours", ">=", 8.5,
        single("torch/mxfp8_usual/threads1", "ratio")),
    Bar("PyTorch MXFP8 step, fastest emulation, over ours", ">=", 3.2,
        single("torch/mxfp8_fastest/threads1", "ratio")),
    Bar("step MXFP8 over step BF16", "<=", 1.08, single("step/one_thread", "mxfp8_over_bf16")),
    Bar("step of 4 x the tokens over step", "<=", 4.2,
        worst_of(max, ("step/tokens4/bf16", "time_ratio"),
                 ("step/tokens4/mxfp8_rceil", "time_ratio"))),
    Bar("memory of 16 to 32 sequences over twice that of 8 to 16", "<=", 1.1,
        worst_of(max, ("memory/bf16", "growth"), ("memory/mxfp8_rceil", "growth"))),
    Bar("memory for each parameter, MXFP8, bytes", "<=", 20,
        single("growth/mxfp8_rceil/experts", "bytes_per_parameter")),
    Bar("exponent of a step's time in tokens, experts, depth", "<=", 1.05,
        worst_of(max, *((f"growth/{recipe}/{axis}", "time_exponent")
                        for recipe in ("bf16", "mxfp8_rceil")
                        for axis in ("tokens", "experts", "layers")))),
    Bar("exponent of a step's memory in tokens, experts, depth", "<=", 1.05,
        worst_of(max, *((f"growth/{recipe}/{axis}", "memory_exponent")
                        for recipe in ("bf16", "mxfp8_rceil")
                        for axis in ("tokens", "experts", "layers")))),
    Bar("step MXFP8 of one layer of the 16B, of FMA peak", ">=", 0.70,
        single("layer/mxfp8_rceil", "of_peak")),
    Bar("memory of one layer of the 16B, GiB", "<=", 16,
        lambda figures: figures["layer/mxfp8_rceil"]["bytes"] / 2**30),
    Bar("flat exchange of 8 ranks, of the step with one rank", "<=", 0.05,
        single("exchange/dsv3-small/threads1", "cost_8")),
    Bar("flat exchange of 256 ranks, of the step with one rank", "<=", 0.25,
        single("exchange/dsv3-671b-topology/threads1", "cost_256")),
    Bar("probe of one step, of training that step", "<=", 12,
        worst_of(max, *((f"probe/{preset}/{recipe}", "of_training")
                        for preset in ("dsv3-nano", "dsv3-small")
                        for recipe in ("bf16", "mxfp8_rceil")))),
    Bar("verify of the demo, seconds", "<=", 90, single("verify/demo", "seconds")),
)


def evaluate(figures, complete=True, bars=BARS):
    """[{name, value, bar, holds}], in the order of the table.

    What was not measured is an error in a complete run; otherwise its value and `holds` are None.
    """
    results = []
    for bar in bars:
        try:
            value = bar.figure(figures)
        except KeyError as missing:
            if complete:
                raise BenchError(f"bar `{bar.name}`: {missing.args[0]} was not measured, but a "
                                 f"complete run needs it. Did a program lose a benchmark?") from None
            value = None
        if value is not None and not math.isfinite(value):
            raise BenchError(f"bar `{bar.name}`: the value is {value}, but a figure is finite. "
                             f"Run the program that measures it alone.")
        holds = None if value is None else DIRECTIONS[bar.direction](value, bar.limit)
        results.append({"name": bar.name, "value": value,
                        "bar": f"{bar.direction} {bar.limit:g}", "holds": holds})
    return results


def all_hold(results):
    return all(result["holds"] is not False for result in results)
