"""Recordings of parallel layouts, against one process with the same batch.

They need FSDP2, and torch from 2.6 on: tools/dev/torch2 runs them where Debian has it.
"""

import collections
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import h5py
import numpy as np
import torch

from isoloss import __main__ as program

BINARY = os.environ["ISOLOSS_BINARY"]
HERE = pathlib.Path(__file__).resolve().parent
NEW = tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 6)
# Products of at most 48 terms, two layers deep: each sum of another order differs by some 2^-22 of
# its magnitudes, and three updates pass it on. Cancellation may take five bits.
ORDER = 2.0 ** -14


def operations(folder, step):
    """{(type, module): {(call, data rank or first expert): values}} of all ranks' files, and the
    lines of what they lack."""
    found, lacking = {}, set()
    for path in sorted(folder.glob(f"run.rank-*.operations-{step:06d}.h5")):
        calls = collections.Counter()
        with h5py.File(path) as file:
            lacking.update(file.attrs.get("unrecorded", "").splitlines())
            for name in sorted(file["operations"]):
                group = file["operations"][name]
                key = group.attrs["type"], group.attrs["module"]
                part = calls[key], group.attrs.get("first_expert", file.attrs["data_rank"])
                calls[key] += 1
                values = {name: dataset[()] for name, dataset in group.items()}
                if part in found.setdefault(key, {}):
                    raise AssertionError(f"{path}: {key} {part} stands in two files")
                found[key][part] = values
    return found, lacking


def whole(parts, ranks, is_grouped):
    """One operation of the whole batch, whose loss is a mean over all ranks' tokens."""
    found = {}
    for name in next(iter(parts.values())):
        values = [parts[part][name] for part in sorted(parts)]
        if name in ("grad_output", "grad_input", "grad_weight"):
            values = [value / ranks for value in values]
        if name in ("x", "output", "grad_output", "grad_input", "logits", "scores", "expert_ids",
                    "weights") or is_grouped:
            found[name] = np.concatenate(values)
        elif name == "grad_weight":
            found[name] = sum(values)
        else:
            found[name] = values[0]
            for value in values:
                np.testing.assert_array_equal(value, values[0], err_msg=name)
    return found


