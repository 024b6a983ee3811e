"""Training steps of two programs in turn, and what a step keeps in memory.

step_server and torch_step.py wait for a line, run one step and answer in JSON; so a step of one
stands next to a step of the other whatever the clock does.
"""

import contextlib
import json
import os
import statistics
import subprocess
import tempfile
import time

from . import BenchError
from .programs import BUILD, ROOT, run

# PyTorch comes from Debian, whatever python3 is first in PATH.
PYTHON = "/usr/bin/python3"
TORCH_STEP = ROOT / "tests" / "bench" / "torch_step.py"
# PyTorch's mode and our recipe of the same values.
PAIRS = (("fp32", "fp32"), ("bf16", "bf16"), ("mxfp8_usual", "mxfp8_floor"),
         ("mxfp8_fastest", "mxfp8_floor"))
SEQUENCES, SEQUENCE_LENGTH = 8, 256


class Server:
    """A program that runs a step when asked. Use as a context."""

    def __init__(self, command, processors=None):
        self.command = [*map(str, command)]
        self.errors = tempfile.TemporaryFile("w+", encoding="utf-8")
        pin = None if processors is None else lambda: os.sched_setaffinity(0, processors)
        try:
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors,
                encoding="utf-8", preexec_fn=pin)
        except OSError as error:
            self.errors.close()
            raise BenchError(f"`{' '.join(self.command)}` does not start: {error.strerror}. Is "
                             f"it built, or its package installed?") from error
        self.ready = self.answer()

    def answer(self):
        line = self.process.stdout.readline()
        try:
            return json.loads(line)
        except ValueError:
            last_words = self.close()
            raise BenchError(f"`{' '.join(self.command)}` answered `{line.strip()}`, but every "
                             f"answer is one line of JSON. It said:\n{last_words}") from None

    def step(self):
        # If it has ended, its answer says so better.
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write("step\n")
            self.process.stdin.flush()
        return self.answer()

    def close(self):
        """Lets the program end; returns the end of what it said on standard error."""
        if self.errors.closed:
            return ""
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()
        self.errors.seek(0)
        with self.errors:
            return self.errors.read()[-2000:]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def ours(recipe, threads, sequences=SEQUENCES, processors=None, more=()):
    """`more`: the preset, if it is not dsv3-small; and its layers and experts."""
    return Server([BUILD / "tests" / "bench" / "step_server", recipe, threads, sequences, *more],
                  processors)


def torchs(mode, threads, processors=None):
    return Server([PYTHON, TORCH_STEP, "--serve", mode, "--threads", threads], processors)


def pair(mode, recipe, threads, rounds):
    """Figures of one pair, and what PyTorch says of itself.

    One thread: both programs on the same processor, processor time. More: time on the wall.
    """
    clock = "cpu_ms" if threads == 1 else "wall_ms"
    processors = {max(os.sched_getaffinity(0))} if threads == 1 else None
    with torchs(mode, threads, processors) as peer, \
            ours(recipe, threads, processors=processors) as mine:
        samples = []
        for _ in range(rounds):
            theirs = peer.step()
            # Threads of the peer that wait for work look for it for a while before they sleep.
            time.sleep(0.05)
            samples.append((theirs, mine.step()))
        about = peer.ready
    return {
        "torch_ms": statistics.median(theirs[clock] for theirs, _ in samples),
        "ms": statistics.median(own[clock] for _, own in samples),
        "torch_of_peak": statistics.median(
            own["peak_ms"] / theirs[clock] / threads for theirs, own in samples),
        "of_peak": statistics.median(own["peak_ms"] / own[clock] / threads for _, own in samples),
        "ratio": statistics.median(theirs[clock] / own[clock] for theirs, own in samples),
    }, about


def torch_pairs(thread_counts, rounds, progress):
    """(figures, PyTorch's description) of all modes."""
    check = json.loads(run([PYTHON, TORCH_STEP, "--selfcheck"]))
    if check["selfcheck"] != "equal":
        raise BenchError(f"torch_step.py --selfcheck: {check['elements_that_differ']} elements "
                         f"differ between the emulations of MXFP8, but they are the same values.")
    figures, about = {}, {}
    for threads in thread_counts:
        for mode, recipe in PAIRS:
            progress.show(f"PyTorch {mode}, {threads} thread{'s' * (threads > 1)}")
            figures[f"torch/{mode}/threads{threads}"], about = pair(mode, recipe, threads, rounds)
    return figures, about


def memory(recipe):
    """Resident growth of a training step, with 8, 16 and 32 sequences."""
    held = {}
    for sequences in (8, 16, 32):
        with ours(recipe, 1, sequences) as server:
            held[sequences] = server.ready["resident_bytes"]
    return {
        **{f"bytes_{sequences}": count for sequences, count in held.items()},
        "bytes_per_token": (held[32] - held[8]) / (24 * SEQUENCE_LENGTH),
        "growth": (held[32] - held[16]) / (2 * (held[16] - held[8])),
    }
