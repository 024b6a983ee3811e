"""A language model on several ranks, with FP8 by torch's own types, and one planted
mistake: the other half of planted_test.

Linear layers are torchao's in spirit: BF16 operands, FP8 codes with FP32 scales of a
tensor (recipe te_fp8_current) or of a row (fp8_rowwise), FP32 sums, BF16 results.
A step is made of two micro-batches on each rank.
"""

import os

import torch
import torch.distributed as dist
from torch import nn

import isoloss
import planted_model

MISTAKES = {
    # Formats and scales
    "other_scale": "fprop multiplies by the scale of x twice, not by that of W",
    "stale_scale": "x has the scale of the step before",
    "transposed_scale": "dgrad multiplies by scales of W in reversed order",
    "quantised_twice": "x of wgrad is quantised from what fprop made of it",
    "wgrad_unquantised": "wgrad reads BF16",
    "dgrad_unquantised": "dgrad reads W in BF16",
    "other_gradient_format": "dy is of the other FP8 format",
    "saturate_at_240": "elements saturate at 240, as in another E4M3",
    "truncated_codes": "elements are cut off, not rounded",
    "scale_of_a_shard": "the scale of W is that of the rank's own half",
    "halved_scale": "scales are half as large, and large elements saturate",
    "stale_weight": "fprop reads W of the step before",
    "stale_weight_in_dgrad": "dgrad reads W of the step before",
    "stale_activation": "wgrad reads x of the micro-batch before",
    "bf16_sums": "sums are BF16 after each 32 terms",
    "fp8_output": "the output is rounded to FP8, too",
    # Mixture of experts
    "next_expert": "rows are computed by the expert after theirs",
    "unweighted_combine": "experts' rows are added without weights",
    "weighted_twice": "experts' rows are weighted twice",
    "unbiased_choice": "the choice of experts leaves out the bias",
    "softmax_scores": "scores are a softmax, not sigmoids",
    "dropped_row": "the last row of the dispatch is lost",
    "no_shared_expert": "the shared expert is left out",
    "one_expert": "a token has one expert, not two",
    "router_seen_twice": "each router is counted twice, as in a layer computed again",
    # Loss and micro-batches
    "loss_over_ignored": "the loss is divided by all labels, ignored ones too",
    "scaled_twice": "losses are divided by the number of micro-batches twice",
    "unscaled": "losses are not divided by the number of micro-batches",
    "last_part_only": "gradients are cleared before the last micro-batch",
    "first_part_twice": "the first micro-batch is added twice",
    "gradients_kept": "gradients are not cleared between steps",
    # Ranks
    "lost_all_reduce": "the gradient of one weight is that of the rank alone",
    "summed_gradients": "gradients of ranks are added, not averaged",
    "unsynchronised": "no gradient is reduced",
    "norm_of_rank": "ranks clip by norms of their own",
    "clipped_by_shard": "each rank scales its shard of gradients by another factor",
    "equal_batches": "all ranks read the same data",
    "other_seed": "ranks draw weights of their own",
    "other_rate": "the second rank has half the learning rate",
    # Optimizer
    "bf16_masters": "parameters are rounded to BF16 after each step",
    "lost_moments": "moments begin at zero in each step",
    "lost_count": "the optimizer counts each step as the first",
    "decayed_norms": "weights of norms decay",
    "no_decay": "no weight decays",
    "frozen_layer": "the optimizer lacks one layer",
    "two_updates": "the optimizer steps twice",
    "coupled_decay": "the decay is part of the gradient, as in Adam",
    "swapped_weights": "weights are averages of steps after an evaluation",
}

SEQUENCES, LENGTH, PARTS, STEPS, CLIP = 2, 12, 2, 3, 0.5


def batch(step, part, rank):
    draw = torch.Generator().manual_seed((step * PARTS + part) * 8 + rank)
    tokens = torch.randint(planted_model.VOCABULARY, (SEQUENCES, LENGTH + 1), generator=draw)
    labels = tokens[:, 1:].clone()
    labels[:, :2] = planted_model.IGNORED
    return tokens[:, :-1], labels


def optimizer_of(model, mistake, rank):
    named = list(model.named_parameters())
    if mistake == "frozen_layer":
        named = [(name, p) for name, p in named if "layers.0.attention.wq" not in name]
    norms = [p for name, p in named if "norm" in name]
    others = [p for name, p in named if "norm" not in name]
    kind = torch.optim.Adam if mistake == "coupled_decay" else torch.optim.AdamW
    return kind(
        [{"params": others, "weight_decay": 0.0 if mistake == "no_decay" else 0.1},
         {"params": norms, "weight_decay": 0.1 if mistake == "decayed_norms" else 0.0}],
        lr=0.01 / (2 if mistake == "other_rate" and rank else 1), betas=(0.9, 0.95))


