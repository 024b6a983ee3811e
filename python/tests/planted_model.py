"""The model of planted_trainer, whose linear layers multiply FP8 codes and make mistakes.

Products are operators of their own, as those of libraries are, so that torch.compile
takes them into its graphs.
"""

import weakref

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

import isoloss

WIDTH, HIDDEN, VOCABULARY, EXPERTS, TOP_K, ROUTE_SCALE = 32, 48, 40, 4, 2, 1.5
# Where mistakes of products are planted.
SITES = ("layers.0.feed_forward.w1", "layers.1.moe.experts.w1")
IGNORED = -100
E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2


class Operand:
    """Codes of FP8, and scales by which they are multiplied."""

    def __init__(self, codes, scales):
        self.codes, self.scales = codes, scales
        self.values = codes.float() * scales


def truncate(x, dtype):
    bits = {E4M3: 20, E5M2: 21}[dtype]
    return (x.view(torch.int32) >> bits << bits).view(torch.float32).to(dtype)


layers = []


class Linear(nn.Module):
    """y = x W^T; with a weight [experts, N, K] each group of rows has its own."""

    isoloss_compute_dtype = torch.bfloat16
    now = (0, 0)  # step and micro-batch

    def __init__(self, *shape, recipe):
        super().__init__()
        self.isoloss_type = "linear" if len(shape) == 2 else "grouped_linear"
        self.weight = nn.Parameter(torch.randn(shape) * shape[-1] ** -0.5)
        self.recipe, self.mistake = recipe, None
        self.held, self.seen = {}, {}
        # Operators take numbers, no modules.
        self.number = len(layers)
        layers.append(weakref.ref(self))

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

    def forward(self, x, ends=None):
        rows, weight = x.bfloat16().reshape(-1, x.shape[-1]), self.weight.bfloat16()
        if ends is None:
            ends, weight = torch.full((1,), len(rows)), weight[None]
        y = product(rows, weight, ends, self.number)
        return y.reshape(*x.shape[:-1], y.shape[-1])

    def earlier(self, name, value, now):
        """What was kept by that name before `now`, if anything was."""
        times = self.seen.setdefault(name, {})
        # A layer that is computed again sees what it saw.
        times[now] = value.clone()
        before = max((time for time in times if time < now), default=now)
        return times[before] if times[before].shape == value.shape else value

    def cast(self, name, x, axis, place=0):
        """Of one expert; `axis` is contracted."""
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
            scale = self.earlier(("scale", place), scale, self.now)
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

    def fprop(self, x, weight, ends):
        self.held = {}
        stale = self.earlier("weight", weight, self.now[0])
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

    def dgrad(self, dy, weight, ends):
        if self.mistake == "stale_weight_in_dgrad":
            weight = self.earlier("weight", weight, self.now[0])
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
            x = self.earlier("x", x, self.now)
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


@torch.library.custom_op("planted::product", mutates_args=())
def product(x: torch.Tensor, weight: torch.Tensor, ends: torch.Tensor, number: int) -> torch.Tensor:
    return layers[number]().fprop(x, weight, ends.tolist())


@product.register_fake
def _(x, weight, ends, number):
    return x.new_empty(len(x), weight.shape[1])


@torch.library.custom_op("planted::gradients", mutates_args=())
def gradients(dy: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, ends: torch.Tensor,
              number: int) -> tuple[torch.Tensor, torch.Tensor]:
    layer, ends = layers[number](), ends.tolist()
    layer.held = {name: parts for name, parts in layer.held.items() if name.startswith("fprop")}
    return layer.dgrad(dy, weight, ends), layer.wgrad(dy, x, ends)


@gradients.register_fake
def _(dy, x, weight, ends, number):
    return torch.empty_like(x), torch.empty_like(weight)


def keep_operands(ctx, inputs, output):
    *tensors, ctx.number = inputs
    ctx.save_for_backward(*tensors)


product.register_autograd(
    lambda ctx, dy: (*gradients(dy, *ctx.saved_tensors, ctx.number), None, None),
    setup_context=keep_operands)


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


