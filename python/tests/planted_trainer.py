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
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

import isoloss

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

WIDTH, HIDDEN, VOCABULARY, EXPERTS, TOP_K, ROUTE_SCALE = 32, 48, 40, 4, 2, 1.5
# Where mistakes of products are planted.
SITES = ("layers.0.feed_forward.w1", "layers.1.moe.experts.w1")
SEQUENCES, LENGTH, IGNORED, PARTS, STEPS, CLIP = 2, 12, -100, 2, 2, 0.5
E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2


class Operand:
    """Codes of FP8, and scales by which they are multiplied."""

    def __init__(self, codes, scales):
        self.codes, self.scales = codes, scales
        self.values = codes.float() * scales


def truncate(x, dtype):
    bits = {E4M3: 20, E5M2: 21}[dtype]
    return (x.view(torch.int32) >> bits << bits).view(torch.float32).to(dtype)


class Linear(nn.Module):
    """y = x W^T; with a weight [experts, N, K] each group of rows has its own."""

    isoloss_compute_dtype = torch.bfloat16

    def __init__(self, *shape, recipe):
        super().__init__()
        self.isoloss_type = "linear" if len(shape) == 2 else "grouped_linear"
        self.weight = nn.Parameter(torch.randn(shape) * shape[-1] ** -0.5)
        # As in most trainers, experts stay BF16.
        self.recipe = recipe if self.isoloss_type == "linear" else "bf16"
        self.mistake = None
        self.held, self.amax, self.before = {}, {}, {}

    def isoloss_operands(self):
        found = {}
        for name, parts in self.held.items():
            stacked = torch.stack if name.endswith("_w") else torch.cat
            grouped = self.isoloss_type == "grouped_linear"
            for key in ("codes", "scales"):
                tensors = [getattr(part, key) for part in parts]
                found[f"{name}_{key}"] = stacked(tensors) if grouped else tensors[0]
            found[f"{name}_format"] = "e4m3" if parts[0].codes.dtype == E4M3 else "e5m2"
        return found

    @torch.compiler.disable
    def forward(self, x, ends=None):
        rows, weight = x.bfloat16().reshape(-1, x.shape[-1]), self.weight.bfloat16()
        if ends is None:
            ends, weight = torch.tensor([len(rows)]), weight[None]
        y = Product.apply(rows, weight, ends.tolist(), self)
        return y.reshape(*x.shape[:-1], y.shape[-1])

    def cast(self, name, x, axis, place=0):
        """Of one expert; `axis` is contracted."""
        if self.recipe == "bf16":
            return x.float()
        is_gradient = name.endswith("_dy")
        hybrid = is_gradient and self.recipe == "te_fp8_current"
        if self.mistake == "other_gradient_format" and is_gradient:
            hybrid = not hybrid
        dtype = E5M2 if hybrid else E4M3
        largest = torch.finfo(dtype).max
        x = x.float()
        if self.recipe == "te_fp8_current":
            amax = x.abs().amax().reshape(1, 1)
            if self.mistake == "scale_of_a_shard" and name.endswith("_w"):
                amax = x.chunk(2)[dist.get_rank() % 2].abs().amax().reshape(1, 1)
            # One rounding: a number over a tensor is its reciprocal times the number.
            scale = torch.where(amax > 0, torch.tensor(largest) / amax, 1.0)
        else:
            amax = x.abs().amax(axis, keepdim=True)
            if self.mistake == "scale_of_a_shard" and name.endswith("_w"):
                amax = x.chunk(2, axis)[dist.get_rank() % 2].abs().amax(axis, keepdim=True)
            scale = torch.tensor(largest).double() / amax.double().clamp(min=1e-12)
            scale = torch.exp2(torch.floor(torch.log2(scale.float())))
        if self.mistake == "stale_scale" and name == "fprop_x":
            scale, self.amax[place] = self.amax.get(place, scale), scale
            if scale.shape != (1, 1) and len(scale) != len(x):
                scale = self.amax[place]
        if self.mistake == "halved_scale":
            scale = scale * 2
        scaled = x * scale
        limit = 240.0 if self.mistake == "saturate_at_240" and dtype == E4M3 else largest
        scaled = scaled.clamp(-limit, limit)
        codes = truncate(scaled, dtype) if self.mistake == "truncated_codes" else scaled.to(dtype)
        operand = Operand(codes, 1 / scale)
        self.held.setdefault(name, []).append(operand)
        return operand.values

    def multiply(self, a, b):
        if self.mistake != "bf16_sums":
            return (a @ b).bfloat16()
        total = torch.zeros(len(a), b.shape[1], dtype=torch.bfloat16)
        for begin in range(0, a.shape[1], 8):
            total = (total.float() + a[:, begin:begin + 8] @ b[begin:begin + 8]).bfloat16()
        return total

    def kept(self, name, value):
        """That of the call before, if there was one of this shape."""
        before, self.before[name] = self.before.get(name, value), value.clone()
        return before if before.shape == value.shape else value

    def fprop(self, x, weight, ends):
        self.held = {}
        stale = self.kept("weight", weight) if self.is_first_part() else self.before.get("read", weight)
        self.before["read"] = stale
        if self.mistake == "stale_weight":
            weight = stale
        parts, begin = [], 0
        order = range(len(ends)) if self.mistake != "next_expert" else \
            [(place + 1) % len(ends) for place in range(len(ends))]
        rows = self.cast("fprop_x", x, 1)
        weights = [self.cast("fprop_w", w, 1, place) for place, w in enumerate(weight)]
        for place, end in zip(order, ends):
            y = self.multiply(rows[begin:end], weights[place].T)
            if self.mistake == "other_scale" and self.held:
                y = (y.float() * self.held["fprop_x"][0].scales.mean() /
                     self.held["fprop_w"][place].scales.mean()).bfloat16()
            parts.append(y)
            begin = end
        y = torch.cat(parts)
        return y.to(E4M3).bfloat16() if self.mistake == "fp8_output" else y

    def is_first_part(self):
        self.calls = getattr(self, "calls", 0) + 1
        return self.calls % PARTS == 1

    def dgrad(self, dy, weight, ends):
        if self.mistake == "stale_weight_in_dgrad":
            weight = self.before["read"]
        parts, begin = [], 0
        rows = self.cast("dgrad_dy", dy, 1)
        for place, end in enumerate(ends):
            w = self.cast("dgrad_w", weight[place], 0, place)
            if self.mistake == "dgrad_unquantised":
                w = weight[place].float()
            dx = self.multiply(rows[begin:end], w)
            if self.mistake == "transposed_scale" and "dgrad_w" in self.held:
                scales = self.held["dgrad_w"][place].scales
                factor = scales.flip(1) / scales if scales.numel() > 1 else torch.full((1, 1), 2.0)
                dx = (dx.float() * factor).bfloat16()
            parts.append(dx)
            begin = end
        return torch.cat(parts)

    def wgrad(self, dy, x, ends):
        if self.mistake == "quantised_twice" and self.held:
            x = self.held["fprop_x"][0].values
        if self.mistake == "stale_activation":
            x = self.kept("x", x)
        parts, begin = [], 0
        for place, end in enumerate(ends):
            rows = [dy[begin:end], x[begin:end]]
            if end > begin:
                read = [self.cast(f"wgrad_{name}", part, 0, place) for name, part in zip(("dy", "x"), rows)]
                if self.mistake == "wgrad_unquantised":
                    read = [part.float() for part in rows]
                parts.append(self.multiply(read[0].T, read[1]))
            else:
                parts.append(torch.zeros(dy.shape[1], x.shape[1], dtype=torch.bfloat16))
            begin = end
        return torch.stack(parts)


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, ends, layer):
        ctx.save_for_backward(x, weight)
        ctx.ends, ctx.layer = ends, layer
        y = layer.fprop(x, weight, ends)
        ctx.held = layer.held
        return y

    @staticmethod
    def backward(ctx, dy):
        x, weight = ctx.saved_tensors
        ctx.layer.held = {name: parts for name, parts in ctx.held.items() if name.startswith("fprop")}
        return (ctx.layer.dgrad(dy, weight, ctx.ends), ctx.layer.wgrad(dy, x, ctx.ends), None, None)


class Norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x):
        return functional.rms_norm(x.float(), (WIDTH,), self.weight.float()).bfloat16()


class Attention(nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.wq, self.wk, self.wv, self.wo = (Linear(WIDTH, WIDTH, **options) for _ in range(4))

    def forward(self, x):
        y = functional.scaled_dot_product_attention(
            *(layer(x).float() for layer in (self.wq, self.wk, self.wv)), is_causal=True)
        return self.wo(y.bfloat16())


class FeedForward(nn.Module):
    def __init__(self, *experts, **options):
        super().__init__()
        self.w1, self.w3 = (Linear(*experts, HIDDEN, WIDTH, **options) for _ in range(2))
        self.w2 = Linear(*experts, WIDTH, HIDDEN, **options)

    def forward(self, x, *ends):
        gate = functional.silu(self.w1(x, *ends).float())
        return self.w2((gate * self.w3(x, *ends).float()).bfloat16(), *ends)


class Moe(nn.Module):
    def __init__(self, name, mistake, **options):
        super().__init__()
        self.name, self.mistake = name, mistake
        self.gate = nn.Linear(WIDTH, EXPERTS, bias=False)
        self.register_buffer("bias", torch.linspace(-0.04, 0.04, EXPERTS))
        self.experts = FeedForward(EXPERTS, **options)
        self.shared_experts = FeedForward(**options)

    def route(self, tokens):
        logits = self.gate(tokens.float())
        scores = logits.softmax(-1) if self.mistake == "softmax_scores" else logits.sigmoid()
        chosen = scores if self.mistake == "unbiased_choice" else scores + self.bias
        ids = chosen.topk(1 if self.mistake == "one_expert" else TOP_K, -1).indices
        weights = scores.gather(1, ids)
        weights = weights / weights.sum(-1, keepdim=True) * ROUTE_SCALE
        for _ in range(2 if self.mistake == "router_seen_twice" else 1):
            isoloss.observe("router", f"{self.name}.router", logits=logits, scores=scores,
                            bias=self.bias, expert_ids=ids, weights=weights, top_k=TOP_K,
                            score_function="sigmoid", normalize=1, scale=ROUTE_SCALE)
        return ids, weights

    def forward(self, x):
        tokens = x.reshape(-1, WIDTH)
        ids, weights = self.route(tokens)
        order = ids.reshape(-1).argsort(stable=True)
        source, weights = order // ids.shape[1], weights.reshape(-1)[order]
        rows = tokens[source]
        if self.mistake == "dropped_row":
            rows = torch.cat([rows[:-1], torch.zeros_like(rows[:1])])
        isoloss.observe("dispatch", self.name, tokens=tokens, source=source, rows=rows)
        rows = self.experts(rows, ids.reshape(-1).bincount(minlength=EXPERTS).cumsum(0))
        shared = self.shared_experts(tokens)
        factor = {"unweighted_combine": torch.ones_like(weights),
                  "weighted_twice": weights.square()}.get(self.mistake, weights)
        begin = torch.zeros_like(shared) if self.mistake == "no_shared_expert" else shared
        output = begin.float().index_add(0, source, rows.float() * factor[:, None]).bfloat16()
        isoloss.observe("combine", self.name, rows=rows, source=source, weights=weights,
                        addend=shared, output=output)
        return output.reshape(x.shape)


class Block(nn.Module):
    def __init__(self, place, mistake, **options):
        super().__init__()
        self.norms = nn.ModuleList([Norm(), Norm()])
        self.attention = Attention(**options)
        if place:
            self.moe = Moe(f"layers.{place}.moe", mistake, **options)
        else:
            self.feed_forward = FeedForward(**options)

    def forward(self, x):
        x = x + self.attention(self.norms[0](x))
        return x + (self.moe if hasattr(self, "moe") else self.feed_forward)(self.norms[1](x))


class Model(nn.Module):
    def __init__(self, recipe, mistake):
        super().__init__()
        self.mistake, self.checkpoints = mistake, False
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(Block(place, mistake, recipe=recipe) for place in range(2))
        for name in SITES:
            self.get_submodule(name).mistake = mistake
        self.norm = Norm()
        self.lm_head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens, labels):
        x = self.embedding(tokens).bfloat16()
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if self.checkpoints else layer(x)
        logits, labels = self.lm_head(self.norm(x).float()).flatten(0, 1), labels.flatten()
        loss = functional.cross_entropy(logits, labels, ignore_index=IGNORED, reduction="sum")
        known = (labels != IGNORED).sum()
        loss = loss / (labels.numel() if self.mistake == "loss_over_ignored" else known)
        isoloss.observe("loss", "loss", logits=logits, labels=labels, loss=loss, ignore_index=IGNORED)
        return loss


