"""docs/tasks/record-pytorch.md: its lines for torchtitan and Megatron-Core, in the
smallest loops that call and return what theirs do."""

import os
import pathlib
import re
import sys
import types
import unittest
import warnings
from unittest import mock

import h5py
import torch
from torch.nn import functional

import isoloss
from isoloss import run_log
from operation_check import wrong_of
from recorder_test import Case, main

DOCUMENT = pathlib.Path(__file__).resolve().parents[2] / "docs/tasks/record-pytorch.md"
IGNORED, STEPS, PARTS, CLIP = -100, 3, 2, 0.1


def run_block(word, **modules):
    """Runs the document's block that has the word, with these modules there. Its
    run is no long one, so that step 2 is dumped."""
    blocks = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)
    text, = (block for block in blocks if word in block)
    names = {}
    with mock.patch.dict(sys.modules, modules):
        exec(compile(text.replace("dump=[1, 100]", "dump=[2]"), str(DOCUMENT), "exec"), names)
    return names


def module(name, **values):
    found = types.ModuleType(name)
    found.__dict__.update(values)
    return found


def make_model():
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(8, 6), torch.nn.GELU(), torch.nn.Linear(6, 5))


def part(place):
    draw = torch.Generator().manual_seed(place)
    labels = torch.randint(5, (6,), generator=draw)
    labels[:place % 4] = IGNORED
    return torch.randn(6, 8, generator=draw), labels


def summed_loss(model, x, labels):
    return functional.cross_entropy(model(x).float(), labels, ignore_index=IGNORED, reduction="sum")


class TitanTrainer:
    """Steps of torchtitan's, without what it logs."""

    def __init__(self):
        model = make_model()
        halves = [list(layer.parameters()) for layer in (model[0], model[2])]
        self.model_parts, self.step, self.gradient_accumulation_steps = [model], 0, PARTS
        # A container with an optimizer for each kind of parameter.
        self.optimizers = types.SimpleNamespace(
            optimizers=[torch.optim.AdamW(half, lr=0.01) for half in halves])
        self.losses, self.norms, self.closed = [], [], False

    def forward_backward_step(self, *, input_dict, labels, global_valid_tokens):
        loss = summed_loss(self.model_parts[0], input_dict["input"], labels) / global_valid_tokens
        loss.backward()
        return loss

    def train_step(self, data_iterator):
        parts = [next(data_iterator) for _ in range(self.gradient_accumulation_steps)]
        valid = sum((labels != IGNORED).sum() for _, labels in parts)
        for optimizer in self.optimizers.optimizers:
            optimizer.zero_grad()
        losses = [self.forward_backward_step(input_dict=inputs, labels=labels,
                                             global_valid_tokens=valid) for inputs, labels in parts]
        self.losses.append((float(sum(losses)), int(valid)))
        self.norms.append(float(torch.nn.utils.clip_grad_norm_(
            self.model_parts[0].parameters(), CLIP)))
        for optimizer in self.optimizers.optimizers:
            optimizer.step()

    def train(self):
        data = (({"input": x}, labels) for x, labels in map(part, range(STEPS * PARTS)))
        while self.step < STEPS:
            self.step += 1
            self.train_step(data)

    def close(self):
        self.closed = True


class Masters:
    """Megatron-Core's optimizer of BF16 weights, whose FP32 masters another one
    updates."""

    def __init__(self, parameters):
        masters = []
        for parameter in parameters:
            parameter.main_param = parameter.detach().clone().float()
            masters.append(parameter.main_param)
        self.parameters, self.optimizer = parameters, torch.optim.AdamW(masters, lr=0.01)

    @property
    def param_groups(self):
        return self.optimizer.param_groups

    def prepare_grads(self):
        for parameter in self.parameters:
            parameter.main_param.grad, parameter.grad = parameter.grad.float(), None

    def norm(self):
        return torch.stack([p.main_param.grad.norm() for p in self.parameters]).norm()

    def clip_and_step(self, norm):
        for parameter in self.parameters:
            parameter.main_param.grad *= min(1.0, CLIP / (float(norm) + 1e-6))
        self.optimizer.step()
        for parameter in self.parameters:
            parameter.data.copy_(parameter.main_param)


class Chain:
    def __init__(self, chained_optimizers):
        self.chained_optimizers = chained_optimizers

    @property
    def optimizer(self):
        assert len(self.chained_optimizers) == 1
        return self.chained_optimizers[0].optimizer

    @property
    def param_groups(self):
        return [group for part in self.chained_optimizers for group in part.param_groups]

    def step(self):
        """All parts clip by the norm of all of them."""
        for part in self.chained_optimizers:
            part.prepare_grads()
        norm = torch.stack([part.norm() for part in self.chained_optimizers]).norm()
        for part in self.chained_optimizers:
            part.clip_and_step(norm)
        return True, float(norm), 0


