"""Trains one small model under a parallel layout and records it: the other half of parallel_test.

Usage: python3 parallel_run.py LAYOUT FOLDER PORT [OPTION...]
"""

import os
import pathlib
import sys
import warnings

import torch
import torch.distributed as dist
from torch import multiprocessing, nn
from torch.nn import functional

import isoloss

WIDTH, HIDDEN, VOCABULARY, SEQUENCES, LENGTH, STEPS = 16, 32, 24, 8, 6, 3
# Ranks along data, and along tensor parallelism.
LAYOUTS = {"single": (1, 1), "fsdp": (2, 1), "ddp": (2, 1), "hsdp": (4, 1), "tp": (1, 2), "fsdp_tp": (2, 2),
           "fsdp1": (2, 1), "fsdp_3": (3, 1), "dp_tp": (2, 2)}


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, HIDDEN)
        self.down = nn.Linear(HIDDEN, WIDTH, bias=False)

    def forward(self, x):
        return x + self.down(functional.gelu(self.up(self.norm(x))))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList([Block(), Block()])
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens):
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


def tensor_parallel(model, mesh, options):
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import (ColwiseParallel, PrepareModuleInput, RowwiseParallel,
                                                   SequenceParallel, parallelize_module)
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


def distribute(model, layout, options, mesh):
    data, tensor = LAYOUTS[layout]
    if tensor > 1:
        tensor_parallel(model, mesh["tp"], options)
    for at, layer in enumerate(model.layers):
        if "checkpoint" in options:
            from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
            model.layers[at] = checkpoint_wrapper(layer)
        if "compile" in options:
            layer.compile()
    if "compile_linear" in options:
        model.layers[0].up.compile()
        model.head = torch.compile(model.head)
    if layout == "ddp":
        return nn.parallel.DistributedDataParallel(model)
    if layout == "fsdp1":
        from torch.distributed.fsdp import FullyShardedDataParallel
        return FullyShardedDataParallel(model, device_id=torch.device("cpu"),
                                        use_orig_params="orig" in options)
    if layout.startswith(("fsdp", "hsdp")):
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16) if "bf16" in options else MixedPrecisionPolicy()
        for layer in model.layers:
            fully_shard(layer, mesh=mesh["dp"] if layout != "hsdp" else mesh, mp_policy=policy)
        fully_shard(model, mesh=mesh["dp"] if layout != "hsdp" else mesh, mp_policy=policy)
    return model


def batch(step):
    draw = torch.Generator().manual_seed(step)
    return torch.randint(VOCABULARY, (SEQUENCES, LENGTH + 1), generator=draw)


def train(rank, layout, folder, port, options):
    data, tensor = LAYOUTS[layout]
    world = data * tensor
    mesh = None
    if world > 1:
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(world))
        dist.init_process_group("gloo", rank=rank, world_size=world)
        from torch.distributed.device_mesh import init_device_mesh
        shape, names = ((2, 2), ("replicate", "shard")) if layout == "hsdp" else ((data, tensor), ("dp", "tp"))
        mesh = init_device_mesh("cpu", shape, mesh_dim_names=names)
    torch.manual_seed(1)
    model = distribute(Model(), layout, options, mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, foreach="foreach" in options)
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
                logits = called(tokens[:, :-1])
                loss = functional.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())
                (loss / micro).backward()
                total += float(loss.detach()) / micro
            told = {}
            if "clip" in options:
                told["grad_norm"] = nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
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
