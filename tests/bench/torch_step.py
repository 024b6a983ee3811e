#!/usr/bin/env python3
"""One training step of dsv3-small in PyTorch eager: the peer of step_server.

The model of docs/model.md with the sizes of the preset `dsv3-small`, on random bytes, written
the way that is fast in eager mode: experts get their tokens sorted, in one block each. (One
product for w1 and w3 was tried: no quicker.) Four modes:

    fp32           all FP32
    bf16           torch.autocast to bfloat16
    mxfp8_usual    both operands of the three products of every linear quantised and dequantised
                   by microxcaling's operations on whole tensors (log2, floor, powers, divisions;
                   but torch.round, where it takes ten operations to even); FP32 products
    mxfp8_fastest  the same values by the fewest torch operations found, on the bits

The MXFP8 modes quantise where the recipe `mxfp8_floor` does, to E4M3 with scales rounded down.

Usage: torch_step.py [--modes M,...] [--threads N,...] [--steps S]   a JSON line for each
       torch_step.py --serve MODE --threads N     one step for each line read; answers in JSON
       torch_step.py --selfcheck                  do both emulations agree?
"""

import argparse
import glob
import json
import os
import statistics
import sys
import time


def use_the_best_libraries():
    """Starts this program anew with the set-up in which PyTorch is fastest.

    Left to itself OpenBLAS may take a newer processor for one without AVX, its pthreads build
    fights with PyTorch's OpenMP threads, and PyTorch stays with AVX2.
    """
    if "ISOLOSS_TORCH_ENVIRONMENT" in os.environ:
        return
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        avx512 = " avx512f" in file.read()
    environment = dict(os.environ, ISOLOSS_TORCH_ENVIRONMENT="set")
    environment["OPENBLAS_CORETYPE"] = "SkylakeX" if avx512 else "Haswell"
    environment["ATEN_CPU_CAPABILITY"] = "avx512" if avx512 else "avx2"
    folders = glob.glob("/usr/lib/*/openblas-openmp") + [os.environ.get("LD_LIBRARY_PATH", "")]
    environment["LD_LIBRARY_PATH"] = ":".join(filter(None, folders))
    os.execve(sys.executable, [sys.executable, *sys.argv], environment)


if __name__ == "__main__":
    use_the_best_libraries()

import torch
from torch import nn
from torch.nn import functional as F

SEQUENCES, LENGTH, VOCABULARY, DIM = 8, 256, 256, 256
HEADS, NOPE, ROPE, VALUE, Q_RANK, KV_RANK = 4, 32, 32, 64, 128, 64
LAYERS, DENSE_LAYERS, DENSE_HIDDEN = 4, 1, 1024
EXPERTS, TOP_K, HIDDEN, ROUTE_SCALE, BIAS_RATE = 16, 4, 128, 2.5, 0.01
BLOCK = 32


# --- MXFP8, E4M3: scale 2^(floor(log2 amax) - 8), elements to nearest even, at most 448 x scale


def in_blocks(x, dim):
    """x [R, C] with the axis `dim` cut into blocks of 32, zeros at its end; and their axis."""
    short = -x.shape[dim] % BLOCK
    if short:
        x = F.pad(x, (0, short) if dim == 1 else (0, 0, 0, short))
    shape = (x.shape[0], -1, BLOCK) if dim == 1 else (-1, BLOCK, x.shape[1])
    return x.reshape(shape), 2 if dim == 1 else 1


def out_of_blocks(blocks, dim, like):
    shape = (like.shape[0], -1) if dim == 1 else (-1, like.shape[1])
    return blocks.reshape(shape)[:like.shape[0], :like.shape[1]]


def quantize_usual(x, dim):
    blocks, axis = in_blocks(x, dim)
    amax = blocks.abs().amax(axis, keepdim=True)
    shared = torch.floor(torch.log2(amax + 2.0**-126 * (amax == 0))) - 8
    # Subnormal numbers are flushed here, so no scale may be one.
    shared = shared.clamp(min=-126)
    scaled = blocks / 2**shared
    exponent = torch.floor(torch.log2(scaled.abs() + (scaled == 0).float())).clip(min=-6)
    rounded = torch.round(scaled / 2**exponent * 2**3) / 2**3 * 2**exponent
    rounded = rounded.clamp(-448, 448)
    for special in (torch.inf, -torch.inf, torch.nan):
        rounded[scaled == special] = special
    return out_of_blocks(rounded * 2**shared, dim, x)


