"""isoloss' own FP32 run and the same run of the PyTorch model, as the recorder
records it, compared by the same commands."""

import dataclasses
import json
import math
import os
import pathlib
import random
import subprocess
import tempfile
import unittest
from unittest import mock

import h5py
import numpy as np
import torch

import isoloss
from reference_model import Batch, Trainer, Transformer, lr_factor
from reference_model_test import REFERENCE, config_of

BINARY = os.environ["ISOLOSS_BINARY"]
PASS, FAIL, INVALID, INCONCLUSIVE = 0, 1, 3, 4

# S1: sigmoid scores, one query matrix. S2: compressed queries, YaRN, groups of experts, two MoE
# layers. S4: softmax scores that are not normalised, YaRN, embedding and head in one.
MODELS = ("S1", "S2", "S4")
STEPS, SEQUENCES, LENGTH = 12, 3, 24
TRAIN = {"lr": 4e-3, "clip_norm": 1.0, "weight_decay": 0.1, "load_balance_coeff": 0.01,
         "eps": 1e-8}
WARMUP, FLOOR, BETAS = 3, 0.5, (0.9, 0.95)

# One FP32 rounding loses up to 2^-24 of a value, and n of them in any order about sqrt(n) times
# that. No way through a step has more than 40 operations (three layers, forward and backward), and
# no sum more than 256 terms (the vocabulary).
STEP_ONE = math.sqrt(40 * 256) * 2.0 ** -24
# Each step adds as much to the difference of the weights.
CURVES = STEPS * STEP_ONE
# An update is a difference of weights, which are rounded to one last place, 2^-21 of the largest
# (below 8). Its own largest element is about the learning rate.
UPDATES = 2.0 ** -21 / (FLOOR * TRAIN["lr"])


def corpus(vocabulary):
    """Tokens that mostly follow from the one before."""
    draw = random.Random(vocabulary)
    tokens = [0]
    for _ in range(5999):
        tokens.append((5 * tokens[-1] + min(draw.getrandbits(8).bit_length(), 7) * 3) % vocabulary)
    return np.array(tokens, dtype="<u2")


def experiment(config):
    def section(values):
        return "\n".join(f"{key} = {json.dumps(value)}" for key, value in values.items())
    return f"""\
name = "reference"
[model]
{section(dataclasses.asdict(config))}
[data]
source = "tokens"
paths = ["corpus.bin"]
sequence_length = {LENGTH}
[train]
{section(TRAIN)}
beta1 = {BETAS[0]}
beta2 = {BETAS[1]}
steps = {STEPS}
sequences_per_batch = {SEQUENCES}
warmup_steps = {WARMUP}
min_lr_factor = {FLOOR}
seeds = [1]
[arms.fp32]
recipe = "fp32"
[log]
eval_every = {STEPS}
eval_sequences = 1
statistics_every = {STEPS}
digests_every = {STEPS}
dump_tensors = ["_weight", "tok_embeddings_output"]
dump_steps = {list(range(1, STEPS + 1))}
"""


def run(*arguments):
    done = subprocess.run([BINARY, *map(str, arguments)], stdin=subprocess.DEVNULL, text=True,
                          capture_output=True, check=False)
    return done.returncode, done.stdout, done.stderr


def module_of(parameter):
    """As isoloss names it in tensors: without the letters of experts' axes."""
    name = parameter.replace(".inner_experts", "").removesuffix(".weight")
    return name.removesuffix("_EFD").removesuffix("_EDF")


class OwnRun:
    """A run of isoloss: its log, its first weights and the batches of its steps."""

    def __init__(self, folder, name):
        with h5py.File(REFERENCE / f"{name}.h5") as file:
            self.config = config_of(file.attrs)
        self.name, self.folder = name, folder / name
        self.folder.mkdir()
        tokens = corpus(self.config.vocab_size)
        tokens.tofile(self.folder / "corpus.bin")
        (self.folder / "own.toml").write_text(experiment(self.config), encoding="utf-8")
        code, _, error = run("run", self.folder / "own.toml", "--out", self.folder / "own")
        if code != PASS:
            raise AssertionError(error)
        self.log = self.folder / "own/fp32-seed1.h5"
        self.weights = {}
        for parameter, values in Transformer(self.config).named_parameters():
            held = self.dumped(1, f"{module_of(parameter)}_weight")
            self.weights[parameter] = held.reshape(values.shape)
        self.batches = [self.batch(step, torch.from_numpy(tokens.astype(np.int64)))
                        for step in range(1, STEPS + 1)]

    def dumped(self, step, tensor):
        path = self.folder / f"own/dumps/fp32-seed1.dump-{step:06d}.h5"
        with h5py.File(path) as dump:
            return torch.from_numpy(dump[f"{tensor}/values"][()])

    def batch(self, step, tokens):
        """Each sequence is found in the corpus, which has the label of its last token."""
        rows = self.dumped(step, "tok_embeddings_output")
        weight = self.dumped(step, "tok_embeddings_weight")
        found = (rows[:, None] == weight).all(-1).long().argmax(1).reshape(SEQUENCES, LENGTH)
        windows = tokens[:-1].unfold(0, LENGTH, 1)
        labels = []
        for sequence in found:
            begin, = (windows == sequence).all(1).nonzero().flatten().tolist()
            labels.append(tokens[begin + 1:begin + LENGTH + 1])
        return Batch(found.flatten(), torch.cat(labels), torch.arange(LENGTH).repeat(SEQUENCES))

    def train(self, path, steps=STEPS, changes=(), settings=(), **options):
        """The model of PyTorch on the same batches, but for `changes` of the
        model and `settings` of the training."""
        model = Transformer(dataclasses.replace(self.config, **dict(changes)))
        model.load(self.weights)
        trainer = Trainer(model, **{
            **TRAIN, "betas": BETAS,
            "factor": lambda step: lr_factor(step, STEPS, WARMUP, floor=FLOOR), **dict(settings)})
        with isoloss.record(model, trainer.optimizer, path, steps=steps, parameters=True,
                            arm="fp32", recipe="fp32", seed=1, **options) as recorder:
            for batch in self.batches[:steps]:
                trainer.step(batch, recorder)

    def compare(self, path, tolerance=None, other=None):
        code, text, error = run("compare", other or self.log, path, "--json",
                                *([] if tolerance is None else ["--tolerance", tolerance]))
        if not text:
            raise AssertionError(error)
        return code, json.loads(text)