def shard(model, layout):
    """As large trainings are: FSDP2, layers that are computed again, and compiled: whole
    ones, or linear layers as regions of their own."""
    from torch.distributed.fsdp import fully_shard
    model.checkpoints = True
    # The back end that makes no code takes a tenth of the time.
    backend = "aot_eager" if model.mistake else "inductor"
    for layer in model.layers:
        if layout == "fsdp":
            layer.compile(backend=backend)
        for part in layer.modules() if layout == "regions" else ():
            if isinstance(part, planted_model.Linear):
                part.compile(backend=backend)
        fully_shard(layer)
    fully_shard(model)
    for part in (*model.layers, model):
        if model.mistake == "summed_gradients":
            part.set_gradient_divide_factor(1.0)
            part.set_force_sum_reduction_for_comms(True)  # gloo has no other sum with a factor
        if model.mistake == "unsynchronised":
            part.set_requires_gradient_sync(False)


def reduce_gradients(model, mistake, ranks):
    if mistake == "unsynchronised" or model.checkpoints:
        return
    for name, parameter in model.named_parameters():
        if parameter.grad is None or (mistake == "lost_all_reduce" and
                                      name == "layers.1.attention.wo.weight"):
            continue
        dist.all_reduce(parameter.grad)
        if mistake != "summed_gradients":
            parameter.grad /= ranks


def clip_by_rank(model, mistake, rank, norm):
    if mistake not in ("norm_of_rank", "clipped_by_shard"):
        return norm
    for parameter in model.parameters():
        gradient = parameter.grad
        getattr(gradient, "to_local", lambda: gradient)().div_(1 + rank)
    return norm * (1 + rank) if mistake == "norm_of_rank" else norm


def spoil_state(model, optimizer, mistake):
    """Between steps."""
    for parameter in model.parameters():
        state = optimizer.state.get(parameter, {})
        # FSDP2 goes on with the tensor that it had, so that is changed.
        held = getattr(parameter, "to_local", lambda: parameter)().detach()  # pylint: disable=cell-var-from-loop
        if mistake == "bf16_masters":
            held.copy_(held.bfloat16())
        if mistake == "swapped_weights":
            held.mul_(0.999)
        if mistake == "lost_moments" and state:
            state["exp_avg"].zero_()
        if mistake == "lost_count" and state:
            state["step"].zero_()


def backward(model, step, rank, mistake):
    """Of both micro-batches; the step's loss and its labels."""
    losses, told = [], []
    for part in range(PARTS):
        planted_model.Linear.now = step, part
        tokens, labels = batch(step, part, 0 if mistake == "equal_batches" else rank)
        if mistake == "last_part_only" and part == PARTS - 1:
            for parameter in model.parameters():
                parameter.grad = None
        loss = model(tokens, labels)
        losses.append(loss.detach())
        told += [tokens, labels]
        scale = {"scaled_twice": PARTS ** 2, "unscaled": 1}.get(mistake, PARTS)
        (loss / scale).backward()
        if mistake == "first_part_twice" and part == 0:
            for parameter in model.parameters():
                if parameter.grad is not None:
                    parameter.grad *= 2
    return torch.stack(losses).mean(), told


def train(path, recipe, mistake, layout, rank, ranks):
    """Three steps. The last two are dumped."""
    torch.compiler.reset()  # else code that all models share is compiled for a few of them only
    torch.manual_seed(1 + (rank if mistake == "other_seed" else 0))
    model = planted_model.Model(recipe, mistake)
    if layout != "replicated":
        shard(model, layout)
    optimizer = optimizer_of(model, mistake, rank)
    with isoloss.record(model, optimizer, path, steps=STEPS, dump=[2, 3], recipe=recipe,
                        arm=recipe, seed=1, eager=layout == "fsdp",
                        expected={"adamw": {"decay": "decoupled",
                                            "weight_decay": {"*norm*": 0.0, "*": 0.1}}}) as recorder:
        for step in range(1, STEPS + 1):
            if mistake != "gradients_kept":
                optimizer.zero_grad()
            loss, told = backward(model, step, rank, mistake)
            reduce_gradients(model, mistake, ranks)
            norm = nn.utils.clip_grad_norm_(model.parameters(), CLIP)
            norm = getattr(norm, "full_tensor", lambda: norm)()
            norm = clip_by_rank(model, mistake, rank, norm)
            optimizer.step()
            if mistake == "two_updates":
                optimizer.step()
            recorder.step(loss, tokens=PARTS * SEQUENCES * (LENGTH - 2), grad_norm=norm,
                          batch=told, routed=PARTS * SEQUENCES * LENGTH)
            spoil_state(model, optimizer, mistake)


def run(rank, ranks, port, folder, chosen):
    """Trains with each of the mistakes in turn."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    torch.set_num_threads(1)
    for recipe, mistake, layout in chosen:
        path = folder / f"{recipe}-{mistake}-{layout}"
        path.mkdir(exist_ok=True)
        train(path / "run.h5", recipe, mistake, layout, rank, ranks)
    dist.destroy_process_group()