def quantize_fastest(x, dim):
    blocks, axis = in_blocks(x, dim)
    # The power of two below each element; the block's largest is 2^8 x its scale.
    power = (blocks.view(torch.int32) & 0x7F800000).view(torch.float32)
    largest = power.amax(axis, keepdim=True)
    # Adding and taking away 1.5 x 2^20 x power rounds to 3 bits below it; subnormal elements
    # are those below 2^-6 x the scale.
    power = torch.maximum(power, largest * 2.0**-14, out=power)
    rounded = torch.add(blocks, power, alpha=1.5 * 2**20).sub_(power, alpha=1.5 * 2**20)
    limit = largest * 1.75
    return out_of_blocks(rounded.clamp_(-limit, limit), dim, x)


class MxLinear(torch.autograd.Function):
    """y = x W^T; each product quantises both operands along its own contraction."""

    @staticmethod
    def forward(ctx, x, weight, quantize):
        ctx.save_for_backward(x, weight)
        ctx.quantize = quantize
        return quantize(x, 1) @ quantize(weight, 1).t()

    @staticmethod
    def backward(ctx, dy):
        x, weight = ctx.saved_tensors
        quantize = ctx.quantize
        dx = quantize(dy, 1) @ quantize(weight, 0)
        dweight = quantize(dy, 0).t() @ quantize(x, 0)
        return dx, dweight, None


QUANTIZERS = {"mxfp8_usual": quantize_usual, "mxfp8_fastest": quantize_fastest}
MODES = ("fp32", "bf16", *QUANTIZERS)


# --- the model


def linear_of(mode):
    quantize = QUANTIZERS.get(mode)
    if quantize is None:
        return F.linear
    return lambda x, weight: MxLinear.apply(x, weight, quantize)


def weight_of(*shape, std=0.02):
    return nn.Parameter(torch.randn(*shape) * std)


class RmsNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        x = x.float()
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * self.weight


class Attention(nn.Module):
    """Multi-head latent attention; all sequences have the same length."""

    def __init__(self, linear):
        super().__init__()
        self.linear = linear
        self.q_norm, self.kv_norm = RmsNorm(Q_RANK), RmsNorm(KV_RANK)
        self.wq_a = weight_of(Q_RANK, DIM)
        self.wq_b = weight_of(HEADS * (NOPE + ROPE), Q_RANK)
        self.wkv_a = weight_of(KV_RANK + ROPE, DIM)
        self.wkv_b = weight_of(HEADS * (NOPE + VALUE), KV_RANK)
        self.wo = weight_of(DIM, HEADS * VALUE)
        mask = torch.full((LENGTH, LENGTH), -torch.inf).triu(1)
        self.register_buffer("mask", mask.expand(SEQUENCES * HEADS, -1, -1))
        frequency = 10000.0 ** (-torch.arange(0, ROPE, 2) / ROPE)
        angle = torch.outer(torch.arange(LENGTH).float(), frequency)
        self.register_buffer("turn", torch.polar(torch.ones_like(angle), angle))

    def rotate(self, x):
        """x [sequence, position, head, ROPE], neighbouring elements being one number."""
        pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
        turned = pairs * self.turn[:, None, :]
        return torch.view_as_real(turned).flatten(-2).to(x.dtype)

    def forward(self, x):
        linear = self.linear
        heads = (SEQUENCES, LENGTH, HEADS)
        q = linear(self.q_norm(linear(x, self.wq_a)), self.wq_b).view(*heads, NOPE + ROPE)
        q_nope, q_rope = q.split((NOPE, ROPE), -1)
        latent, k_rope = linear(x, self.wkv_a).split((KV_RANK, ROPE), -1)
        k_rope = self.rotate(k_rope.reshape(SEQUENCES, LENGTH, 1, ROPE))
        kv = linear(self.kv_norm(latent), self.wkv_b).view(*heads, NOPE + VALUE)
        k_nope, v = kv.split((NOPE, VALUE), -1)
        q = torch.cat((q_nope, self.rotate(q_rope)), -1)
        k = torch.cat((k_nope, k_rope.expand(-1, -1, HEADS, -1)), -1)
        q, k, v = (t.transpose(1, 2).reshape(SEQUENCES * HEADS, LENGTH, -1) for t in (q, k, v))
        scores = torch.baddbmm(self.mask.to(q.dtype), q, k.transpose(1, 2),
                               alpha=(NOPE + ROPE) ** -0.5)
        out = torch.bmm(torch.softmax(scores, -1), v)
        out = out.view(SEQUENCES, HEADS, LENGTH, VALUE).transpose(1, 2)
        return linear(out.reshape(SEQUENCES * LENGTH, -1), self.wo)


