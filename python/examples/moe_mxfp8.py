"""Trains a small mixture of experts on one CPU and records it.

Parameters are FP32, activations BF16, and products sum in FP32. Recipe
mxfp8_rceil quantises the operands of all linear layers but the router and the
head to E4M3 in blocks of 32, whose E8M0 scale is 2^ceil(log2(amax / 448)).
--mistake plants one error that trainings had, which check-tensors should find.
"""

import argparse
import pathlib
import sys

import torch
from torch import nn
from torch.nn import functional

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import isoloss  # noqa: E402

MISTAKES = {
    # Quantisation
    "wrong_axis": "x of fprop has blocks down its columns",
    "floor_for_rceil": "scales are 2^(floor(log2 amax) - 8), and large elements saturate",
    "block_64": "two blocks share a scale",
    "scale_power_off_by_one": "scales are twice as large",
    "saturate_at_240": "elements saturate at 240, as in another E4M3",
    "ties_away_from_zero": "elements in the middle are rounded away from zero",
    "e5m2_gradients": "dy is E5M2",
    "double_quantisation": "x of wgrad is quantised from what fprop made of it",
    "wgrad_unquantised": "wgrad reads BF16",
    "dgrad_transposed_scale": "scales of W of dgrad are those of the block before",
    # Products
    "stale_weight": "fprop reads the weight of the last step",
    "stale_activation": "wgrad reads x of the last step",
    "dgrad_stale_weight": "dgrad reads the weight of the last step",
    "truncating_accumulator": "sums keep 10 bits after each 32 terms",
    "truncated_output": "the output is cut off to BF16, not rounded",
    "missing_expert": "expert 1 computes nothing",
    "swapped_expert_weights": "experts 0 and 1 have each other's weights",
    # Mixture of experts
    "router_without_bias": "the choice of experts leaves out the bias",
    "router_top1": "a token has one expert, not two",
    "unnormalised_gates": "the experts' weights of a token do not add up to the scale",
    "missing_route_scale": "the experts' weights are not scaled",
    "biased_gates": "the experts' weights contain the bias",
    "dispatch_shifted": "experts get the row before theirs",
    "combine_bf16": "sums of experts' rows are BF16",
    "combine_without_shared": "the shared expert is left out",
    # Loss and optimizer
    "loss_sum_over_ignored": "the loss is divided by all labels, ignored ones too",
    "bias_correction_off_by_one": "bias correction counts the steps before",
    "missing_weight_decay": "no weight decays",
    "coupled_weight_decay": "the decay is part of the gradient",
    "eps_inside_sqrt": "the root is of second moment and epsilon",
    "swapped_betas": "beta1 and beta2 are exchanged",
}

VOCABULARY, DIM, HIDDEN, LAYERS = 80, 64, 96, 2
EXPERTS, TOP_K, ROUTE_SCALE = 4, 2, 2.5
SEQUENCES, LENGTH, IGNORED = 4, 40, -100
BLOCK = 32


# ---- MXFP8 -------------------------------------------------------------------

class Element:
    """A format of 8 bits without infinities in use."""

    def __init__(self, name, mantissa, bias, largest):
        self.name, self.mantissa, self.bias, self.largest = name, mantissa, bias, largest

    def exponent(self, magnitude):
        least = torch.full_like(magnitude, 1 - self.bias).to(torch.int32)
        return torch.where(magnitude > 0, torch.frexp(magnitude)[1] - 1, least).maximum(least)

    def round(self, x, ties_away=False):
        magnitude = x.abs()
        if ties_away:
            exponent = self.exponent(magnitude)
            units = (torch.ldexp(magnitude, self.mantissa - exponent) + 0.5).floor()
            rounded = torch.ldexp(units, exponent - self.mantissa)
        else:
            # An FP32 sum with 1.5 2^23 units is a whole number of units.
            power = (magnitude.view(torch.int32) & 0x7F800000).view(torch.float32)
            units = power.clamp(min=2.0 ** (1 - self.bias)) * (1.5 * 2.0 ** (23 - self.mantissa))
            rounded = (magnitude + units) - units
        return rounded.clamp(max=self.largest) * x.sign()

    def encode(self, x):
        magnitude = x.abs()
        exponent = self.exponent(magnitude)
        units = torch.ldexp(magnitude, self.mantissa - exponent).to(torch.int64)
        code = units + ((exponent + self.bias - 1).to(torch.int64) << self.mantissa)
        return (code + (torch.signbit(x).to(torch.int64) << 7)).to(torch.uint8)


