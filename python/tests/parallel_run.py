"""Trains one small model under a parallel layout and records it: the other half of parallel_test.

Usage: python3 parallel_run.py LAYOUT FOLDER PORT [OPTION...]
"""

import os
import pathlib
import sys
import warnings

import torch
import torch.distributed as dist
import torch.distributed.nn
from torch import multiprocessing, nn
from torch.nn import functional

import isoloss

WIDTH, HIDDEN, VOCABULARY, EXPERTS, SEQUENCES, LENGTH, STEPS = 16, 32, 24, 4, 8, 6, 3
# Ranks along data, and along tensor parallelism.
LAYOUTS = {"single": (1, 1), "fsdp": (2, 1), "ddp": (2, 1), "hsdp": (4, 1), "tp": (1, 2),
           "fsdp_tp": (2, 2), "fsdp1": (2, 1), "ep": (2, 1), "fsdp_3": (3, 1), "dp_tp": (2, 2)}
SHAPES = {"hsdp": ((2, 2), ("replicate", "shard")), "ep": ((2,), ("ep",))}


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, HIDDEN)
        self.down = nn.Linear(HIDDEN, WIDTH, bias=False)

    def forward(self, x):
        return x + self.down(functional.gelu(self.up(self.norm(x))))


class Experts(nn.Module):
    """Of which each rank may hold some."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(EXPERTS, WIDTH, WIDTH) / WIDTH ** 0.5)

    def forward(self, x, ends):
        weight = self.weight.to_local() if hasattr(self.weight, "to_local") else self.weight
        return isoloss.grouped_linear("layers.0.experts", self.multiply, x, weight, ends)

    @staticmethod
    def multiply(x, weight, ends):
        rows = x.tensor_split(ends[:-1].tolist())
        return torch.cat([part @ w.T for part, w in zip(rows, weight)])


class ExpertsFound(Experts):
    """By their type."""

    isoloss_type = "grouped_linear"

    def forward(self, x, ends):
        weight = self.weight.to_local() if hasattr(self.weight, "to_local") else self.weight
        return self.multiply(x, weight, ends)


class MixedBlock(nn.Module):
    """Each token goes to two experts. All ranks get all tokens, and each computes
    for those of its experts."""

    def __init__(self, options):
        super().__init__()
        self.gate = nn.Linear(WIDTH, EXPERTS, bias=False)
        self.experts = ExpertsFound() if "found" in options else Experts()

    def forward(self, x):
        tokens = x.reshape(-1, WIDTH)
        logits = self.gate(tokens)
        scores = logits.softmax(-1)
        weights, ids = scores.topk(2)
        isoloss.observe("router", "layers.0.gate", logits=logits, scores=scores, expert_ids=ids,
                        weights=weights, top_k=2, score_function="softmax", normalize=0, scale=1.0)
        held = self.experts.weight
        first, count, share = 0, EXPERTS, 1
        if hasattr(held, "to_local"):
            count, share = held.to_local().shape[0], held.device_mesh.size()
            first = held.device_mesh.get_local_rank() * count
            everything = dist.nn.functional.all_gather
            tokens, weights = torch.cat(everything(tokens)), torch.cat(everything(weights))
            others = [torch.empty_like(ids) for _ in range(share)]
            dist.all_gather(others, ids)
            ids = torch.cat(others)
        places = [(ids == first + e).nonzero() for e in range(count)]
        source, slot = torch.cat(places).unbind(1)
        ends = torch.tensor([len(rows) for rows in places]).cumsum(0)
        rows = self.experts(tokens[source], ends) * weights[source, slot].unsqueeze(1)
        out = torch.zeros_like(tokens).index_add(0, source, rows)
        if share > 1:
            out = dist.nn.functional.all_reduce(out).tensor_split(share)[dist.get_rank()]
        return x + out.reshape(x.shape)


class Model(nn.Module):
    def __init__(self, options):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList([MixedBlock(options) if "mixed" in options else Block(),
                                     Block()])
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens):
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


def tensor_parallel(model, mesh, options):
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import (ColwiseParallel, PrepareModuleInput,
                                                   RowwiseParallel, SequenceParallel,
                                                   parallelize_module)
    if "sequence" not in options:
        for layer in model.layers:
            parallelize_module(layer, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
        parallelize_module(model, mesh, {"head": ColwiseParallel(output_layouts=Replicate())})
        return
    parallelize_module(model, mesh, {
        "embed": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
        "norm": SequenceParallel(),
        "head": ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate())})
    for layer in model.layers:
        parallelize_module(layer, mesh, {
            "norm": SequenceParallel(),
            "up": ColwiseParallel(input_layouts=Shard(1)),
            "down": RowwiseParallel(output_layouts=Shard(1))})


def checkpointed(layer, options):
    from torch.distributed.algorithms._checkpoint import checkpoint_wrapper as wrappers
    from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts
    if "reentrant" in options:
        return wrappers.checkpoint_wrapper(layer, wrappers.CheckpointImpl.REENTRANT)
    if "selective" not in options:
        return wrappers.checkpoint_wrapper(layer)

    def policy(_, operation, *arguments, **named):
        saved = (torch.ops.aten.mm.default, torch.ops.aten.addmm.default,
                 torch.ops.aten.clone.default)
        return (CheckpointPolicy.MUST_SAVE if operation in saved
                else CheckpointPolicy.PREFER_RECOMPUTE)
    return wrappers.checkpoint_wrapper(
        layer, context_fn=lambda: create_selective_checkpoint_contexts(policy))


def distribute(model, layout, options, mesh):
    data, tensor = LAYOUTS[layout]
    if tensor > 1:
        tensor_parallel(model, mesh["tp"], options)
    for at, layer in enumerate(model.layers):
        if {"checkpoint", "reentrant", "selective"} & set(options):
            model.layers[at] = checkpointed(layer, options)
        if "compile" in options:
            layer.compile()
    if "compile_linear" in options:
        model.layers[0].up.compile()
        model.head = torch.compile(model.head)
    if layout == "ep":
        from torch.distributed.tensor import Shard, distribute_tensor
        experts = model.layers[0].experts
        experts.weight = nn.Parameter(distribute_tensor(experts.weight.detach(), mesh, [Shard(0)]))
    if layout == "ddp":
        return nn.parallel.DistributedDataParallel(model)
    if layout == "fsdp1":
        from torch.distributed.fsdp import FullyShardedDataParallel
        return FullyShardedDataParallel(model, device_id=torch.device("cpu"),
                                        use_orig_params="orig" in options)
    if layout.startswith(("fsdp", "hsdp")):
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16 if "bf16" in options else None)
        for layer in model.layers:
            fully_shard(layer, mesh=mesh["dp"] if layout != "hsdp" else mesh, mp_policy=policy)
        fully_shard(model, mesh=mesh["dp"] if layout != "hsdp" else mesh, mp_policy=policy)
    return model


def carry_bf16():
    """Lets gloo, which knows no BF16, move its bits and add it up in FP32, as NCCL does inside."""
    def moved(function):
        def call(output_tensor, input_tensor, *arguments, **options):
            tensors = output_tensor, input_tensor
            if input_tensor.dtype == torch.bfloat16:
                tensors = [tensor.view(torch.uint8) for tensor in tensors]
            return function(*tensors, *arguments, **options)
        return call

    def added(function):
        def call(output, input, *arguments, **options):  # pylint: disable=redefined-builtin
            total = torch.empty_like(output, dtype=torch.float32)
            function(total, input.float(), *arguments, **{**options, "async_op": False})
            output.copy_(total)
        return call

    # Names of torch up to 2.13, and from 2.14 on.
    for wrap, names in ((moved, ("all_gather_into_tensor", "all_gather_single")),
                        (added, ("reduce_scatter_tensor", "reduce_scatter_single"))):
        for name in names:
            if hasattr(dist, name):
                setattr(dist, name, wrap(getattr(dist, name)))


def batch(step):
    draw = torch.Generator().manual_seed(step)
    return torch.randint(VOCABULARY, (SEQUENCES, LENGTH + 1), generator=draw)


def train(rank, layout, folder, port, options):
    data, tensor = LAYOUTS[layout]
    world = data * tensor
    mesh = None
    if world > 1:
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank),
                          WORLD_SIZE=str(world))
        dist.init_process_group("gloo", rank=rank, world_size=world)
        carry_bf16()
        from torch.distributed.device_mesh import init_device_mesh
        shape, names = SHAPES.get(layout, ((data, tensor), ("dp", "tp")))
        mesh = init_device_mesh("cpu", shape, mesh_dim_names=names)
    torch.manual_seed(1)
    model = distribute(Model(options), layout, options, mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, foreach="foreach" in options)
    scaler = torch.amp.GradScaler("cpu", enabled="scaler" in options)
    micro = 2 if "accumulate" in options else 1
    own = rank // tensor
    dump = [] if "plain" in options else [1, 2, 3]
    losses = []
    settings = {"dump": dump, "digests": dump, "statistics": dump, "eager": "eager" in options,
                "parameters": "norms" in options}
    called = torch.compile(model) if {"whole", "unseen"} & set(options) else model
    model = called if "whole" in options else model
    with isoloss.record(model, optimizer, folder / "run.h5", steps=STEPS, **settings) as recorder:
        for step in range(1, STEPS + 1):
            optimizer.zero_grad()
            rows = batch(step).tensor_split(micro)
            total = 0.0
            for part in rows:
                tokens = part.tensor_split(data)[own]
                with torch.autocast("cpu", torch.bfloat16, enabled="autocast" in options):
                    logits = called(tokens[:, :-1])
                loss = functional.cross_entropy(logits.flatten(0, 1).float(),
                                                tokens[:, 1:].flatten())
                factor = 1e38 if "scaler" in options and step == 2 else 1
                scaler.scale(loss / micro * factor).backward()
                total += float(loss.detach()) / micro
            for parameter in model.parameters() if layout == "ep" else ():
                if not hasattr(parameter, "to_local"):
                    dist.all_reduce(parameter.grad)
                (parameter.grad.to_local() if hasattr(parameter, "to_local")
                 else parameter.grad).div_(world)
            told = {}
            if "clip" in options:
                told["grad_norm"] = nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            scaler.step(optimizer)
            scaler.update()
            losses.append(total)
            recorder.step(total, tokens=SEQUENCES * LENGTH // data, **told)
    torch.save({"losses": losses}, folder / f"rank-{rank}.pt")
    if world > 1:
        dist.destroy_process_group()


def main():
    layout, folder, port, *options = sys.argv[1:]
    data, tensor = LAYOUTS[layout]
    folder = pathlib.Path(folder)
    arguments = (layout, folder, int(port), options)
    if data * tensor == 1:
        train(0, *arguments)
    else:
        multiprocessing.spawn(train, arguments, data * tensor)


if __name__ == "__main__":
    main()
