"""The model of docs/model.md in PyTorch, after the formulas alone: modules and
parameters have torchtitan's names, and autograd computes the gradients.

Everything is in the type of the parameters, FP32 unless told otherwise.
Operations that are no module of torch are shown to the recorder.
"""

import dataclasses
import math

import torch
from torch import nn
from torch.nn import functional

import isoloss

IGNORED = -100


@dataclasses.dataclass
class Config:
    """Section [model] of an experiment, with its defaults."""

    vocab_size: int = 256
    dim: int = 64
    n_layers: int = 2
    n_dense_layers: int = 1
    n_heads: int = 4
    q_lora_rank: int = 0
    kv_lora_rank: int = 32
    qk_nope_head_dim: int = 16
    qk_rope_head_dim: int = 8
    v_head_dim: int = 16
    dense_hidden_dim: int = 128
    moe_hidden_dim: int = 48
    num_experts: int = 8
    num_shared_experts: int = 1
    top_k: int = 2
    num_expert_groups: int = 0
    num_limited_groups: int = 0
    score_function: str = "sigmoid"
    route_norm: bool = True
    route_scale: float = 2.5
    tied_embeddings: bool = False
    norm_eps: float = 1e-5
    rope_theta: float = 10000.0
    yarn: bool = False
    rope_factor: float = 40.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    original_seq_len: float = 4096.0
    mscale: float = 1.0

    @property
    def stretches(self):
        return self.yarn and self.rope_factor > 1

    @property
    def softmax_scale(self):
        scale = (self.qk_nope_head_dim + self.qk_rope_head_dim) ** -0.5
        if self.stretches:
            scale *= (0.1 * self.mscale * math.log(self.rope_factor) + 1) ** 2
        return scale


@dataclasses.dataclass
class Batch:
    """All sequences of a step behind one another; positions begin anew in each."""

    tokens: torch.Tensor
    labels: torch.Tensor
    positions: torch.Tensor

    def visible(self):
        """Which keys each query sees: those of its document that are not later."""
        document = (self.positions == 0).cumsum(0)
        place = torch.arange(len(document))
        return (document[:, None] == document) & (place[:, None] >= place)


def rope_angles(config, positions):
    """FP32, as torchtitan has them: [tokens, pairs]."""
    width = config.qk_rope_head_dim
    pair = torch.arange(0, width, 2, dtype=torch.float32)
    frequency = 1.0 / config.rope_theta ** (pair / width)
    if config.stretches:
        def corner(rotations):
            return width * math.log(config.original_seq_len / (rotations * 2 * math.pi)) / (
                2 * math.log(config.rope_theta))
        low = max(math.floor(corner(config.beta_fast)), 0)
        high = min(math.ceil(corner(config.beta_slow)), width - 1)
        high += 0.001 if low == high else 0
        index = torch.arange(width // 2, dtype=torch.float32)
        ramp = ((index - low) / (high - low)).clamp(0, 1)
        frequency = frequency / config.rope_factor * ramp + frequency * (1 - ramp)
    return positions.float()[:, None] * frequency


def rotate(x, angles):
    """Pairs of neighbours in the last axis, of [tokens, heads, width]."""
    even, odd = x[..., 0::2], x[..., 1::2]
    cos, sin = (table.to(x.dtype)[:, None] for table in (angles.cos(), angles.sin()))
    return torch.stack([even * cos - odd * sin, even * sin + odd * cos], -1).flatten(-2)


def linear(inputs, outputs):
    return nn.Linear(inputs, outputs, bias=False)


class Norm(nn.Module):
    def __init__(self, config, width):
        super().__init__()
        self.eps = config.norm_eps
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps) * self.weight


