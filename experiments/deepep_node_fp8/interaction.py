#!/usr/bin/env python3
"""Does the exchange add to MXFP8's difference? The 2 x 2 of a folder of run logs.

Usage: interaction.py runs/deepep_node_fp8     (needs h5py and numpy, like Debian's python3-h5py)

Prints, in % of the baseline's mean loss over the last fifth of the steps, the mean over seeds and its 90 % interval (Student's t)
of MXFP8 - BF16 with either exchange, and of the difference of these two differences.
"""
import glob
import math
import os
import sys

import h5py
import numpy

# Quantiles 0.95 of Student's t for 1 to 30 degrees of freedom.
T95 = (6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812, 1.796, 1.782, 1.771, 1.761, 1.753,
       1.746, 1.740, 1.734, 1.729, 1.725, 1.721, 1.717, 1.714, 1.711, 1.708, 1.706, 1.703, 1.701, 1.699, 1.697)


def final_losses(folder, arm):
    """{seed: (mean training loss of the last fifth, last held-out loss)}"""
    losses = {}
    for path in glob.glob(os.path.join(folder, arm + "-seed*.h5")):
        with h5py.File(path, "r") as log:
            steps = log["steps/loss_nats"][:]
            losses[int(log.attrs["seed"])] = (steps[len(steps) * 4 // 5:].mean(), log["eval/loss_nats"][-1])
    return losses


def interval(values):
    mean = values.mean()
    half = T95[len(values) - 2] * values.std(ddof=1) / math.sqrt(len(values))
    return f"{mean:+.3f} %  [{mean - half:+.3f}, {mean + half:+.3f}]"


def main(folder):
    arms = {arm: final_losses(folder, arm) for arm in ("bf16", "mxfp8", "bf16_node", "mxfp8_node")}
    seeds = sorted(set.intersection(*(set(losses) for losses in arms.values())))
    if not 3 <= len(seeds) <= len(T95) + 1:
        sys.exit(f"{folder}: {len(seeds)} seeds have logs of all four arms, but 3 to {len(T95) + 1} are needed. "
                 "Run `isoloss run experiment.toml` first.")
    for column, name in enumerate(("training loss, last fifth", "held-out loss, end")):
        loss = {arm: numpy.array([losses[seed][column] for seed in seeds]) for arm, losses in arms.items()}
        percent = 100 / loss["bf16"].mean()
        flat = (loss["mxfp8"] - loss["bf16"]) * percent
        node = (loss["mxfp8_node"] - loss["bf16_node"]) * percent
        print(f"{name} ({len(seeds)} seeds)")
        print(f"  mxfp8 - bf16, flat            {interval(flat)}")
        print(f"  mxfp8 - bf16, node, MX rows   {interval(node)}")
        print(f"  what the exchange adds to it  {interval(node - flat)}")
        print(f"  exchange alone, bf16          {interval((loss['bf16_node'] - loss['bf16']) * percent)}")


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    main(sys.argv[1])
