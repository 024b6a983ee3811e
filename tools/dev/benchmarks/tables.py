"""Figures as Markdown tables: those of --bars, and those of --tables."""

import re
import statistics

from . import BenchError

SIZE = re.compile(r"/(\d+)x(\d+)x(\d+)$")


def table(header, rows):
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines)


def number(value, digits=2):
    return "–" if value is None else f"{value:.{digits}f}"


def sized(figures, group):
    """[(m, n, k, counters)] of the benchmarks `group/MxNxK`, in order."""
    found = []
    for name, counters in figures.items():
        match = SIZE.search(name)
        if match and name.startswith(group + "/"):
            found.append((*map(int, match.groups()), counters))
    return sorted(found, key=lambda entry: entry[:3])


def by_rows(sizes, counter):
    """Median over all sizes, then over those of each M."""
    medians = [statistics.median(counters[counter] for *_, counters in sizes)]
    for m in sorted({size[0] for size in sizes}):
        medians.append(statistics.median(
            counters[counter] for rows, _, _, counters in sizes if rows == m))
    return [number(median) for median in medians]


GEMM_ROWS = (
    ("BF16, both operands packed in the call", "of_peak_bf16"),
    ("MXFP8, both quantised in the packing", "of_peak_mxfp8"),
    ("BF16, W packed beforehand", "of_peak_bf16_prepacked"),
    ("MXFP8, W packed and quantised beforehand", "of_peak_mxfp8_prepacked"),
    ("OpenBLAS sgemm", "of_peak_openblas"),
    ("Eigen", "of_peak_eigen"),
    ("oneDNN f32 matmul", "of_peak_onednn"),
)
PEERS = (("OpenBLAS", "vs_openblas"), ("Eigen", "vs_eigen"), ("oneDNN", "vs_onednn"))


def gemm(figures):
    sizes = sized(figures, "gemm")
    ms = sorted({size[0] for size in sizes})
    header = ["of FMA peak, median", f"all {len(sizes)}", *(f"M={m}" for m in ms)]
    fractions = table(header, [[label, *by_rows(sizes, counter)] for label, counter in GEMM_ROWS])
    header = ["time of the peer / ours (BF16, packed in the call)", *header[1:],
              "sizes where we are not slower"]
    rows = []
    for label, counter in PEERS:
        wins = sum(counters[counter] >= 1 for *_, counters in sizes)
        rows.append([label, *by_rows(sizes, counter), f"{wins} of {len(sizes)}"])
    return fractions + "\n\n" + table(header, rows)


def gemm_sizes(figures):
    header = ["M,N,K", "BF16", "MXFP8", "BF16, W packed", "MXFP8, W packed", "OpenBLAS", "Eigen",
              "oneDNN"]
    counters_shown = [counter for _, counter in GEMM_ROWS]
    return table(header, [
        [f"{m},{n},{k}", *(number(counters[counter]) for counter in counters_shown)]
        for m, n, k, counters in sized(figures, "gemm")])


def other_products(figures):
    rows = []
    for group, label in (("experts", "16 experts, {}"), ("small", "y = x Wᵀ, {}"),
                         ("wgrad", "dW = dyᵀ x, {}")):
        for name, counters in figures.items():
            if name.startswith(group + "/"):
                rows.append([label.format(name.split("/")[1]), *(
                    number(counters.get(counter)) for _, counter in GEMM_ROWS)])
    return table(["of FMA peak", "BF16", "MXFP8", "BF16, W packed", "MXFP8, W packed",
                  "OpenBLAS", "Eigen", "oneDNN"], rows)