class ReferenceRun(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="isoloss-reference-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.runs = []
        for name in MODELS:
            own = OwnRun(cls.folder, name)
            own.curves, own.tensors = own.folder / "curves.h5", own.folder / "tensors.h5"
            own.train(own.curves)
            own.train(own.tensors, statistics=(1, STEPS), digests=(1, STEPS), dump=(2,))
            cls.runs.append(own)

    def each_run(self):
        for own in self.runs:
            yield self.subTest(model=own.name), own

    def names(self, path, group):
        with h5py.File(path) as log:
            return list(log[f"{group}/names"].asstr())

    def test_names_are_those_of_isoloss_and_so_is_the_order(self):
        for case, own in self.each_run():
            with case:
                self.assertEqual(self.names(own.tensors, "parameters"),
                                 self.names(own.log, "parameters"))
                found, known = self.names(own.tensors, "tensors"), self.names(own.log, "tensors")
                # A head that is the embedding has no weight of its own in isoloss.
                other = {"lm_head_weight", "lm_head_wgrad"} if own.config.tied_embeddings else set()
                self.assertEqual(set(found) - set(known), other)
                with h5py.File(own.log) as log:
                    phases = dict(zip(log["graph/name"].asstr(), log["graph/phase"].asstr()))
                order = [phases[name] for name in found if name in phases]
                self.assertEqual(order, sorted(order, key=("forward", "backward",
                                                           "optimizer").index))
                # All linear layers and all updates are there.
                missing = {name for name in known if name not in found}
                self.assertFalse({name for name in missing if name.endswith(
                    ("_activation", "_dgrad", "_parameter", "_update"))})

    def test_step_one_differs_by_its_roundings(self):
        for case, own in self.each_run():
            with case:
                code, exact = own.compare(own.tensors)
                self.assertEqual(code, FAIL)
                first = exact["first_difference"]
                weights = {name for name in self.names(own.tensors, "tensors")
                           if name.endswith("_weight")} & set(self.names(own.log, "tensors"))
                # Digests of equal weights are equal; what is computed of them is rounded elsewhere.
                self.assertEqual((first["step"], first["quantity"]), (1, "digest"))
                self.assertGreaterEqual(first["agreeing_tensors"], len(weights))
                _, rounded = own.compare(own.tensors, STEP_ONE)
                first = rounded["first_difference"]
                # Of the first step, updates alone may differ by more.
                self.assertTrue(first is None or first["step"] > 1 or
                                first["phase"] == "optimizer", first)

    def test_the_whole_run_differs_by_its_roundings(self):
        for case, own in self.each_run():
            with case:
                for path, tolerance in ((own.curves, CURVES), (own.tensors, UPDATES)):
                    code, found = own.compare(path, tolerance)
                    self.assertEqual((code, found["first_difference"]), (PASS, None))
                    self.assertEqual(found["common_steps"], STEPS)
                    self.assertEqual(found["other_extents"], [])
                self.assertEqual(found["tensor_steps"], [1, STEPS])
                with h5py.File(own.log) as a, h5py.File(own.curves) as b:
                    for name in ("steps/tokens_seen", "moe/tokens_per_expert",
                                 "steps/dead_experts"):
                        np.testing.assert_array_equal(a[name], b[name], name)
                    # The schedule is computed in FP64 on both sides.
                    np.testing.assert_allclose(b["steps/lr"], a["steps/lr"], rtol=2.0 ** -50)

    def test_recording_tensors_changes_no_bit(self):
        for case, own in self.each_run():
            with case:
                code, found = own.compare(own.tensors, other=own.curves)
                self.assertEqual((code, found["first_difference"]), (PASS, None))

    def test_check_tensors_explains_every_element(self):
        for case, own in self.each_run():
            # Operation files have no groups of experts.
            if own.config.num_expert_groups:
                continue
            with case:
                code, text, error = run(
                    "check-tensors", own.folder / "tensors.rank-0.operations-000002.h5",
                    "--recipe", "fp32", "--json")
                self.assertEqual(code, PASS, text + error)
                findings = json.loads(text)["findings"]
                kinds = {finding["type"] for finding in findings}
                self.assertEqual(kinds, {"linear", "grouped_linear", "router", "dispatch",
                                         "combine", "loss", "adamw"})

    def test_the_gate_refuses_to_judge_one_by_the_other(self):
        # They are runs of two programs, whatever their figures say.
        own = self.runs[0]
        code, text, _ = run("gate", own.curves, "--against", own.log)
        self.assertEqual(code, INVALID, text)
        self.assertIn("must be recorded and equal", " ".join(text.split()))

    def test_the_gate_judges_their_printed_losses(self):
        own = self.runs[0]
        lines = []
        for name, log in (("own", own.log), ("recorded", own.curves)):
            lines.append(own.folder / f"{name}.log")
            with h5py.File(log) as h5:
                lines[-1].write_text("".join(
                    f"[titan] 2026-01-01 00:00:00,000 - root - INFO - step: {step:2}  "
                    f"loss: {loss:8.5f}  grad_norm: {norm:7.4f}\n" for step, loss, norm in
                    zip(*(h5["steps"][name] for name in ("step", "loss_nats", "grad_norm")))))
        # Five decimals are equal but where rounding falls between two of them.
        code, text, _ = run("gate", lines[1], "--against", lines[0])
        self.assertIn(code, (PASS, INCONCLUSIVE), text)

    # ---- mistakes --------------------------------------------------------------

    def first_of(self, own, tolerance, **options):
        path = self.folder / "mistake.h5"
        path.unlink(missing_ok=True)
        own.train(path, **options)
        code, found = own.compare(path, tolerance)
        self.assertEqual(code, FAIL)
        return found["first_difference"]

    def test_a_mistake_in_the_model_is_found_in_its_first_step(self):
        s1, s2, s4 = self.runs
        # What the router decides shows where the next linear layer reads it.
        for own, changes, where in (
                (s1, {"rope_theta": 500000.0}, "layers.0.attention.wo_activation"),
                (s1, {"norm_eps": 1e-6}, "layers.0.attention"),
                (s1, {"route_scale": 2.0}, "lm_head"), (s1, {"route_norm": False}, "lm_head"),
                (s1, {"score_function": "softmax"}, "lm_head"),
                (s2, {"mscale": 0.7}, "layers.0.attention.wo_activation"),
                (s2, {"yarn": False}, "layers.0.attention.wo_activation"),
                (s2, {"num_limited_groups": 4}, "layers.1.moe.routed_experts"),
                (s4, {"route_norm": True}, "lm_head")):
            with self.subTest(model=own.name, changes=changes):
                first = self.first_of(own, STEP_ONE, steps=1, statistics=(1,), changes=changes)
                self.assertEqual(first["step"], 1)
                self.assertIn(where, first["name"])

    def test_a_mistake_in_the_training_is_found(self):
        s1, s2, _ = self.runs
        def early(step):
            return lr_factor(step + 1, STEPS + 1, WARMUP, floor=FLOOR)
        # Of most, the first step's update goes wrong, and the second step shows it.
        for own, settings, step in (
                (s1, {"factor": early}, 2), (s1, {"weight_decay": 0.0}, 2),
                (s1, {"betas": (0.9, 0.999)}, 3), (s1, {"eps": 1e-6}, 2),
                (s2, {"clip_norm": 1e9}, 2), (s2, {"load_balance_coeff": -0.01}, 2)):
            with self.subTest(model=own.name, settings=settings):
                self.assertEqual(self.first_of(own, CURVES, settings=settings)["step"], step)

    def test_a_definition_of_its_own_would_be_found(self):
        own = self.runs[0]
        changes = (
            # Norms of gradients as the optimizer reads them, clipped.
            ("isoloss.run_log._clipped", lambda row: 1.0, {}, "grad_norm"),
            # Gradients of a layer's input by this layer alone.
            ("isoloss.step_tensors._dgrads", lambda products, _: {
                place: op.tensors["grad_input"] for place, op in enumerate(products)
                if "grad_input" in op.tensors}, {"steps": 1, "statistics": (1,)}, "l2_norm"))
        for target, function, options, quantity in changes:
            with self.subTest(target=target), mock.patch(target, function):
                first = self.first_of(own, CURVES, **options)
                self.assertEqual(first["quantity"], quantity)
                self.assertTrue(first["name"])


if __name__ == "__main__":
    unittest.main()
