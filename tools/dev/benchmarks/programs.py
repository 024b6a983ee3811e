"""Builds the programs of tests/bench and runs them."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

from . import BenchError

ROOT = pathlib.Path(__file__).resolve().parents[3]
BUILD = ROOT / "build" / "bench"
PROGRAMS = ("gemm_bench", "experts_bench", "executor_bench", "quantize_bench", "rowwise_bench",
            "step_bench", "small_bench", "exchange_bench", "oracle_bench")

ROUNDS, QUICK_ROUNDS = 15, 3
# What `--quick` leaves: one M of the grids; of the step, the recipes that have bars.
QUICK_FILTER = {
    "gemm_bench": "/256x|experts|wgrad|small",
    "executor_bench": "/256x|experts|fma",
    "step_bench": "one_thread|/bf16|/mxfp8",
    "exchange_bench": "threads1",
    "oracle_bench": "nano",
}


def run(command, **options):
    """Runs a command that must succeed; its output is shown only if it does not."""
    done = subprocess.run([*map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          encoding="utf-8", errors="replace", check=False, **options)
    if done.returncode != 0:
        raise BenchError(f"`{' '.join(map(str, command))}` ended with code {done.returncode}:\n"
                         + "\n".join(done.stdout.splitlines()[-20:]))
    return done.stdout


def install():
    done = subprocess.run([ROOT / "tools" / "dev" / "install_packages", "bench"], check=False)
    if done.returncode != 0:
        raise BenchError("tools/dev/install_packages bench failed (above). Install the packages "
                         "of tools/packages.txt by hand and give --no-install.")


def build():
    run(["cmake", "--preset", "release", "-B", BUILD, "-DISOLOSS_BENCHMARK_PEERS=ON",
         "-DISOLOSS_BUILD_TESTS=OFF", "-DISOLOSS_WARNINGS_AS_ERRORS=OFF"], cwd=ROOT)
    run(["cmake", "--build", BUILD, "--target", "isoloss", "step_server", *PROGRAMS], cwd=ROOT)


def read_output(text, where):
    """(context, figures) of Google Benchmark's JSON."""
    output = json.loads(text)
    figures = {}
    for entry in output["benchmarks"]:
        name = entry["run_name"].split("/iterations:")[0]
        if entry.get("error_occurred"):
            raise BenchError(f"{where}: {name}: {entry.get('error_message', 'failed')}.")
        standard = {"real_time", "cpu_time", "iterations", "repetitions", "repetition_index",
                    "threads", "family_index", "per_family_instance_index"}
        figures[name] = {key: value for key, value in entry.items()
                         if isinstance(value, (int, float)) and key not in standard}
    if not figures:
        raise BenchError(f"{where}: no benchmark ran, but at least one was asked for.")
    return output["context"], figures


def names_of(name, pattern):
    """Names of the benchmarks of a program that a regular expression finds."""
    program = BUILD / "tests" / "bench" / name
    listed = run([program, f"--benchmark_filter={pattern}", "--benchmark_list_tests"]).splitlines()
    return [line for line in listed if not line.startswith("Failed to match")]


def run_program(name, quick, progress, pattern=None):
    """(context, figures) of one Google Benchmark program; of what `pattern` finds, if given."""
    command = [BUILD / "tests" / "bench" / name,
               f"--rounds={QUICK_ROUNDS if quick else ROUNDS}"]
    if pattern is None and quick:
        pattern = QUICK_FILTER.get(name)
    if pattern is not None:
        command.append(f"--benchmark_filter={pattern}")
    total = len(names_of(name, "." if pattern is None else pattern))
    with tempfile.TemporaryDirectory(prefix="isoloss-bench-") as folder:
        out = pathlib.Path(folder) / "out.json"
        command.append(f"--benchmark_out={out}")
        with open(pathlib.Path(folder) / "stderr", "w+", encoding="utf-8") as errors, \
                subprocess.Popen([*map(str, command)], stdout=subprocess.PIPE, stderr=errors,
                                 encoding="utf-8") as process:
            done = 0
            for line in process.stdout:
                done += "/iterations:" in line
                progress.show(f"{name} {done} of {total}")
            code = process.wait()
            errors.seek(0)
            if code != 0:
                raise BenchError(f"{name} ended with code {code}:\n{errors.read()[-2000:]}")
        return read_output(out.read_text(encoding="utf-8"), name)


def time_verify():
    """Wall seconds of the demo's experiment, built already; its verdict must be a pass."""
    with tempfile.TemporaryDirectory(prefix="isoloss-bench-") as folder:
        start = time.monotonic()
        run([BUILD / "bin" / "isoloss", "verify", "experiments/demo/experiment.toml",
             "--out", folder], cwd=ROOT)
        return {"seconds": time.monotonic() - start}


class Progress:
    """What goes on at the moment, on one line of a terminal; a line for each part otherwise."""

    def __init__(self, stream=sys.stderr):
        self.stream = stream
        self.terminal = stream.isatty()
        self.start = time.monotonic()

    def part(self, text):
        self.clear()
        print(f"[{time.monotonic() - self.start:4.0f} s] {text}", file=self.stream, flush=True)

    def show(self, text):
        if self.terminal:
            width = os.get_terminal_size(self.stream.fileno()).columns
            print(f"\r\x1b[K{text[:width - 1]}", end="", file=self.stream, flush=True)

    def clear(self):
        if self.terminal:
            print("\r\x1b[K", end="", file=self.stream, flush=True)