@unittest.skipUnless(NEW, f"needs torch 2.6 or newer, but this is {torch.__version__}")
class Parallel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory(prefix="isoloss-parallel-")
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = pathlib.Path(scratch.name)
        cls.done = {}
        cls.port = 20000 + os.getpid() % 20000

    def run_layout(self, layout, *options):
        """The folder of a recording, which is made once."""
        key = (layout, *options)
        if key not in self.done:
            folder = self.folder / "-".join(key)
            folder.mkdir()
            type(self).port += 1
            done = subprocess.run(
                [sys.executable, "parallel_run.py", layout, folder, str(self.port), *options],
                cwd=HERE,
                capture_output=True, text=True, check=False, timeout=900)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.done[key] = folder
        return self.done[key]

    def merged(self, folder):
        path = folder / "run.h5"
        if not path.exists():
            ranks = sorted(map(str, folder.glob("run.rank-?.h5")))
            self.assertEqual(program.main(["merge", str(path), *ranks]), 0)
        return h5py.File(path)

    def check(self, folder, recipe="fp32"):
        files = sorted(folder.glob("*.operations-*.h5"))
        done = subprocess.run([BINARY, "check-tensors", *files, "--recipe", recipe, "--json"],
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout[-3000:] + done.stderr)
        return json.loads(done.stdout)

    def assert_equal_but_for_order(self, folder, single, ranks):
        for step in (1, 2, 3):
            found, lacking = operations(folder, step)
            expected, _ = operations(single, step)
            self.assertEqual(lacking, set())
            self.assertEqual(list(found), list(expected))
            for key, parts in expected.items():
                is_grouped = key[0] == "grouped_linear"
                one = whole(parts, 1, is_grouped)
                all_ranks = whole(found[key], 1 if key[0] == "adamw" else ranks, is_grouped)
                self.assertEqual(set(all_ranks), set(one), key)
                for name, values in one.items():
                    if name == "group_ends":
                        continue
                    np.testing.assert_allclose(
                        all_ranks[name], values, rtol=0, err_msg=f"step {step}: {key} {name}",
                        atol=ORDER * float(np.abs(values).max(initial=0)))

    def assert_merges_to(self, folder, single):
        with self.merged(folder) as found, self.merged(single) as expected:
            for name in ("initial_weights_digest", "parameters", "complete"):
                self.assertEqual(found.attrs[name], expected.attrs[name], name)
            self.assertEqual(found["steps/tokens_seen"][()].tolist(),
                             expected["steps/tokens_seen"][()].tolist())
            for name in ("steps/loss_nats", "steps/grad_norm", "parameters/grad_norm"):
                np.testing.assert_allclose(found[name][()], expected[name][()], rtol=ORDER,
                                           err_msg=name)
            if "moe" in expected and len(expected["moe/step"]):
                np.testing.assert_array_equal(found["moe/tokens_per_expert"][()],
                                              expected["moe/tokens_per_expert"][()])
            digests = [dict(zip(log["tensors/names"].asstr(), log["tensors/digest"][0]))
                       for log in (found, expected)]
            # What nothing has summed yet.
            equal = [name for name in digests[0] if name.endswith("_weight")]
            self.assertGreater(len(equal), 4)
            for name in equal:
                self.assertEqual(digests[0][name], digests[1][name], name)

    def compare(self, layout, *options, ranks=1, single=()):
        folder = self.run_layout(layout, "norms", *options)
        one = self.run_layout("single", "norms", *single)
        self.check(folder)
        self.assert_equal_but_for_order(folder, one, ranks)
        self.assert_merges_to(folder, one)

    def test_fully_shard(self):
        self.compare("fsdp", ranks=2)
        self.compare("hsdp", ranks=4)

    def test_tensor_parallel(self):
        self.compare("tp")
        self.compare("tp", "sequence")

    def test_fully_shard_and_tensor_parallel(self):
        self.compare("fsdp_tp", "sequence", ranks=2)
        self.compare("fsdp_tp", ranks=2)

    def test_expert_parallel(self):
        self.compare("ep", "mixed", ranks=2, single=["mixed"])
        self.compare("ep", "mixed", "found", ranks=2, single=["mixed"])
        folder = self.run_layout("ep", "norms", "mixed")
        with h5py.File(folder / "run.rank-1.operations-000001.h5") as file:
            grouped, = [op for op in file["operations"].values()
                        if op.attrs["type"] == "grouped_linear"]
            self.assertEqual((grouped.attrs["first_expert"], grouped.attrs["experts"]), (2, 4))

    def test_data_parallel_names_have_no_prefix(self):
        folder = self.run_layout("ddp", "norms", "checkpoint")
        self.check(folder)
        self.assert_merges_to(folder, self.run_layout("single", "norms"))

    def test_what_ranks_hold_flat_is_told(self):
        found, lacking = operations(self.run_layout("fsdp1", "orig"), 1)
        self.assertEqual({kind for kind, _ in found}, {"linear"})
        self.assertEqual(len(lacking), 1)
        self.assertIn("14 trained parameters: embed.weight", next(iter(lacking)))
        self.assertIn("Use fully_shard", next(iter(lacking)))

    def test_layers_that_run_again_count_once(self):
        for way in ("checkpoint", "reentrant", "selective"):
            self.compare("fsdp", way, ranks=2)

    def test_files_tell_the_mesh_and_who_holds_what(self):
        folder = self.run_layout("fsdp_tp", "norms", "sequence")
        with h5py.File(folder / "run.rank-2.operations-000001.h5") as file:
            self.assertEqual([file.attrs[name]
                              for name in ("mesh", "coordinate", "data_rank", "data_ranks")],
                             ["dp=2 tp=2", "1 0", 1, 2])
            linear = {op.attrs["module"]: op for op in file["operations"].values()}
            self.assertEqual({name: data.attrs["placements"] for name, data in
                              linear["layers.0.down"].items()},
                             {"x": "- Shard(2)", "weight": "- Shard(1)", "output": "- Partial(sum)",
                              "grad_output": "- Replicate", "grad_input": "- Shard(2)",
                              "grad_weight": "- Shard(1)"})

    def test_compiled_training_keeps_its_bits(self):
        for layout in ("single", "fsdp"):
            for way in ("compile", "compile_linear"):
                logs = [self.merged(self.run_layout(layout, way, *more))
                        for more in ((), ("plain",))]
                self.assertEqual(*(log.attrs["final_weights_digest"] for log in logs))

    def test_compiled_layers_are_seen_at_their_borders(self):
        for layout, ranks in (("single", 1), ("fsdp", 2)):
            folder = self.run_layout(layout, "compile_linear")
            self.check(folder)
            self.assert_equal_but_for_order(folder, self.run_layout("single", "norms"), ranks)

    def test_layers_within_compiled_regions_are_told(self):
        for layout, way, count in (("single", "whole", 5), ("fsdp", "compile", 4)):
            found, lacking = operations(self.run_layout(layout, way), 1)
            self.assertEqual(sum(kind == "linear" for kind, _ in found), 5 - count)
            self.assertRegex(next(iter(lacking)),
                             f"no operation reads {count} weights.*larger regions")

    def test_steps_may_run_without_the_compiler(self):
        for layout, ranks in (("single", 1), ("fsdp", 2)):
            folder = self.run_layout(layout, "compile", "eager")
            self.check(folder)
            self.assert_equal_but_for_order(folder, self.run_layout("single", "norms"), ranks)

    def test_micro_batches_are_calls_in_order(self):
        folder = self.run_layout("fsdp", "accumulate")
        self.check(folder)
        found, _ = operations(folder, 1)
        expected, _ = operations(self.run_layout("single", "accumulate"), 1)
        for key in [key for key in expected if key[0] == "linear"]:
            one, both = (whole(ops[key], ranks, False)
                         for ops, ranks in ((expected, 1), (found, 2)))
            np.testing.assert_allclose(both["x"], one["x"], rtol=0,
                                       atol=ORDER * np.abs(one["x"]).max())

    def test_narrow_types_of_autocast(self):
        self.check(self.run_layout("fsdp", "autocast"), "bf16")
        # Weights that FSDP2 gathers and gradients that it adds up are BF16.
        self.check(self.run_layout("fsdp", "bf16"), "bf16")

    def test_a_gradient_scaler_may_skip_steps(self):
        folder = self.run_layout("fsdp", "scaler")
        expected = []
        for step in (1, 2, 3):
            with h5py.File(folder / f"run.rank-0.operations-{step:06d}.h5") as file:
                expected.append({op.attrs.get("expected") for op in file["operations"].values()
                                 if op.attrs["type"] == "adamw"})
        self.assertEqual(expected, [{None}, {"skipped"}, {None}])


if __name__ == "__main__":
    unittest.main()