def threads(figures):
    sizes = sized(figures, "threads2")
    ms = sorted({size[0] for size in sizes})
    rows = [["FMA loop: what the machine gives",
             number(figures["threads2_fma/loop"]["speedup"]), *[""] * len(ms)],
            ["GEMM, W packed", *by_rows(sizes, "speedup")]]
    for name, counters in figures.items():
        if name.startswith("threads2_experts/"):
            _, routing, precision = name.split("/")
            rows.append([f"16 experts, {routing}, {precision.upper()}",
                         number(counters["speedup"]), *[""] * len(ms)])
        if name.startswith("step/threads2/"):
            rows.append([f"step, {name.split('/')[2]}", number(counters["speedup"]),
                         *[""] * len(ms)])
    return table(["two threads / one", "median", *(f"M={m}" for m in ms)], rows)


def quantize(figures):
    rows = []
    for group, label in (("rows_l2", "along rows, in L2"),
                         ("transposing_l2", "transposing, in L2"),
                         ("rows_memory", "along rows, from memory")):
        for name, counters in figures.items():
            if name.startswith(group + "/"):
                element, mode = name.split("/")[1].split("_")
                rows.append([label, f"{element.upper()} {mode}",
                             number(counters["giga_elements_per_s"], 1),
                             number(counters["of_copy"])])
    return table(["", "format", "10⁹ elements/s", "of a copy"], rows)


def rowwise(figures):
    return table(["operation", "10⁹ elements/s", "of a copy"], [
        [name.split("/")[1], number(counters["giga_elements_per_s"]), number(counters["of_copy"])]
        for name, counters in figures.items() if name.startswith("rowwise/")])


def step(figures):
    one = figures["step/one_thread"]
    rows = []
    for recipe, short in (("bf16", "bf16"), ("mxfp8_rceil", "mxfp8"), ("fp32", "fp32")):
        two = figures[f"step/threads2/{recipe}"]
        memory = figures[f"memory/{recipe}"]
        rows.append([
            recipe, number(one[f"of_peak_{short}"]), number(one[f"ms_{short}"], 0),
            number(two["ms"], 0), number(two["speedup"]),
            number(figures[f"step/tokens4/{recipe}"]["time_ratio"]),
            *(number(memory[f"bytes_{count}"] / 2**20, 0) for count in (8, 16, 32)),
            number(memory["bytes_per_token"] / 1024, 1)])
    return table(["recipe", "of FMA peak, 1 thread", "ms, 1 thread", "ms, 2 threads",
                  "2 threads / 1", "4 x the tokens / 1", "MB at 8 sequences", "16", "32",
                  "KB a token"], rows)


def growth(figures):
    rows = []
    for name, counters in figures.items():
        if name.startswith("growth/"):
            _, recipe, axis = name.split("/")
            row = [recipe, f"{axis}, {counters['from']:.0f} to {counters['to']:.0f}"
                   .replace("tokens", "sequences of 256 tokens")]
            for what in ("time", "memory"):
                row += [number(counters[f"{what}_exponent"]),
                        f"{number(100 * counters[f'{what}_deviation'], 1)} %",
                        number(counters[f"{what}_last_doubling"])]
            rows.append(row)
    return table(["recipe", "what grows", "time: exponent", "deviates by at most",
                  "last doubling", "memory: exponent", "deviates by at most", "last doubling"],
                 rows)


def layer(figures):
    rows = []
    for name, counters in figures.items():
        if name.startswith("layer/"):
            recipe = name.split("/")[1]
            small = figures[f"growth/{recipe}/experts"]
            rows.append([recipe, number(counters["of_peak"]), number(counters["cpu_seconds"], 1),
                         number(counters["tera_flop"]), number(counters["parameters"] / 1e6, 0),
                         number(counters["bytes"] / 2**30, 1),
                         number(small["bytes_per_parameter"])])
    return table(["recipe", "of FMA peak", "s of a processor", "TFLOP", "10⁶ parameters", "GiB",
                  "bytes for each further parameter (dsv3-small)"], rows)


def exchange(figures):
    rows = []
    for name, counters in figures.items():
        if name.startswith("exchange/"):
            _, preset, threads_of = name.split("/")
            rows.append([preset, threads_of.removeprefix("threads"),
                         number(counters["ms_one_rank"], 0),
                         *(number(100 * counters[key], 1) if key in counters else "–"
                           for key in ("cost_8", "cost_256", "cost_256_node_fp8"))])
    return table(["preset", "threads", "ms, one rank", "8 ranks, flat: + %",
                  "256 ranks, flat: + %", "256 ranks, node, MXFP8 payload: + %"], rows)


