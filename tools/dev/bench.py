#!/usr/bin/python3
"""Measures how fast isoloss is and holds it to its bars.

Builds and runs the programs of tests/bench beside OpenBLAS, Eigen, oneDNN and PyTorch, adds a line to
docs/performance-history.jsonl and prints every bar.
Use a machine that does nothing else: every figure is a ratio within the run, but neighbours still
take from caches and clock.

Examples:
    tools/dev/bench                        everything; about a quarter of an hour, 16 GB of memory
    tools/dev/bench --json bars.json       and the bars as [{name, value, bar, holds}]
    tools/dev/bench --tables figures.md    and every figure, as Markdown tables
    tools/dev/bench --quick                a taste in about three minutes; adds no line
    tools/dev/bench --filter gemm/256x     the benchmarks with such a name: figures, no bars
    tools/dev/bench --compare              the last run beside the one before on its processor
    tools/dev/bench --bars                 the last run's machine, and its bars on every processor

Exit code: 0 if every bar holds, 1 if one does not, 2 if something went wrong.
"""

import argparse
import datetime
import json
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
sys.dont_write_bytecode = True

from benchmarks import BenchError, bars, files, history, machine, programs, scaling, steps, tables

HISTORY = programs.ROOT / "docs" / "performance-history.jsonl"
MEMORY_RECIPES = ("bf16", "mxfp8_rceil", "fp32")


def measure(quick, progress):
    """(figures, contexts, PyTorch's description) of everything."""
    figures, contexts = {}, {}
    for name in programs.PROGRAMS:
        progress.part(name)
        contexts[name], found = programs.run_program(name, quick, progress)
        figures.update(found)
    progress.part("memory of a step")
    for recipe in MEMORY_RECIPES:
        progress.show(f"memory of a step, {recipe}")
        figures[f"memory/{recipe}"] = steps.memory(recipe)
    progress.part("how a step's cost grows")
    figures.update(scaling.measure(quick, progress))
    progress.part("the same step in PyTorch")
    found, torch = steps.torch_pairs((1,) if quick else (1, 2), 2 if quick else 5, progress)
    figures.update(found)
    if not quick:
        progress.part("verify of the demo")
        figures["verify/demo"] = programs.time_verify()
    progress.part("done")
    return figures, contexts, torch


def measure_some(pattern, quick, progress):
    """Prints the figures of the benchmarks whose names match."""
    matching = [name for name in programs.PROGRAMS if programs.names_of(name, pattern)]
    if not matching:
        raise BenchError(f"no benchmark of {', '.join(programs.PROGRAMS)} matches '{pattern}'. "
                         "Give another --filter, e.g. gemm/256x.")
    for name in matching:
        progress.part(name)
        for benchmark, counters in programs.run_program(name, quick, progress, pattern)[1].items():
            print(benchmark, *(f"{counter}={value:.4g}" for counter, value in counters.items()))


def print_bars(results):
    for result in results:
        word = {True: "holds", False: "FAILS", None: "-"}[result["holds"]]
        value = "not measured" if result["value"] is None else f"{result['value']:.3f}"
        print(f"{word:6} {result['name']:62} {value:>12}  {result['bar']}")


def warn_if_busy(figures):
    gain = figures["threads2_fma/loop"]["speedup"]
    if gain < 1.9:
        print(f"tools/dev/bench: two threads ran the FMA loop {gain:.2f} times as fast as one, but "
              f"2 is what an idle machine gives. Repeat the run when nothing else works on it.",
              file=sys.stderr)


def run(arguments):
    files.read_history(HISTORY)  # a damaged one is not to be found after ten minutes of measuring
    progress = programs.Progress()
    if not arguments.no_install:
        programs.install()
    progress.part("building")
    programs.build()
    if arguments.filter is not None:
        measure_some(arguments.filter, arguments.quick, progress)
        return 0
    figures, contexts, torch = measure(arguments.quick, progress)
    results = bars.evaluate(figures, complete=not arguments.quick)
    print_bars(results)
    warn_if_busy(figures)
    if arguments.json:
        files.write_whole(arguments.json, json.dumps(results, indent=2) + "\n")
    if not arguments.quick:
        description = machine.describe(contexts, torch, files.read("/proc/cpuinfo"))
        record(figures, results, description, contexts["step_bench"]["commit"])
        if arguments.tables:
            files.write_whole(arguments.tables, "\n".join(tables.details(figures).values()))
    return 0 if bars.all_hold(results) else 1


def record(figures, results, description, commit):
    """Adds the run to the history."""
    date = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    files.append_history(HISTORY, {
        "date": date, "commit": commit, "machine": description, "bars": results,
        "figures": history.key_figures(figures)})


def parse(arguments):
    parser = argparse.ArgumentParser(
        prog="tools/dev/bench", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true",
                        help="fewer samples, a part of the sizes, no demo; adds no line to the history")
    parser.add_argument("--filter", metavar="REGEX",
                        help="measure only the benchmarks whose names match, and print their "
                             "figures; no bars, no line of the history")
    parser.add_argument("--json", metavar="FILE", help="write the bars there")
    parser.add_argument("--tables", metavar="FILE",
                        help="write every figure there, as Markdown tables")
    parser.add_argument("--no-install", action="store_true", help="install no packages")
    parser.add_argument("--compare", action="store_true",
                        help="measure nothing; compare the last run with the one before on the "
                             "same processor")
    parser.add_argument("--bars", action="store_true",
                        help="measure nothing; print the machine of the last run, and the bars of "
                             "the newest run on each processor, as Markdown tables")
    parsed = parser.parse_args(arguments)
    if parsed.tables and parsed.quick:
        parser.error("--tables writes every figure, of which --quick measures some.")
    if parsed.filter is not None:
        if parsed.json:
            parser.error("--json writes the bars, of which --filter has none.")
        if parsed.tables:
            parser.error("--tables writes every figure, of which --filter measures some.")
        try:
            re.compile(parsed.filter)
        except re.error as error:
            parser.error(f"--filter '{parsed.filter}' is no regular expression: {error}.")
    return parsed


def main(arguments=None):
    arguments = parse(arguments)
    try:
        if arguments.compare:
            print(history.compare(files.read_history(HISTORY)))
            return 0
        if arguments.bars:
            print(tables.of_history(files.read_history(HISTORY)))
            return 0
        return run(arguments)
    except BenchError as error:
        print(f"tools/dev/bench: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("tools/dev/bench: interrupted.", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
