"""A training as in your own repository: a small language model on one core,
whose log has the lines of torchtitan.

--arm mxfp8 quantises the operands of all linear layers but the last one to E4M3
in blocks of 32, in the emulation of moe_mxfp8.py. --mistake plants an error in
it. --any-order sums as GPUs with atomics do: no two runs have the same bits.
docs/your-trainer.md gates its runs.
"""

import argparse
import contextlib
import logging
import pathlib
import resource
import sys
import time

import torch
from torch import nn
from torch.nn import functional

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import isoloss  # noqa: E402
from moe_mxfp8 import (  # noqa: E402
    DIM, E4M3, IGNORED, MISTAKES, VOCABULARY, Attention, FeedForward, Linear, Norm, batches, plant,
    steps_of)

LAYERS = 1
RECIPES = {"bf16": "bf16", "mxfp8": "mxfp8_rceil"}
# Those that a dense model can make.
PLANTED = ("wrong_axis", "floor_for_rceil", "saturate_at_240", "dgrad_transposed_scale",
           "stale_weight", "truncating_accumulator")


class Layer(nn.Module):
    def __init__(self, recipe):
        super().__init__()
        self.attention_norm, self.ffn_norm = Norm(DIM), Norm(DIM)
        self.attention = Attention(recipe=recipe)
        self.feed_forward = FeedForward(recipe=recipe)

    def forward(self, x):
        x = x + self.attention(self.attention_norm(x))
        return x + self.feed_forward(self.ffn_norm(x))


class Model(nn.Module):
    def __init__(self, recipe):
        super().__init__()
        self.tok_embeddings = nn.Embedding(VOCABULARY, DIM)
        self.layers = nn.ModuleList(Layer(recipe) for _ in range(LAYERS))
        self.norm = Norm(DIM)
        self.output = Linear(VOCABULARY, DIM)

    def forward(self, tokens):
        x = self.tok_embeddings(tokens).bfloat16()
        for layer in self.layers:
            x = layer(x)
        return self.output(self.norm(x)).float()


def cast_gradients(model):
    """Of outputs of linear layers to E4M3 without a scale: below 2^-10 nothing is left."""
    def cast(_module, _inputs, y):
        if y.requires_grad:
            y.register_hook(lambda dy: E4M3.round(dy.float()).to(dy.dtype))

    for name, module in model.named_modules():
        if isinstance(module, Linear) and name != "output":
            module.register_forward_hook(cast)


def loss_of(logits, labels):
    return functional.cross_entropy(logits.reshape(-1, VOCABULARY), labels.reshape(-1),
                                    ignore_index=IGNORED)


def logger_of(log):
    """Prints lines as torchtitan's logger does, and writes them to a file."""
    logger = logging.getLogger("titan_like")
    logger.setLevel(logging.INFO)
    handlers = [logging.StreamHandler(sys.stdout)]
    if log:
        handlers.append(logging.FileHandler(log, mode="w", encoding="utf-8"))
    for handler in handlers:
        handler.setFormatter(logging.Formatter(
            "[titan] %(asctime)s - root - %(levelname)s - %(message)s"))
        logger.addHandler(handler)
    return logger


def recording(options, model, optimizer):
    """Nothing without --record."""
    if not options.record:
        return contextlib.nullcontext()
    return isoloss.record(model, optimizer, options.record, steps=options.steps,
                          dump=options.dump, arm=options.arm, recipe=RECIPES[options.arm],
                          seed=options.seed)


def train(options):
    torch.set_num_threads(1)
    torch.manual_seed(options.seed)
    model = Model(RECIPES[options.arm])
    plant(model, options.mistake, "")
    if options.bad_recipe:
        cast_gradients(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr, betas=(0.9, 0.95),
                                  weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min(1.0, (step + 1) / 20, 1.25 * (1 - step / options.steps)))
    data = batches(options.seed)
    order = torch.Generator()
    order.seed()
    logger = logger_of(options.log)
    with recording(options, model, optimizer) as recorder:
        for step in range(1, options.steps + 1):
            start = time.monotonic()
            tokens, labels = next(data)
            if options.any_order:
                rows = torch.randperm(len(tokens), generator=order)
                tokens, labels = tokens[rows], labels[rows]
            optimizer.zero_grad()
            loss = loss_of(model(tokens), labels)
            loss.backward()
            norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            if recorder:
                recorder.step(loss, tokens=tokens.numel(), grad_norm=norm)
            schedule.step()
            memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2 ** 20
            logger.info("step: %2d  loss: %8.5f  grad_norm: %7.4f  memory: %5.2fGiB  tps: %s", step,
                        loss, norm, memory,
                        f"{tokens.numel() / (time.monotonic() - start):,.0f}")


def main(arguments=None):
    names = "\n".join(f"  {name:28}{MISTAKES[name]}" for name in PLANTED)
    parser = argparse.ArgumentParser(description=__doc__, epilog=f"mistakes:\n{names}",
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arm", choices=RECIPES, default="bf16")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--log", type=pathlib.Path, metavar="FILE",
                        help="gets the lines that are printed, too")
    parser.add_argument("--any-order", action="store_true",
                        help="sequences of a batch in any order, so that sums round otherwise")
    parser.add_argument("--bad-recipe", action="store_true",
                        help="casts gradients to E4M3 without scales, too: small ones become zero")
    parser.add_argument("--mistake", choices=PLANTED, metavar="NAME")
    parser.add_argument("--record", type=pathlib.Path, metavar="LOG",
                        help="records a run log (HDF5) of isoloss")
    parser.add_argument("--dump", type=steps_of, default=[], metavar="STEP,...",
                        help="steps whose operations are recorded, too")
    train(parser.parse_args(arguments))


if __name__ == "__main__":
    main()