E4M3 = Element("e4m3", 3, 7, 448.0)
E5M2 = Element("e5m2", 2, 15, 57344.0)


class Quantised:
    """Values as a product reads them, and what they are made of."""

    def __init__(self, values, scaled, scales, element=E4M3):
        self.values, self.scaled, self.scales, self.element = values, scaled, scales, element

    @property
    def codes(self):
        return self.element.encode(self.scaled)

    def transposed(self):
        return Quantised(self.values.T, self.scaled.T, self.scales.T, self.element)


def quantise(x, element=E4M3, mistake=None):
    """In blocks along the last axis, of which the last may be shorter."""
    rows, columns = x.shape
    block = 2 * BLOCK if mistake == "block_64" else BLOCK
    blocks = functional.pad(x.float(), (0, -columns % block)).reshape(rows, -1, block)
    amax = blocks.abs().amax(2)
    if mistake == "floor_for_rceil":
        exponent = torch.frexp(amax)[1] - 1 - (8 if element is E4M3 else 15)
    else:
        fraction, exponent = torch.frexp(amax / element.largest)
        exponent = exponent - (fraction == 0.5).to(exponent.dtype)
    if mistake == "scale_power_off_by_one":
        exponent = exponent + 1
    exponent = torch.where(amax > 0, exponent, torch.full_like(exponent, -127)).clamp(-127, 127)
    scaled = torch.ldexp(blocks, -exponent[:, :, None])
    held = element.round(scaled, mistake == "ties_away_from_zero")
    if mistake == "saturate_at_240" and element is E4M3:
        held = held.clamp(-240.0, 240.0)
    values = torch.ldexp(held, exponent[:, :, None]).reshape(rows, -1)[:, :columns]
    scales = (exponent + 127).to(torch.uint8)
    if block > BLOCK:
        scales = scales.repeat_interleave(block // BLOCK, 1)
    return Quantised(values, held.reshape(rows, -1)[:, :columns],
                     scales[:, :-(-columns // BLOCK)], element)


def quantise_down(x, ends, element=E4M3, mistake=None):
    """In blocks down the columns, anew in each group of rows."""
    parts, begin = [], 0
    for end in ends:
        parts.append(quantise(x[begin:end].T, element, mistake).transposed() if end > begin else
                     None)
        begin = end
    parts = [part for part in parts if part]
    return Quantised(*(torch.cat([getattr(part, key) for part in parts])
                       for key in ("values", "scaled", "scales")), element)


def multiply(a, b, mistake=None):
    """a b^T of FP32 matrices."""
    if mistake != "truncating_accumulator":
        return a @ b.T
    total = torch.zeros(len(a), len(b))
    for begin in range(0, a.shape[1], BLOCK):
        total = total + a[:, begin:begin + BLOCK] @ b[:, begin:begin + BLOCK].T
        total = (total.view(torch.int32) & ~((1 << 13) - 1)).view(torch.float32)
    return total


class Multiply(torch.autograd.Function):
    """Rows times the weight of their group, by the recipe of `layer`."""

    @staticmethod
    def forward(ctx, x, weight, ends, layer):
        ctx.save_for_backward(x, weight)
        ctx.ends, ctx.layer = ends, layer
        return layer.fprop(x, weight, ends)

    @staticmethod
    def backward(ctx, dy):
        x, weight = ctx.saved_tensors
        return (ctx.layer.dgrad(dy, weight, ctx.ends), ctx.layer.wgrad(dy, x, ctx.ends), None, None)


class Linear(nn.Module):
    """y = x W^T; with a weight [experts, N, K] each group of rows has its own.

    The recorder finds it by isoloss_type, and asks isoloss_operands for what it
    quantised last.
    """

    isoloss_compute_dtype = torch.bfloat16

    def __init__(self, *shape, recipe="bf16", mistake=None):
        super().__init__()
        self.isoloss_type = "linear" if len(shape) == 2 else "grouped_linear"
        self.weight = nn.Parameter(torch.randn(shape) * shape[-1] ** -0.5)
        self.recipe, self.mistake = recipe, mistake
        self.operands = {}
        self.last_weight = self.weight_before = self.last_x = None

    def isoloss_operands(self):
        operands = {}
        for name, (quantised, shape) in self.operands.items():
            operands[f"{name}_codes"] = quantised.codes.reshape(shape)
            operands[f"{name}_scales"] = (
                quantised.scales if len(shape) == 2 else
                quantised.scales.reshape(shape[0], -1, quantised.scales.shape[-1]))
            operands[f"{name}_format"] = quantised.element.name
        return operands

    def forward(self, x, group_ends=None):
        rows = x.to(torch.bfloat16).reshape(-1, x.shape[-1])
        weight = self.weight.to(torch.bfloat16)
        if group_ends is None:
            group_ends, weight = torch.tensor([len(rows)]), weight[None]
        y = Multiply.apply(rows, weight, group_ends.tolist(), self)
        return y.reshape(*x.shape[:-1], y.shape[-1])

    def hold(self, name, quantised, shape):
        """Keeps an operand for isoloss_operands, and returns it as it is read."""
        self.operands[name] = quantised, shape
        return quantised.values.reshape(shape)

    def shape_of(self, weight):
        return weight.shape if self.isoloss_type == "grouped_linear" else weight.shape[1:]

    def along(self, name, x, element=E4M3):
        """An operand of which rows are contracted; a weight has three axes."""
        if self.recipe == "bf16":
            return x.float()
        shape = self.shape_of(x) if x.dim() == 3 else x.shape
        flat = x.reshape(-1, x.shape[-1])
        return self.hold(name, quantise(flat, element, self.mistake), shape).reshape(x.shape)

    def down(self, name, x, ends, element=E4M3):
        """An operand of which columns are contracted, in each group alone."""
        if self.recipe == "bf16":
            return x.float()
        return self.hold(name, quantise_down(x, ends, element, self.mistake), x.shape)

    def weight_down(self, weight):
        if self.recipe == "bf16":
            return weight.float()
        experts, rows, columns = weight.shape
        ends = range(rows, experts * rows + 1, rows)
        flat = weight.reshape(-1, columns)
        quantised = quantise_down(flat, ends, E4M3, self.mistake)
        self.hold("dgrad_w", quantised, self.shape_of(weight))
        values = quantised.values
        if self.mistake == "dgrad_transposed_scale":
            per_expert = quantised.scales.to(torch.int32).reshape(experts, -1, columns)
            shift = per_expert.roll(1, 1) - per_expert
            shift = shift.repeat_interleave(BLOCK, 1)[:, :rows].reshape(-1, columns)
            values = torch.ldexp(values, shift)
        return values.reshape(weight.shape)

    def element_of_gradients(self):
        return E5M2 if self.mistake == "e5m2_gradients" else E4M3

    def rounded(self, y):
        if self.mistake == "truncated_output":
            y = (y.view(torch.int32) & ~0xFFFF).view(torch.float32)
        return y.to(torch.bfloat16)

    def fprop(self, x, weight, ends):
        kept = weight.clone()
        if self.mistake == "stale_weight" and self.last_weight is not None:
            weight = self.last_weight
        if self.mistake == "wrong_axis" and self.recipe != "bf16":
            x_read = self.down("fprop_x", x, [len(x)])
        else:
            x_read = self.along("fprop_x", x)
        w_read = self.along("fprop_w", weight)
        if self.mistake == "swapped_expert_weights" and len(w_read) > 1:
            w_read = w_read[[1, 0, *range(2, len(w_read))]]
        y = torch.zeros(len(x), weight.shape[1])
        begin = 0
        for expert, end in enumerate(ends):
            if self.mistake != "missing_expert" or len(ends) == 1 or expert != 1:
                y[begin:end] = multiply(x_read[begin:end], w_read[expert], self.mistake)
            begin = end
        self.weight_before, self.last_weight = self.last_weight, kept
        return self.rounded(y)

    def dgrad(self, dy, weight, ends):
        if self.mistake == "dgrad_stale_weight" and self.weight_before is not None:
            weight = self.weight_before
        dy_read = self.along("dgrad_dy", dy, self.element_of_gradients())
        w_read = self.weight_down(weight)
        dx = torch.zeros(len(dy), weight.shape[2])
        begin = 0
        for expert, end in enumerate(ends):
            dx[begin:end] = multiply(dy_read[begin:end], w_read[expert].T, self.mistake)
            begin = end
        return dx.to(torch.bfloat16)

    def wgrad(self, dy, x, ends):
        kept = x.clone()
        if self.mistake == "stale_activation" and self.last_x is not None:
            # Of experts, as many rows as there were.
            x = torch.cat([self.last_x, x])[:len(x)] if len(self.last_x) <= len(x) else self.last_x
            x = x[:len(kept)]
        self.last_x = kept
        if self.mistake == "double_quantisation" and self.recipe != "bf16":
            x = quantise(x).values
        if self.mistake == "wgrad_unquantised":
            dy_read, x_read = dy.float(), x.float()
        else:
            dy_read = self.down("wgrad_dy", dy, ends, self.element_of_gradients())
            x_read = self.down("wgrad_x", x, ends)
        dw = torch.zeros(len(ends), dy.shape[1], x.shape[1])
        begin = 0
        for expert, end in enumerate(ends):
            dw[expert] = multiply(dy_read[begin:end].T, x_read[begin:end].T, self.mistake)
            begin = end
        return dw.to(torch.bfloat16)


# ---- the model ---------------------------------------------------------------

class Norm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        x = x.float()
        return (x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * self.weight).bfloat16()


class Attention(nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.wq, self.wk, self.wv, self.wo = (Linear(DIM, DIM, **options) for _ in range(4))

    def forward(self, x):
        q, k, v = self.wq(x).float(), self.wk(x).float(), self.wv(x).float()
        scores = q @ k.transpose(1, 2) * DIM ** -0.5
        later = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)
        weights = scores.masked_fill(later, float("-inf")).softmax(-1)
        return self.wo((weights @ v).bfloat16())


class FeedForward(nn.Module):
    """SwiGLU of one expert, or of several with a group of rows each."""

    def __init__(self, experts=(), **options):
        super().__init__()
        self.w1 = Linear(*experts, HIDDEN, DIM, **options)
        self.w3 = Linear(*experts, HIDDEN, DIM, **options)
        self.w2 = Linear(*experts, DIM, HIDDEN, **options)

    def forward(self, x, *ends):
        gate, up = self.w1(x, *ends).float(), self.w3(x, *ends).float()
        return self.w2((functional.silu(gate) * up).bfloat16(), *ends)


class Router(nn.Module):
    def __init__(self, name, mistake):
        super().__init__()
        self.name, self.mistake = name, mistake
        self.gate = nn.Linear(DIM, EXPERTS, bias=False)
        self.register_buffer("bias", torch.zeros(EXPERTS))
        self.counts = torch.zeros(EXPERTS)

    def forward(self, x):
        logits = self.gate(x.float())
        scores = logits.sigmoid()
        biased = scores if self.mistake == "router_without_bias" else scores + self.bias
        ids = biased.topk(1 if self.mistake == "router_top1" else TOP_K, dim=-1).indices
        weights = (biased if self.mistake == "biased_gates" else scores).gather(1, ids)
        if self.mistake != "unnormalised_gates":
            weights = weights / (weights.sum(-1, keepdim=True) + 1e-20)
        if self.mistake != "missing_route_scale":
            weights = weights * ROUTE_SCALE
        isoloss.observe("router", self.name, logits=logits, scores=scores, bias=self.bias,
                        expert_ids=ids, weights=weights, top_k=TOP_K, score_function="sigmoid",
                        normalize=1, scale=ROUTE_SCALE)
        self.counts = torch.bincount(ids.reshape(-1), minlength=EXPERTS).float()
        return ids, weights

    def balance(self):
        """Makes busy experts less attractive."""
        self.bias += 0.01 * (self.counts.mean() - self.counts).sign()


class Moe(nn.Module):
    def __init__(self, name, mistake, **options):
        super().__init__()
        self.name, self.mistake = name, mistake
        self.router = Router(f"{name}.router", mistake)
        self.experts = FeedForward((EXPERTS,), **options)
        self.shared = FeedForward(**options)

    def forward(self, x):
        tokens = x.reshape(-1, DIM)
        ids, weights = self.router(tokens)
        order = ids.reshape(-1).argsort(stable=True)
        source = order // ids.shape[1]
        ends = torch.bincount(ids.reshape(-1), minlength=EXPERTS).cumsum(0)
        rows = tokens[source.roll(1) if self.mistake == "dispatch_shifted" else source]
        isoloss.observe("dispatch", self.name, tokens=tokens, source=source, rows=rows)
        out = self.experts(rows, ends)
        result = self.combine(out, source, weights.reshape(-1)[order], self.shared(tokens))
        return result.reshape(x.shape)

    def combine(self, rows, source, weights, addend):
        start = addend
        if self.mistake == "combine_without_shared":
            start = torch.zeros_like(addend)
        if self.mistake == "combine_bf16":
            weighted = (rows * weights[:, None]).bfloat16()
            output = start.clone().index_add(0, source, weighted)
        else:
            weighted = rows.float() * weights[:, None]
            output = start.float().index_add(0, source, weighted).bfloat16()
        isoloss.observe("combine", self.name, rows=rows, source=source, weights=weights,
                        addend=addend, output=output)
        return output


class Layer(nn.Module):
    def __init__(self, name, mistake, **options):
        super().__init__()
        self.attention_norm, self.ffn_norm = Norm(DIM), Norm(DIM)
        self.attention = Attention(**options)
        self.moe = Moe(f"{name}.moe", mistake, **options)

    def forward(self, x):
        x = x + self.attention(self.attention_norm(x))
        return x + self.moe(self.ffn_norm(x))


class Model(nn.Module):
    def __init__(self, recipe, mistake):
        super().__init__()
        self.mistake = mistake
        self.tok_embeddings = nn.Embedding(VOCABULARY, DIM)
        self.layers = nn.ModuleList(Layer(f"layers.{i}", mistake, recipe=recipe)
                                    for i in range(LAYERS))
        self.norm = Norm(DIM)
        self.output = Linear(VOCABULARY, DIM)

    def forward(self, tokens, labels):
        x = self.tok_embeddings(tokens).bfloat16()
        for layer in self.layers:
            x = layer(x)
        logits = self.output(self.norm(x)).float().reshape(-1, VOCABULARY)
        labels = labels.reshape(-1)
        loss = functional.cross_entropy(logits, labels, ignore_index=IGNORED, reduction="sum")
        known = labels.numel() if self.mistake == "loss_sum_over_ignored" else \
            (labels != IGNORED).sum()
        loss = loss / known
        isoloss.observe("loss", "loss", logits=logits, labels=labels, loss=loss,
                        ignore_index=IGNORED)
        return loss


# ---- training ----------------------------------------------------------------

class AdamW(torch.optim.Optimizer):
    """As torch's without options, in one loop."""

    def __init__(self, parameters, lr, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1, mistake=None):
        super().__init__(parameters, {"lr": lr, "betas": betas, "eps": eps,
                                      "weight_decay": weight_decay})
        self.mistake = mistake

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self.update(parameter, group)

    def update(self, parameter, group):
        state, gradient, lr = self.state[parameter], parameter.grad, group["lr"]
        beta1, beta2 = group["betas"]
        if self.mistake == "swapped_betas":
            beta1, beta2 = beta2, beta1
        if not state:
            state["step"] = 0
            state["exp_avg"] = torch.zeros_like(parameter)
            state["exp_avg_sq"] = torch.zeros_like(parameter)
        state["step"] += 1
        count = state["step"]
        if self.mistake == "bias_correction_off_by_one":
            count = max(1, count - 1)
        if self.mistake == "coupled_weight_decay":
            gradient = gradient + group["weight_decay"] * parameter
        elif self.mistake != "missing_weight_decay":
            parameter.mul_(1 - lr * group["weight_decay"])
        state["exp_avg"].mul_(beta1).add_(gradient, alpha=1 - beta1)
        state["exp_avg_sq"].mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        second = state["exp_avg_sq"] / (1 - beta2 ** count)
        if self.mistake == "eps_inside_sqrt":
            root = (second + group["eps"]).sqrt()
        else:
            root = second.sqrt() + group["eps"]
        parameter.addcdiv_(state["exp_avg"], root, value=-lr / (1 - beta1 ** count))


def batches(seed):
    """Sequences in which a token mostly decides on the next one."""
    draw = torch.Generator().manual_seed(seed)
    follow = torch.randperm(VOCABULARY, generator=torch.Generator().manual_seed(0))
    while True:
        tokens = torch.randint(VOCABULARY, (SEQUENCES, LENGTH + 1), generator=draw)
        surprise = torch.rand(SEQUENCES, LENGTH + 1, generator=draw) < 0.2
        for i in range(1, LENGTH + 1):
            tokens[:, i] = torch.where(surprise[:, i], tokens[:, i], follow[tokens[:, i - 1]])
        labels = tokens[:, 1:].clone()
        labels[:, :2] = IGNORED
        yield tokens[:, :-1], labels


def plant(model, mistake, site):
    for name, module in model.named_modules():
        if isinstance(module, Linear) and name != "output" and site in name:
            module.mistake = mistake


def train(options):
    torch.manual_seed(options.seed)
    model = Model(options.recipe, options.mistake)
    plant(model, options.mistake, options.site)
    optimizer = AdamW(model.parameters(), lr=3e-3, mistake=options.mistake)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 4))
    data = batches(options.seed)
    with isoloss.record(model, optimizer, options.out, steps=options.steps, dump=options.dump,
                        statistics=options.statistics, digests=options.statistics,
                        recipe=options.recipe, seed=options.seed, experiment="moe_mxfp8",
                        config={"steps": options.steps}) as recorder:
        for step in range(1, options.steps + 1):
            tokens, labels = next(data)
            optimizer.zero_grad()
            loss = model(tokens, labels)
            loss.backward()
            norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            for layer in model.layers:
                layer.moe.router.balance()
            recorder.step(loss, tokens=tokens.numel(), grad_norm=norm, batch=[tokens, labels])
            schedule.step()
            print(f"step: {step:2}  loss: {loss:8.5f}  grad_norm: {norm:7.4f}", flush=True)


def steps_of(text):
    return [int(step) for step in text.split(",") if step]


def main(arguments=None):
    names = "\n".join(f"  {name:28}{what}" for name, what in MISTAKES.items())
    parser = argparse.ArgumentParser(description=__doc__, epilog=f"mistakes:\n{names}",
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", choices=["bf16", "mxfp8_rceil"], default="mxfp8_rceil")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--out", type=pathlib.Path, default="moe_mxfp8.h5", metavar="LOG")
    parser.add_argument("--dump", type=steps_of, default=[], metavar="STEP,...",
                        help="steps whose operations are written")
    parser.add_argument("--statistics", type=steps_of, default=[], metavar="STEP,...",
                        help="steps with statistics and digests of tensors")
    parser.add_argument("--mistake", choices=list(MISTAKES), metavar="NAME")
    parser.add_argument("--site", default="", metavar="TEXT",
                        help="plants a mistake of products only in layers whose name contains it")
    train(parser.parse_args(arguments))


if __name__ == "__main__":
    main()
