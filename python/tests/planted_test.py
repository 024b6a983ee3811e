"""Mistakes of planted_trainer are named, and never end with two exit codes of 0, where FSDP2
shards a model whose layers are compiled and computed again, and where ranks replicate it.

It needs a torch with FP8 types and FSDP2. ISOLOSS_ALL_MISTAKES plants all.
"""

import contextlib
import io
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import unittest

import torch
from torch import multiprocessing

if not hasattr(torch, "compiler") or not hasattr(torch.compiler, "set_stance"):
    print(f"skipped: torch {torch.__version__}. Install 2.6 or newer.")
    sys.exit(77)

import planted_trainer
from isoloss import __main__ as program

BINARY = os.environ["ISOLOSS_BINARY"]
SITE = r"layers\.0\.feed_forward\.w1"
# What check-tensors or merge say of each.
FOUND = {
    "other_scale": f"{SITE}.*fprop .*result was multiplied by",
    "stale_scale": rf"{SITE}.*scale_of_call_before\.fprop_x",
    "transposed_scale": f"{SITE}.*dgrad .*result was multiplied by",
    "quantised_twice": rf"{SITE}.*quantized_twice\.wgrad_x",
    "wgrad_unquantised": rf"{SITE}.*wgrad .*unquantized\.both",
    "dgrad_unquantised": rf"{SITE}.*dgrad .*unquantized\.weight",
    "other_gradient_format": rf"{SITE}.*element_e(4m3|5m2)\.dgrad_dy",
    "saturate_at_240": rf"{SITE}.*clamp_240\.fprop_x",
    "truncated_codes": rf"{SITE}.*truncated\.fprop_x",
    "scale_of_a_shard": rf"{SITE}.*scale_of_(part_2_of_2|first_half)\S*\.fprop_w",
    "halved_scale": rf"{SITE}.*scale_minus_1\.fprop_x",
    "stale_weight": rf"{SITE}.*stale\.fprop_w",
    "stale_weight_in_dgrad": rf"{SITE}.*stale\.dgrad_w",
    "stale_activation": rf"{SITE}.*stale_call\.wgrad_x",
    "bf16_sums": f"{SITE}.*sums_cut_off",
    "fp8_output": rf"{SITE}.*fprop .*\(output_e4m3\)",
    "next_expert": r"experts\.w1.*experts_rotated",
    "unweighted_combine": "weight_missing",
    "weighted_twice": "weights_twice",
    "unbiased_choice": "bias_ignored",
    "softmax_scores": r"router \(router\).*scores .*\(softmax\)",
    "dropped_row": "rows_zero",
    "no_shared_expert": "addend_missing",
    "one_expert": "k_off",
    "router_seen_twice": "loads of router layers.1.moe.router .*add up to",
    "loss_over_ignored": "mean_over_ignored",
    "scaled_twice": r"a label counts 0\.5 times in the gradient",
    "unscaled": "a label counts 2 times in the gradient",
    "last_part_only": "no multiple of what its layer's backward passes gave",
    "first_part_twice": "no multiple of what its layer's backward passes gave",
    "gradients_kept": "no multiple of what its layer's backward passes gave",
    "lost_all_reduce": "replicas part here|ranks parted",
    "summed_gradients": "a label counts 2 times in the gradient",
    "unsynchronised": "replicas part here|that of rank 0 alone",
    "norm_of_rank": "grad_norm is .* on rank 0 and .* on rank 1",
    "clipped_by_shard": "no multiple of what its layer's backward passes gave",
    "equal_batches": "ranks 0 and 1 read the same batch",
    "other_seed": "digest of the initial weights",
    "other_rate": r"lr is 0\.01 on rank 0 and 0\.005 on rank 1",
    "bf16_masters": "other_weight|rounded_between_steps",
    "lost_moments": "moments_lost_between_steps",
    "lost_count": "count_began_anew",
    "decayed_norms": r"norm\S*\.weight \(adamw\).*decay_off",
    "no_decay": "decay_missing",
    "frozen_layer": r"did not change, though others did: no optimizer has it.*layers\.0\.attention\.wq",
    "two_updates": r"other_weight|\(adamw\)",
    "coupled_decay": "decay_in_gradient",
    "swapped_weights": "other_weight",
}
# Of which ranks' files together tell.
OF_RANKS = ("scale_of_a_shard", "lost_all_reduce", "unsynchronised", "frozen_layer")
# Half of a model is no whole one: of initial weights each rank has a part.
REPLICATED = ("lost_all_reduce", "norm_of_rank", "other_seed")
# `fsdp` compiles layers, and runs them eager in steps that are dumped; `regions` compiles linear
# layers, and records at their borders.
LAYOUTS = ("fsdp", "regions")
RECIPES = ("te_fp8_current", "fp8_rowwise")
USUAL = (("te_fp8_current", None, "fsdp"), ("fp8_rowwise", None, "regions"),
         ("te_fp8_current", "scaled_twice", "fsdp"), ("fp8_rowwise", "last_part_only", "regions"),
         ("te_fp8_current", "clipped_by_shard", "regions"), ("te_fp8_current", "stale_weight", "fsdp"),
         ("fp8_rowwise", "fp8_output", "regions"), ("fp8_rowwise", "equal_batches", "replicated"))


def chosen():
    if not os.environ.get("ISOLOSS_ALL_MISTAKES"):
        return USUAL
    found = [(recipe, None, layout) for recipe in RECIPES for layout in ("replicated", *LAYOUTS)]
    for place, name in enumerate(planted_trainer.MISTAKES):
        layout = "replicated" if name in REPLICATED else LAYOUTS[place % 2]
        found.append((RECIPES[place // 2 % 2], name, layout))
    return found


class Planted(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="isoloss-planted-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        multiprocessing.spawn(planted_trainer.run, args=(2, port, cls.folder, chosen()), nprocs=2)

    def judge(self, recipe, mistake, layout):
        """Exit codes of check-tensors and merge, and all that they say."""
        path = self.folder / f"{recipe}-{mistake}-{layout}"
        ranks = "*" if mistake in (None, *OF_RANKS) else "rank-0*"
        files = sorted(path.glob(f"run.{ranks}operations*"))
        done = subprocess.run([BINARY, "check-tensors", *files, "--recipe", recipe], text=True,
                              capture_output=True, check=False)
        said = io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            code = program.main(["merge", str(path / "merged.h5"),
                                 *(str(path / f"run.rank-{rank}.h5") for rank in range(2))])
        return done.returncode, code, done.stdout + done.stderr + said.getvalue()

    def test_each_mistake_is_named_and_none_where_there_is_none(self):
        for recipe, mistake, layout in chosen():
            with self.subTest(recipe=recipe, mistake=mistake, layout=layout):
                found, merged, said = self.judge(recipe, mistake, layout)
                if mistake is None:
                    self.assertEqual((found, merged), (0, 0), said)
                    self.assertNotIn("isoloss: ", said)
                else:
                    self.assertRegex(re.sub(r"\s+", " ", said), FOUND[mistake])
                    self.assertNotEqual((found, merged), (0, 0), said)

    def test_the_table_holds_all(self):
        self.assertEqual(set(FOUND), set(planted_trainer.MISTAKES))


if __name__ == "__main__":
    unittest.main()