def megatron_step(forward_step, data, model, optimizer, scheduler, config, schedule):
    """One of its steps: losses, whether it was skipped, three about checkpoints and
    exits, the norm, zeros, and a logit."""
    parts = [next(data) for _ in range(PARTS)]
    valid = sum((labels != IGNORED).sum() for _, labels in parts)
    sums = []
    for x, labels in parts:
        loss = summed_loss(model[0].module, x.bfloat16(), labels)
        (loss / valid).backward()
        sums.append(loss.detach())
    _, norm, zeros = optimizer.step()
    for group in optimizer.param_groups:  # its scheduler, within the step
        group["lr"] /= 2
    return {"lm loss": sum(sums) / valid}, 0, False, False, 0, norm, zeros, 0


class Loops(Case):
    def setUp(self):
        super().setUp()
        before = os.getcwd()
        self.addCleanup(os.chdir, before)
        os.chdir(self.folder)

    def updates_of(self, path):
        # BF16 sums of an old torch are rounded more than once.
        self.assertFalse([found for found in wrong_of(path) if found[0] == "adamw"])
        with h5py.File(path) as file:
            return [op.attrs["module"] for op in file["operations"].values()
                    if op.attrs["type"] == "adamw"]

    def test_torchtitan(self):
        names = run_block("RecordedTrainer", **{
            "torchtitan": module("torchtitan"),
            "torchtitan.components": module("torchtitan.components"),
            "torchtitan.components.loss": module("torchtitan.components.loss",
                                                 IGNORE_INDEX=IGNORED),
            "torchtitan.trainer": module("torchtitan.trainer", Trainer=TitanTrainer)})
        trainer = names["RecordedTrainer"]()
        trainer.train()
        trainer.close()

        self.assertTrue(trainer.closed)
        with h5py.File(self.path) as log:
            self.assertTrue(log.attrs["complete"])
            # Both are FP32 sums and quotients of a few numbers.
            for name, place, told in (("loss_nats", 0, trainer.losses),
                                      ("grad_norm", None, trainer.norms)):
                self.assertEqual(len(log["steps"][name]), STEPS)
                for found, known in zip(log["steps"][name], told):
                    known = known if place is None else known[place]
                    self.assertAlmostEqual(found, known, delta=2.0 ** -20 * known)
            tokens = [tokens for _, tokens in trainer.losses]
            self.assertEqual(list(log["steps/tokens_seen"]),
                             [sum(tokens[:step + 1]) for step in range(STEPS)])
            self.assertGreater(min(trainer.norms), 1.1 * CLIP)
        self.assertEqual(self.updates_of("run.rank-0.operations-000002.h5"),
                         ["0.weight", "0.bias", "2.weight", "2.bias"])

    def test_megatron_core(self):
        training = module("megatron.training.training", train_step=megatron_step,
                          unwrap_model=lambda model: [chunk.module for chunk in model])
        arguments = types.SimpleNamespace(iteration=0, micro_batch_size=1, seq_length=6, seed=4)
        run_block("megatron", **{
            "megatron": module("megatron"),
            "megatron.core": module("megatron.core"),
            "megatron.core.num_microbatches_calculator": module(
                "calculator", get_num_microbatches=lambda: PARTS),
            "megatron.training": module("megatron.training", training=training,
                                        get_args=lambda: arguments)})
        model = make_model().bfloat16()
        chunks = [types.SimpleNamespace(module=model)]
        optimizer = Chain([Masters(list(layer.parameters())) for layer in (model[0], model[2])])
        data, told = map(part, range(STEPS * PARTS)), []
        with warnings.catch_warnings(record=True) as caught:
            for step in range(STEPS):
                arguments.iteration = step
                told.append(training.train_step(None, data, chunks, optimizer, None, None, None))
        self.assertFalse([str(each.message) for each in caught if "gradient" in str(each.message)])

        journal = self.path.with_suffix(".journal")
        self.assertEqual(main(["recover", str(journal), str(self.path)]), 0)
        rows = [row for row in run_log.read_rows(self.path) if row["row"] == "step"]
        self.assertEqual([row["loss"] for row in rows], [float(row[0]["lm loss"]) for row in told])
        self.assertEqual([row["grad_norm"] for row in rows], [row[5] for row in told])
        self.assertEqual([row["lr"] for row in rows], [0.01 / 2 ** step for step in range(STEPS)])
        self.assertEqual([row["tokens"] for row in rows], [12] * STEPS)
        path = "run.rank-0.operations-000002.h5"
        self.assertEqual(len(self.updates_of(path)), 4)
        with h5py.File(path) as file:
            held = {name: [op[name].attrs["dtype"] for op in file["operations"].values()
                           if name in op]
                    for name in ("weight", "parameter_after")}
        self.assertEqual(held, {"weight": ["bfloat16"] * 2 * PARTS,
                                "parameter_after": ["float32"] * 4})


if __name__ == "__main__":
    unittest.main()