class Attention(nn.Module):
    def __init__(self, config):
        super().__init__()
        c = self.config = config
        queries = c.n_heads * (c.qk_nope_head_dim + c.qk_rope_head_dim)
        if c.q_lora_rank:
            self.wq_a = linear(c.dim, c.q_lora_rank)
            self.q_norm = Norm(c, c.q_lora_rank)
            self.wq_b = linear(c.q_lora_rank, queries)
        else:
            self.wq = linear(c.dim, queries)
        self.wkv_a = linear(c.dim, c.kv_lora_rank + c.qk_rope_head_dim)
        self.kv_norm = Norm(c, c.kv_lora_rank)
        self.wkv_b = linear(c.kv_lora_rank, c.n_heads * (c.qk_nope_head_dim + c.v_head_dim))
        self.wo = linear(c.n_heads * c.v_head_dim, c.dim)

    def forward(self, x, angles, visible):
        c = self.config
        parts = [c.qk_nope_head_dim, c.qk_rope_head_dim]
        compressed, k_pe = self.wkv_a(x).split([c.kv_lora_rank, c.qk_rope_head_dim], -1)
        q = self.wq_b(self.q_norm(self.wq_a(x))) if c.q_lora_rank else self.wq(x)
        q_nope, q_pe = q.unflatten(-1, (c.n_heads, -1)).split(parts, -1)
        kv = self.wkv_b(self.kv_norm(compressed)).unflatten(-1, (c.n_heads, -1))
        k_nope, v = kv.split([c.qk_nope_head_dim, c.v_head_dim], -1)
        k_pe = rotate(k_pe[:, None], angles).expand(-1, c.n_heads, -1)
        q = torch.cat([q_nope, rotate(q_pe, angles)], -1)
        k = torch.cat([k_nope, k_pe], -1)
        scores = torch.einsum("qhd,khd->hqk", q, k) * c.softmax_scale
        weights = scores.masked_fill(~visible, -math.inf).softmax(-1)
        return self.wo(torch.einsum("hqk,khd->qhd", weights, v).flatten(1))


