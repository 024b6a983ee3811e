"""What recording adds to a step, without dumps and statistics.

Blocks of steps with and without a recorder alternate. Printed are the median of the
ratios of each two neighbours, and the time within the recorder alone, which other
load disturbs less. Each step of a recording is written to a journal and has the norm
of the gradient computed by the recorder, unless --told.

Exit code: 1 if the ratio is above --bar, else 0.
"""

import argparse
import math
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
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--milliseconds", type=float, default=0.0,
                        help="tokens are doubled until a step takes as long")
    parser.add_argument("--bar", type=float, metavar="RATIO", default=math.inf)
    parser.add_argument("--told", action="store_true", help="the loop passes its gradient norm")
    options = parser.parse_args()
    torch.manual_seed(1)
    layers = []
    for _ in range(options.layers):
        layers += [torch.nn.Linear(options.width, options.width), torch.nn.GELU()]
    model = torch.nn.Sequential(*layers).to(options.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    x = torch.randn(options.tokens, options.width, device=options.device)

    own = []

    def wait():
        if options.device.startswith("cuda"):
            torch.cuda.synchronize()

    def timed(function):
        def call(*arguments, **values):
            begin = time.perf_counter()
            function(*arguments, **values)
            own[-1] += time.perf_counter() - begin
        return call

    def step(recorder):
        own.append(0.0)
        optimizer.zero_grad()
        with torch.autocast(torch.device(options.device).type, torch.bfloat16,
                            enabled=options.device != "cpu"):
            loss = model(x).float().square().mean()
        loss.backward()
        # A loop prints its loss, with a recorder or without.
        value = loss.item()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0) if options.told else None
        optimizer.step()
        if recorder:
            recorder.step(value, tokens=len(x), grad_norm=norm)

    def block_of(recorder, steps=10):
        """Seconds of a step, in the mean."""
        wait()
        begin = time.perf_counter()
        for _ in range(steps):
            step(recorder)
        wait()
        return (time.perf_counter() - begin) / steps

    block_of(None, 3)  # its first steps allocate
    while block_of(None, 2) * 1e3 < options.milliseconds:
        x = torch.cat([x, x])
    own.clear()
    plain, recorded = [], []
    with tempfile.TemporaryDirectory() as folder:
        for block in range(options.blocks):
            plain.append(block_of(None))
            with isoloss.record(model, optimizer, f"{folder}/{block}.h5") as recorder:
                recorder.step = timed(recorder.step)
                recorder._norms.read = timed(recorder._norms.read)
                recorded.append(block_of(recorder))
    ratios = sorted(b / a for a, b in zip(plain, recorded))
    ratio, a = statistics.median(ratios), statistics.median(plain)
    inside = statistics.median(time for time in own if time)
    print(f"{options.device}: a step takes {a * 1e3:.3f} ms: recorded {ratio:.4f} times as long "
          f"({ratios[0]:.4f} to {ratios[-1]:.4f} in {len(ratios)} pairs), within the recorder "
          f"{inside * 1e6:.0f} us, {100 * inside / a:.2f} %")
    return int(ratio > options.bar)


if __name__ == "__main__":
    sys.exit(main())