def swiglu(linear, x, w1, w3, w2):
    return linear(F.silu(linear(x, w1)) * linear(x, w3), w2)


class FeedForward(nn.Module):
    def __init__(self, linear, hidden):
        super().__init__()
        self.linear = linear
        self.w1, self.w3 = weight_of(hidden, DIM), weight_of(hidden, DIM)
        self.w2 = weight_of(DIM, hidden)

    def forward(self, x):
        return swiglu(self.linear, x, self.w1, self.w3, self.w2)


class Moe(nn.Module):
    def __init__(self, linear):
        super().__init__()
        self.linear = linear
        self.gate = weight_of(EXPERTS, DIM)
        self.w1, self.w3 = weight_of(EXPERTS, HIDDEN, DIM), weight_of(EXPERTS, HIDDEN, DIM)
        self.w2 = weight_of(EXPERTS, DIM, HIDDEN)
        self.shared = FeedForward(linear, HIDDEN)
        self.register_buffer("bias", torch.zeros(EXPERTS))

    def route(self, x):
        """Experts and weights of each token, [T, TOP_K]; in FP32 in every mode."""
        with torch.autocast("cpu", enabled=False):
            scores = torch.sigmoid(F.linear(x.float(), self.gate))
        chosen = torch.topk(scores.detach() + self.bias, TOP_K, sorted=False).indices
        weights = scores.gather(1, chosen)
        return chosen, ROUTE_SCALE * weights / (weights.sum(1, keepdim=True) + 1e-20)

    def forward(self, x):
        chosen, weights = self.route(x)
        order = torch.argsort(chosen.view(-1), stable=True)
        counts = torch.bincount(chosen.view(-1), minlength=EXPERTS)
        self.counts = counts
        token = order // TOP_K
        groups = x[token].split(counts.tolist())
        experts = zip(groups, self.w1.unbind(), self.w3.unbind(), self.w2.unbind())
        outputs = [swiglu(self.linear, group, *weights_of_expert)
                   for group, *weights_of_expert in experts if len(group) > 0]
        routed = torch.cat(outputs) * weights.view(-1)[order, None]
        return torch.zeros_like(routed[:len(x)]).index_add(0, token, routed) + self.shared(x)

    def update_bias(self):
        change = torch.sign(self.counts.float().mean() - self.counts)
        self.bias += BIAS_RATE * (change - change.mean())


class Block(nn.Module):
    def __init__(self, linear, index):
        super().__init__()
        self.attention_norm, self.ffn_norm = RmsNorm(DIM), RmsNorm(DIM)
        self.attention = Attention(linear)
        self.ffn = FeedForward(linear, DENSE_HIDDEN) if index < DENSE_LAYERS else Moe(linear)

    def forward(self, x):
        x = x + self.attention(self.attention_norm(x))
        return x + self.ffn(self.ffn_norm(x))


class Model(nn.Module):
    def __init__(self, mode):
        super().__init__()
        linear = linear_of(mode)
        self.embedding = weight_of(VOCABULARY, DIM, std=1.0)
        self.blocks = nn.ModuleList(Block(linear, index) for index in range(LAYERS))
        self.norm = RmsNorm(DIM)
        self.head = weight_of(VOCABULARY, DIM, std=DIM**-0.5)

    def forward(self, tokens, labels):
        x = F.embedding(tokens, self.embedding)
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(F.linear(self.norm(x), self.head).float(), labels)