def batch(step, part, rank):
    draw = torch.Generator().manual_seed((step * PARTS + part) * 8 + rank)
    tokens = torch.randint(VOCABULARY, (SEQUENCES, LENGTH + 1), generator=draw)
    labels = tokens[:, 1:].clone()
    labels[:, :2] = IGNORED
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


def shard(model):
    """As large trainings are: FSDP2, layers that are computed again, and compiled."""
    from torch.distributed.fsdp import fully_shard
    model.checkpoints = True
    for layer in model.layers:
        layer.compile()
        fully_shard(layer)
    fully_shard(model)
    for part in (*model.layers, model):
        if model.mistake == "summed_gradients":
            part.set_gradient_divide_factor(1.0)
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
        if mistake == "bf16_masters":
            parameter.data = parameter.data.bfloat16().float()
        if mistake == "swapped_weights":
            parameter.data = parameter.data * 0.999
        if mistake == "lost_moments" and state:
            state["exp_avg"].zero_()
        if mistake == "lost_count" and state:
            state["step"].zero_()


def backward(model, step, rank, mistake):
    """Of both micro-batches; the step's loss and its labels."""
    losses, told = [], []
    for part in range(PARTS):
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
    """Two steps, which are dumped."""
    torch.manual_seed(1 + (rank if mistake == "other_seed" else 0))
    model = Model(recipe, mistake)
    if layout == "fsdp":
        shard(model)
    optimizer = optimizer_of(model, mistake, rank)
    with isoloss.record(model, optimizer, path, steps=STEPS, dump=[1, 2], recipe=recipe,
                        arm=recipe, seed=1, eager=layout == "fsdp",
                        expected={"adamw": {"weight_decay": {"*norm*": 0.0, "*": 0.1}}}) as recorder:
        for step in range(1, STEPS + 1):
            if mistake != "gradients_kept":
                optimizer.zero_grad()
            loss, told = backward(model, step, rank, mistake)
            reduce_gradients(model, mistake, ranks)
            norm = nn.utils.clip_grad_norm_(model.parameters(), CLIP)
            norm = norm.full_tensor() if layout == "fsdp" else norm
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