class FeedForward(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.w1, self.w2, self.w3 = linear(dim, hidden), linear(hidden, dim), linear(dim, hidden)

    def forward(self, x):
        return self.w2(functional.silu(self.w1(x)) * self.w3(x))


def grouped(x, weight, group_ends):
    """Each group of rows times the weight of its expert."""
    begins = [0, *group_ends.tolist()]
    return torch.cat([x[begin:end] @ w.T for w, begin, end in zip(weight, begins, begins[1:])])


class InnerExperts(nn.Module):
    def __init__(self, config, name):
        super().__init__()
        e, d, f = config.num_experts, config.dim, config.moe_hidden_dim
        self.name = name
        self.w1_EFD = nn.Parameter(torch.zeros(e, f, d))
        self.w2_EDF = nn.Parameter(torch.zeros(e, d, f))
        self.w3_EFD = nn.Parameter(torch.zeros(e, f, d))

    def forward(self, x, ends):
        def product(matrix, x, weight):
            return isoloss.grouped_linear(f"{self.name}.{matrix}", grouped, x, weight, ends)
        gate, up = product("w1", x, self.w1_EFD), product("w3", x, self.w3_EFD)
        return product("w2", functional.silu(gate) * up, self.w2_EDF)


class Router(nn.Module):
    def __init__(self, config, name):
        super().__init__()
        self.config, self.name = config, name
        self.gate = linear(config.dim, config.num_experts)

    def choice(self, selection):
        c = self.config
        if c.num_expert_groups:
            groups = selection.unflatten(-1, (c.num_expert_groups, -1))
            best = groups.topk(2, -1).values.sum(-1).topk(c.num_limited_groups, -1).indices
            kept = torch.zeros(groups.shape[:2], dtype=torch.bool).scatter(1, best, True)
            selection = groups.masked_fill(~kept[..., None], -math.inf).flatten(1)
        return selection.topk(c.top_k, -1).indices

    def forward(self, x, bias):
        c = self.config
        logits = self.gate(x)
        scores = logits.sigmoid() if c.score_function == "sigmoid" else logits.softmax(-1)
        ids = self.choice(scores.detach() + bias)
        weights = scores.gather(-1, ids)
        if c.route_norm:
            weights = weights / (weights.sum(-1, keepdim=True) + 1e-20)
        weights = weights * c.route_scale
        isoloss.observe("router", self.name, logits=logits, scores=scores, bias=bias,
                        expert_ids=ids, weights=weights, top_k=c.top_k,
                        score_function=c.score_function, normalize=int(c.route_norm),
                        scale=c.route_scale)
        return ids, weights


class Moe(nn.Module):
    def __init__(self, config, name):
        super().__init__()
        self.name = name
        self.routed_experts = nn.Module()
        self.routed_experts.inner_experts = InnerExperts(config, f"{name}.routed_experts")
        self.router = Router(config, f"{name}.router")
        if config.num_shared_experts:
            self.shared_experts = FeedForward(config.dim,
                                              config.moe_hidden_dim * config.num_shared_experts)
        self.register_buffer("expert_bias_E", torch.zeros(config.num_experts))
        self.tokens_per_expert = None

    def forward(self, x):
        ids, weights = self.router(x, self.expert_bias_E)
        self.tokens_per_expert = ids.flatten().bincount(minlength=len(self.expert_bias_E))
        order = ids.flatten().argsort(stable=True)
        source = order // ids.shape[1]
        rows = x[source]
        isoloss.observe("dispatch", self.name, tokens=x, source=source, rows=rows)
        rows = self.routed_experts.inner_experts(rows, self.tokens_per_expert.cumsum(0))
        weights = weights.flatten()[order]
        routed = torch.zeros_like(x).index_add(0, source, rows * weights[:, None])
        shared = self.shared_experts(x) if hasattr(self, "shared_experts") else None
        output = routed if shared is None else routed + shared
        isoloss.observe("combine", self.name, rows=rows, source=source, weights=weights,
                        addend=shared, output=output)
        return output

    @torch.no_grad()
    def balance(self, coefficient):
        """Makes experts that had more tokens than the mean less attractive."""
        counts = self.tokens_per_expert.to(self.expert_bias_E.dtype)
        change = coefficient * (counts.mean() - counts).sign()
        self.expert_bias_E += change - change.mean()


class Block(nn.Module):
    def __init__(self, config, layer):
        super().__init__()
        self.attention = Attention(config)
        self.attention_norm = Norm(config, config.dim)
        self.ffn_norm = Norm(config, config.dim)
        if layer < config.n_dense_layers:
            self.feed_forward = FeedForward(config.dim, config.dense_hidden_dim)
        else:
            self.moe = Moe(config, f"layers.{layer}.moe")

    def forward(self, x, angles, visible):
        x = x + self.attention(self.attention_norm(x), angles, visible)
        branch = self.moe if hasattr(self, "moe") else self.feed_forward
        return x + branch(self.ffn_norm(x))


class Transformer(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.tok_embeddings = nn.Embedding(config.vocab_size, config.dim)
        self.layers = nn.ModuleList(Block(config, i) for i in range(config.n_layers))
        self.norm = Norm(config, config.dim)
        self.lm_head = linear(config.dim, config.vocab_size)
        if config.tied_embeddings:
            self.lm_head.weight = self.tok_embeddings.weight

    def moe_layers(self):
        return [layer.moe for layer in self.layers if hasattr(layer, "moe")]

    @torch.no_grad()
    def load(self, values):
        """Of each parameter, by its name; none may be missing or left over."""
        named = dict(self.named_parameters())
        if set(named) != set(values):
            raise KeyError(f"weights of {sorted(set(named) ^ set(values))} do not fit the model")
        for name, parameter in named.items():
            if parameter.shape != values[name].shape:
                raise ValueError(f"{name} is {tuple(values[name].shape)}, but must be "
                                 f"{tuple(parameter.shape)}")
            parameter.copy_(values[name])

    def forward(self, batch):
        """The mean loss over the batch's labels, nats."""
        angles, visible = rope_angles(self.config, batch.positions), batch.visible()
        x = self.tok_embeddings(batch.tokens)
        for layer in self.layers:
            x = layer(x, angles, visible)
        logits = self.lm_head(self.norm(x))
        loss = functional.cross_entropy(logits, batch.labels, ignore_index=IGNORED)
        isoloss.observe("loss", "loss", logits=logits, labels=batch.labels, loss=loss,
                        ignore_index=IGNORED)
        return loss


def lr_factor(step, steps, warmup, decay_ratio=None, decay="linear", floor=0.0):
    """Of the largest learning rate, at a step that counts from 0."""
    warmup = min(warmup, steps)
    # round() takes the even one of two equally near.
    decaying = steps - warmup if decay_ratio is None else min(round(steps * decay_ratio),
                                                              steps - warmup)
    stable = steps + 1 - warmup - decaying
    if step < warmup:
        return (step + 1) / warmup
    if step < warmup + stable:
        return 1.0
    progress = (step + 1 - warmup - stable) / decaying
    falling = {"linear": 1 - progress, "sqrt": 1 - math.sqrt(progress),
               "cosine": (1 + math.cos(math.pi * progress)) / 2}[decay]
    return floor + (1 - floor) * falling


class Trainer:
    """One step after the other, in the order of docs/model.md, section 11."""

    def __init__(self, model, *, lr, factor=lambda step: 1.0, betas=(0.9, 0.95), eps=1e-8,
                 weight_decay=0.1, clip_norm=1.0, load_balance_coeff=0.001):
        self.model = model
        self.clip_norm, self.load_balance_coeff = clip_norm, load_balance_coeff
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=lr, betas=betas, eps=eps,
                                           weight_decay=weight_decay)
        self.schedule = torch.optim.lr_scheduler.LambdaLR(self.optimizer, factor)

    def step(self, batch, recorder=None):
        """Loss, and the gradient's norm before it is clipped."""
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.model(batch)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.clip_norm)
        for moe in self.model.moe_layers():
            moe.balance(self.load_balance_coeff)
        self.optimizer.step()
        if recorder is not None:
            recorder.step(loss, tokens=int((batch.labels != IGNORED).sum()), grad_norm=norm)
        self.schedule.step()
        return float(loss), float(norm)