class Training:
    def __init__(self, mode):
        torch.manual_seed(1)
        self.autocast = mode == "bf16"
        self.model = Model(mode)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, betas=(0.9, 0.95),
                                           weight_decay=0.1, foreach=True)
        self.tokens = torch.randint(VOCABULARY, (SEQUENCES * LENGTH,))
        self.labels = torch.randint(VOCABULARY, (SEQUENCES * LENGTH,))

    def step(self):
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=self.autocast):
            loss = self.model(self.tokens, self.labels)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for block in self.model.blocks[DENSE_LAYERS:]:
            block.ffn.update_bias()
        self.optimizer.step()
        return float(loss)

    def timed_step(self):
        wall, cpu = time.perf_counter(), time.process_time()
        loss = self.step()
        return {"wall_ms": 1e3 * (time.perf_counter() - wall),
                "cpu_ms": 1e3 * (time.process_time() - cpu), "loss": loss}


# --- the program


def libraries():
    """What computes here, for the record."""
    import ctypes
    with open("/proc/self/maps", encoding="utf-8") as file:
        mapped = {line.split()[-1] for line in file if "blas" in line}
    core = "unknown"
    for path in sorted(mapped):
        library = ctypes.CDLL(path)
        if hasattr(library, "openblas_get_corename"):
            library.openblas_get_corename.restype = ctypes.c_char_p
            core = library.openblas_get_corename().decode()
    return {"torch": torch.__version__, "openblas_core": core, "blas": sorted(mapped),
            "capability": os.environ.get("ATEN_CPU_CAPABILITY", "default")}


def say(answer):
    print(json.dumps(answer), flush=True)


def serve(mode, threads):
    torch.set_num_threads(threads)
    training = Training(mode)
    for _ in range(2):
        training.step()
    say({"ready": mode, "threads": threads, **libraries()})
    for _ in sys.stdin:
        say(training.timed_step())


def measure(modes, threads, steps):
    for count in threads:
        torch.set_num_threads(count)
        for mode in modes:
            training = Training(mode)
            for _ in range(2):
                training.step()
            samples = [training.timed_step()["wall_ms"] for _ in range(steps)]
            say({"mode": mode, "threads": count, "ms": statistics.median(samples),
                 "min_ms": min(samples), **libraries()})


def selfcheck():
    """Both emulations, along both axes, on values of many sizes and on short blocks."""
    torch.manual_seed(1)
    worst = 0
    for spread in (0.0, 1.0, 4.0):
        x = torch.randn(300, 77) * torch.exp2(spread * torch.randn(300, 77))
        x[3, :40] = 0
        x[5, :32] = torch.arange(32) * 2.0**-12 + 1
        for dim in (0, 1):
            differ = quantize_usual(x, dim) != quantize_fastest(x, dim)
            worst += int(differ.sum())
    say({"selfcheck": "equal" if worst == 0 else "different", "elements_that_differ": worst})
    return 0 if worst == 0 else 1


def names_among(known, convert):
    def parse(text):
        values = [convert(part) for part in text.split(",")]
        wrong = [value for value in values if value not in known]
        if wrong:
            raise argparse.ArgumentTypeError(
                f"`{wrong[0]}` is not one of {', '.join(map(str, known))}")
        return values
    return parse


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    processors = len(os.sched_getaffinity(0))
    parser.add_argument("--modes", type=names_among(MODES, str), default=list(MODES))
    parser.add_argument("--threads", type=names_among(range(1, processors + 1), int), default=[1])
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--serve", choices=MODES, metavar="MODE")
    parser.add_argument("--selfcheck", action="store_true")
    arguments = parser.parse_args()
    if arguments.steps < 1:
        parser.error(f"--steps is {arguments.steps}, but a median needs at least 1 step")
    torch.set_flush_denormal(True)
    if arguments.selfcheck:
        return selfcheck()
    if arguments.serve:
        serve(arguments.serve, arguments.threads[0])
    else:
        measure(arguments.modes, arguments.threads, arguments.steps)
    return 0


if __name__ == "__main__":
    sys.exit(main())
