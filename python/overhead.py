"""What recording adds to a step, without dumps and statistics.

Steps with and without a recorder alternate in blocks. Printed are the ratio of
the medians, and the time within the recorder alone, which other load disturbs
less. Each step of a recording is written to a journal and has the norm of the
gradient computed by the recorder, unless --told.
"""

import argparse
import pathlib
import statistics
import sys
import tempfile
import time

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import isoloss  # noqa: E402


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--blocks", type=int, default=6, help="pairs of blocks of ten steps")
    parser.add_argument("--told", action="store_true", help="the loop passes its gradient norm")
    options = parser.parse_args()
    torch.manual_seed(1)
    layers = []
    for _ in range(options.layers):
        layers += [torch.nn.Linear(options.width, options.width), torch.nn.GELU()]
    model = torch.nn.Sequential(*layers)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    x = torch.randn(options.tokens, options.width)

    own = []

    def timed(function):
        def call(*arguments, **values):
            begin = time.perf_counter()
            function(*arguments, **values)
            own[-1] += time.perf_counter() - begin
        return call

    def step(recorder):
        own.append(0.0)
        begin = time.perf_counter()
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        # A loop prints its loss, with a recorder or without.
        value = loss.item()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0) if options.told else None
        optimizer.step()
        if recorder:
            recorder.step(value, tokens=options.tokens, grad_norm=norm)
        return time.perf_counter() - begin

    plain, recorded = [], []
    with tempfile.TemporaryDirectory() as folder:
        for block in range(options.blocks):
            plain += [step(None) for _ in range(10)]
            with isoloss.record(model, optimizer, f"{folder}/{block}.h5") as recorder:
                recorder.step = timed(recorder.step)
                recorder._norms.read = timed(recorder._norms.read)
                recorded += [step(recorder) for _ in range(10)]
    a, b = statistics.median(plain), statistics.median(recorded)
    inside = statistics.median(time for time in own if time)
    print(f"a step takes {a * 1e3:.3f} ms, recorded {b * 1e3:.3f} ms: ratio {b / a:.4f}, "
          f"within the recorder {inside * 1e6:.0f} us, {100 * inside / a:.2f} %")


if __name__ == "__main__":
    main()