TORCH_MODES = (
    ("fp32", "fp32", "FP32"),
    ("bf16", "bf16", "autocast BF16"),
    ("mxfp8_usual", "mxfp8_floor", "MXFP8, microxcaling's operations"),
    ("mxfp8_fastest", "mxfp8_floor", "MXFP8, fewest operations, on the bits"),
)


def torch(figures):
    rows = []
    for mode, recipe, label in TORCH_MODES:
        for count in (1, 2):
            pair = figures.get(f"torch/{mode}/threads{count}")
            if pair:
                rows.append([label, recipe, str(count), number(pair["torch_ms"], 0),
                             number(pair["ms"], 0), number(pair["torch_of_peak"]),
                             number(pair["of_peak"]), f"**{number(pair['ratio'])}**"])
    return table(["PyTorch", "our recipe", "threads", "PyTorch ms", "our ms",
                  "PyTorch of FMA peak", "ours", "PyTorch / ours"], rows)


def bars(runs):
    """The bars of the newest run on each processor, oldest processor first, beside their limits.
    Whether a bar holds is said of the last run."""
    newest = {run["machine"]["processor"]: run for run in runs}
    values = [{bar["name"]: bar["value"] for bar in run["bars"]} for run in newest.values()]
    word = {True: "yes", False: "**no**", None: "not measured"}
    header = ["bar", "limit", *(f"{name} ({run['date'][:10]})" for name, run in newest.items()),
              "holds"]
    return table(header, [
        [bar["name"], bar["bar"].replace(">=", "≥").replace("<=", "≤"),
         *(number(of_run.get(bar["name"])) for of_run in values), word[bar["holds"]]]
        for bar in runs[-1]["bars"]])


def small(figures):
    rows = []
    for recipe in ("bf16", "mxfp8_rceil"):
        rows.append([recipe, number(figures[f"small_model/outside_gemms/{recipe}"]["share"]),
                     number(figures[f"small_model/side_by_side/{recipe}"]["of_sum"])])
    return table(["recipe", "share of a step outside GEMMs",
                  "two runs side by side, of twice one alone"], rows)


def machine(description):
    return table(["", ""], [[key, str(value)] for key, value in description.items()])


# {name: (heading, function)} of what --tables writes.
DETAILS = {
    "gemm": ("GEMM on one thread", gemm),
    "gemm_sizes": ("Every size of the grid, fraction of FMA peak", gemm_sizes),
    "products": ("Other products of a small model", other_products),
    "threads": ("Two threads", threads),
    "quantize": ("Quantise and dequantise to MX blocks", quantize),
    "rowwise": ("Row-wise operations on 2,048 rows of 256 words", rowwise),
    "step": ("Training step of dsv3-small with 8 x 256 tokens", step),
    "small": ("dsv3-nano with 8 x 128 tokens", small),
    "growth": ("How a step's cost grows: exponents of c n^p", growth),
    "layer": ("One layer of the 16B with 8 x 512 tokens", layer),
    "exchange": ("What the exchange adds to a BF16 step", exchange),
    "torch": ("The step beside PyTorch", torch),
}


def of_history(runs):
    """The machine of the last run, and the bars of the newest run on each processor.

    Errors   there is no run.
    """
    if not runs:
        raise BenchError("the history has no run. Measure one: tools/dev/bench.")
    last = runs[-1]
    return "\n\n".join((
        machine({**last["machine"], "commit": last["commit"], "date": last["date"][:10]}),
        bars(runs)))


def details(figures):
    """{name of DETAILS: Markdown with a heading}."""
    return {name: f"## {heading}\n\n{make(figures)}\n"
            for name, (heading, make) in DETAILS.items()}
