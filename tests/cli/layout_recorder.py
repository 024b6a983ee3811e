"""Records steps of a small model in several layouts, each rank's sums apart, with mistakes."""

import h5py
import numpy

RATE, BETA1, BETA2, EPS = 1e-3, 0.9, 0.95, 1e-8


def as_bf16(values):
    bits = numpy.asarray(values, numpy.float32).view(numpy.uint32)
    return (bits + 0x7FFF + (bits >> 16 & 1) & 0xFFFF0000).astype(numpy.uint32).view(numpy.float32)


class Model:
    """Layers of RMS norm, w1, SiLU, w2; or with experts: router, dispatch, w1, SiLU, w2, combine.

    data, tensor, experts   numbers of ranks that share the batch, a layer, the experts
    """

    def __init__(self, seed=1, *, tokens=48, width=64, hidden=96, words=50, layers=2, experts=0,
                 top_k=2, kind="bfloat16", steps=1, data=1, tensor=1, expert_ranks=1, micro=1,
                 mistake="", order=None, mean="local"):
        random = numpy.random.default_rng(seed)
        self.kind, self.layers, self.experts, self.top_k = kind, layers, experts, top_k
        self.data, self.tensor, self.expert_ranks, self.micro = data, tensor, expert_ranks, micro
        self.mistake, self.mean = mistake, mean
        self.weights = {"embed": random.standard_normal((words, width))}
        for layer in range(layers):
            name = f"layers.{layer}."
            if experts:
                self.weights[name + "gate"] = random.standard_normal((experts, width)) / width**0.5
            first = (experts, hidden, width) if experts else (hidden, width)
            second = (experts, width, hidden) if experts else (width, hidden)
            self.weights[name + "w1"] = random.standard_normal(first) / width**0.5
            self.weights[name + "w2"] = random.standard_normal(second) / hidden**0.5
        self.weights["head"] = random.standard_normal((words, width)) / width**0.5
        self.weights = {key: value.astype(numpy.float32) for key, value in self.weights.items()}
        self.bias = as_bf16(random.standard_normal((layers, width)))
        self.first = {key: numpy.zeros_like(value) for key, value in self.weights.items()}
        self.second = {key: numpy.zeros_like(value) for key, value in self.weights.items()}
        self.text = random.integers(0, words, (steps, 2, tokens))
        self.order = order

    def rounded(self, values):
        values = numpy.asarray(values, numpy.float32)
        return as_bf16(values) if self.kind == "bfloat16" else values

    def product(self, left, right, split=1, spoil=None):
        """left right^T as a sum over ranks, each part rounded."""
        parts = [self.rounded(a @ b.T) for a, b in zip(numpy.array_split(left, split, 1),
                                                       numpy.array_split(right, split, 1))]
        if split > 1 and spoil == "no_all_reduce":
            return parts[0]
        if split > 1 and spoil == "shards_swapped":
            halves = numpy.array_split(right, split, 1)
            parts = [self.rounded(a @ b.T) for a, b in zip(numpy.array_split(left, split, 1),
                                                           halves[1:] + halves[:1])]
        total = parts[0]
        for part in parts[1:]:
            total = self.rounded(total + part)
        return total

    # ---- one micro-batch of one data rank ------------------------------------

    def norm(self, x, split=1):
        parts = [part / numpy.sqrt(numpy.mean(part**2, 1, keepdims=True) + 1e-6)
                 for part in numpy.array_split(x, split, 1)]
        return self.rounded(numpy.concatenate(parts, 1))

    def norm_gradient(self, x, gradient):
        scale = 1 / numpy.sqrt(numpy.mean(x**2, 1, keepdims=True) + 1e-6)
        inner = numpy.mean(gradient * x, 1, keepdims=True) * scale**2
        return self.rounded(scale * (gradient - x * inner))

    def operation(self, kind, module, attributes=(), **tensors):
        found = {"type": kind, "module": module, "attributes": dict(attributes),
                 "tensors": tensors}
        return found

    def linear(self, ops, module, x, split=1, bias=None):
        weight = self.rounded(self.weights[module])
        output = self.product(x, weight, split, self.mistake)
        if split == 1 and module.endswith("w1") and self.mistake == "wrong_shard":
            output[:, output.shape[1] // 2:] = self.product(x, weight[:len(weight) // 2])
        if bias is not None:
            times = self.tensor if self.mistake == "bias_on_each_rank" else 1
            output = self.rounded(output + times * bias)
        if split > 1 and self.mistake == "doubled":
            output = 2 * output
        if split > 1 and self.mistake == "averaged":
            output = output / split
        op = self.operation("linear", module, x=x, weight=weight, output=output)
        if bias is not None:
            op["tensors"]["bias"] = bias
        op["split"] = split
        ops.append(op)
        return output, op

    def linear_gradient(self, op, gradient, split=1):
        tensors = op["tensors"]
        tensors["grad_output"] = gradient
        tensors["grad_input"] = self.product(gradient, tensors["weight"].T, split)
        tensors["grad_weight"] = self.rounded(gradient.T @ tensors["x"])
        return tensors["grad_input"]

    def route(self, ops, layer, x):
        logits, gate = self.linear(ops, f"layers.{layer}.gate", x)
        scores = (1 / (1 + numpy.exp(-logits.astype(float)))).astype(numpy.float32)
        ids = numpy.argsort(-scores, 1, kind="stable")[:, :self.top_k].astype(numpy.int64)
        weights = numpy.take_along_axis(scores, ids, 1)
        router = self.operation("router", f"layers.{layer}.router", logits=logits, scores=scores,
                                expert_ids=ids, weights=weights,
                                attributes={"top_k": self.top_k, "score_function": "sigmoid"})
        ops.append(router)
        return ids, weights, scores, gate

    def activated(self, u):
        sigmoid = 1 / (1 + numpy.exp(-u))
        return self.rounded(u * sigmoid), sigmoid * (1 + u * (1 - sigmoid))

    def forward_and_backward(self, parts, texts):
        """All data ranks of one micro-batch. Returns their operations and gradients."""
        ranks = range(len(parts))
        ops = [[] for _ in ranks]
        grads = [{key: numpy.zeros_like(value) for key, value in self.weights.items()}
                 for _ in ranks]
        h = [self.rounded(self.weights["embed"])[texts[0][parts[r]]] for r in ranks]
        saved = []
        for layer in range(self.layers):
            name = f"layers.{layer}."
            split = self.tensor if self.mistake == "norm_per_shard" and layer == 1 else 1
            n = [self.norm(h[r], split) for r in ranks]
            if self.experts:
                h, state = self.experts_forward(ops, layer, n, h)
                saved.append((n, state))
                continue
            state = []
            for r in ranks:
                u, op1 = self.linear(ops[r], name + "w1", n[r])
                a, slope = self.activated(u)
                o, op2 = self.linear(ops[r], name + "w2", a, self.tensor, self.bias[layer])
                state.append((h[r], op1, op2, slope))
                h[r] = self.rounded(h[r] + o)
            saved.append((n, state))
        d = []
        for r in ranks:
            n = self.norm(h[r])
            z, head = self.linear(ops[r], "head", n)
            labels = texts[1][parts[r]]
            z64 = z.astype(float)
            z64 -= z64.max(1, keepdims=True)
            sums = numpy.log(numpy.exp(z64).sum(1))
            rows = numpy.arange(len(labels))
            loss = numpy.mean(sums - z64[rows, labels])
            ops[r].append(self.operation("loss", "loss", logits=z, labels=labels,
                                         loss=numpy.array([loss], numpy.float32)))
            p = numpy.exp(z64 - sums[:, None])
            p[rows, labels] -= 1
            dz = self.rounded(p / (len(labels) if self.mean == "local" else len(texts[0])))
            dn = self.linear_gradient(head, dz)
            grads[r]["head"] += head["tensors"]["grad_weight"]
            d.append(self.norm_gradient(h[r], dn))
        for layer in reversed(range(self.layers)):
            n, state = saved[layer]
            if self.experts:
                d = self.experts_backward(layer, n, state, d, grads)
                continue
            for r in ranks:
                before, op1, op2, slope = state[r]
                da = self.linear_gradient(op2, d[r])
                dn = self.linear_gradient(op1, self.rounded(da * slope), self.tensor)
                for key, op in (("w1", op1), ("w2", op2)):
                    grads[r][f"layers.{layer}.{key}"] += op["tensors"]["grad_weight"]
                d[r] = self.rounded(d[r] + self.norm_gradient(before, dn))
        for r in ranks:
            numpy.add.at(grads[r]["embed"], texts[0][parts[r]], d[r])
        return ops, grads

    # ---- experts -------------------------------------------------------------

    def experts_forward(self, ops, layer, n, h):
        name = f"layers.{layer}."
        routed = [self.route(ops[r], layer, n[r]) for r in range(len(n))]
        rows = [(expert, r, t, slot) for r in range(len(n)) for t in range(len(n[r]))
                for slot, expert in enumerate(routed[r][0][t])]
        rows.sort()
        if self.mistake == "rows_dropped" and layer == 0:
            rows = rows[:-3]
        for r in range(len(n)):
            mine = [row for row in rows if row[1] == r]
            source = numpy.array([row[2] for row in mine], numpy.int64)
            ops[r].append(self.operation("dispatch", name + "dispatch", tokens=n[r], source=source,
                                         rows=n[r][source]))
        result = {}
        local = self.experts // self.expert_ranks
        grouped = []
        # Without expert parallelism each data rank has all experts for its own rows.
        owners = range(self.expert_ranks) if self.expert_ranks > 1 else range(len(n))
        for owner in owners:
            first = owner * local if self.expert_ranks > 1 else 0
            mine = [row for row in rows
                    if (first <= row[0] < first + local if self.expert_ranks > 1
                        else row[1] == owner)]
            x = numpy.array([n[r][t] for _, r, t, _ in mine], numpy.float32).reshape(-1, n[0].shape[1])
            ends = numpy.array([sum(row[0] < first + e + 1 for row in mine)
                                for e in range(local)], numpy.int64)
            w1 = self.rounded(self.weights[name + "w1"][first:first + local])
            w2 = self.rounded(self.weights[name + "w2"][first:first + local])
            u, op1 = self.grouped(name + "w1", x, w1, ends, first)
            a, slope = self.activated(u)
            o, op2 = self.grouped(name + "w2", a, w2, ends, first)
            ops[owner] += [op1, op2]
            grouped.append((mine, ends, first, op1, op2, slope))
            for place, row in enumerate(mine):
                result[row] = o[place]
        for r in range(len(n)):
            mine = [row for row in rows if row[1] == r]
            values = numpy.array([result[row] for row in mine], numpy.float32)
            weights = numpy.array([routed[r][1][t, slot] for _, _, t, slot in mine], numpy.float32)
            source = numpy.array([row[2] for row in mine], numpy.int64)
            total = h[r].astype(float)
            numpy.add.at(total, source, values * weights[:, None].astype(float))
            output = self.rounded(total)
            ops[r].append(self.operation("combine", name + "combine", rows=values, source=source,
                                         weights=weights, addend=h[r], output=output))
        after = [ops[r][-1]["tensors"]["output"] for r in range(len(n))]
        return after, (h, rows, routed, grouped)

    def grouped(self, module, x, weight, ends, first):
        begins = [0, *ends[:-1]]
        output = numpy.concatenate([self.rounded(x[b:e] @ w.T)
                                    for b, e, w in zip(begins, ends, weight)])
        attributes = {"first_expert": first, "experts": self.experts}
        return output, self.operation("grouped_linear", module, x=x, weight=weight,
                                      group_ends=ends, output=output, attributes=attributes)

    def grouped_gradient(self, op, gradient):
        tensors = op["tensors"]
        begins = [0, *tensors["group_ends"][:-1]]
        pieces = list(zip(begins, tensors["group_ends"], tensors["weight"]))
        tensors["grad_output"] = gradient
        tensors["grad_input"] = numpy.concatenate(
            [self.rounded(gradient[b:e] @ w) for b, e, w in pieces])
        tensors["grad_weight"] = numpy.stack(
            [self.rounded(gradient[b:e].T @ tensors["x"][b:e]) for b, e, w in pieces])
        return tensors["grad_input"]

    def experts_backward(self, layer, n, state, d, grads):
        h, rows, routed, grouped = state
        name = f"layers.{layer}."
        dn = [numpy.zeros(x.shape) for x in n]
        dscores = [numpy.zeros(routed[r][2].shape) for r in range(len(n))]
        for owner, (mine, ends, first, op1, op2, slope) in enumerate(grouped):
            weights = numpy.array([routed[r][1][t, slot] for _, r, t, slot in mine], numpy.float32)
            up = numpy.array([d[r][t] for _, r, t, _ in mine], numpy.float32)
            da = self.grouped_gradient(op2, self.rounded(up * weights[:, None]))
            dx = self.grouped_gradient(op1, self.rounded(da * slope))
            local = len(ends)
            for key, op in (("w1", op1), ("w2", op2)):
                grads[owner][name + key][first:first + local] += op["tensors"]["grad_weight"]
            for place, (expert, r, t, slot) in enumerate(mine):
                dn[r][t] += dx[place]
                dscores[r][t, expert] += up[place] @ op2["tensors"]["output"][place]
        result = []
        for r in range(len(n)):
            scores = routed[r][2].astype(float)
            gate = routed[r][3]
            dn_gate = self.linear_gradient(gate, self.rounded(dscores[r] * scores * (1 - scores)))
            grads[r][name + "gate"] += gate["tensors"]["grad_weight"]
            result.append(self.rounded(
                d[r] + self.norm_gradient(h[r], self.rounded(dn[r] + dn_gate))))
        return result

    # ---- steps ---------------------------------------------------------------

    def step(self, number, folder):
        tokens = self.text.shape[2]
        places = numpy.arange(tokens) if self.order is None else self.order
        blocks = numpy.array_split(places, self.micro * self.data)
        files = [[] for _ in range(self.data)]
        totals = [{key: numpy.zeros_like(value) for key, value in self.weights.items()}
                  for _ in range(self.data)]
        for call in range(self.micro):
            parts = blocks[call * self.data:(call + 1) * self.data]
            ops, grads = self.forward_and_backward(parts, self.text[number - 1])
            for r in range(self.data):
                files[r] += ops[r]
                for key in totals[r]:
                    if self.mistake == "micro_batches_lost":
                        totals[r][key] = grads[r][key]
                    else:
                        totals[r][key] = totals[r][key] + grads[r][key]
        parts = self.data * self.micro if self.mean == "local" else 1
        for key in self.weights:
            total = sum(t[key] for t in totals)
            is_dense = not (self.expert_ranks > 1 and key.endswith(("w1", "w2")))
            if self.mistake == "gradient_not_reduced" and key == "layers.0.w1":
                total = totals[0][key] * self.data
            if self.mistake == "embedding_not_reduced" and key == "embed":
                total = totals[0][key] * self.data
            factor = 1 / parts
            if self.mistake == "gradient_summed":
                factor = 1 / self.micro
            if self.mistake == "gradient_averaged_twice":
                factor = 1 / parts / self.data
            if self.mistake == "experts_clipped_apart" and not is_dense:
                factor *= 1.7
            gradient = (total * numpy.float32(factor)).astype(numpy.float32)
            self.update(key, gradient, number, files)
        return self.write(folder, number, files)

    def update(self, key, gradient, number, files):
        before = self.weights[key].copy(), self.first[key].copy(), self.second[key].copy()
        first = (BETA1 * before[1] + (1 - BETA1) * gradient).astype(numpy.float32)
        second = (BETA2 * before[2] + (1 - BETA2) * gradient.astype(float)**2).astype(numpy.float32)
        root = numpy.sqrt(second.astype(float) / (1 - BETA2**number)) + EPS
        after = (before[0] - RATE / (1 - BETA1**number) * first / root).astype(numpy.float32)
        self.weights[key], self.first[key], self.second[key] = after, first, second
        names = ("parameter_before", "exp_avg_before", "exp_avg_sq_before", "gradient",
                 "parameter_after", "exp_avg_after", "exp_avg_sq_after")
        values = (*before, gradient, after, first, second)
        shares = [slice(None)]
        if self.expert_ranks > 1 and key.endswith(("w1", "w2")):
            local = self.experts // self.expert_ranks
            shares = [slice(i * local, (i + 1) * local) for i in range(self.expert_ranks)]
        for rank, share in enumerate(shares):
            files[rank].append(self.operation(
                "adamw", key + ".weight",
                attributes={"lr": RATE, "beta1": BETA1, "beta2": BETA2, "eps": EPS,
                            "weight_decay": 0.0, "step": number},
                **{name: value[share] for name, value in zip(names, values)}))

    def write(self, folder, number, files):
        folder.mkdir(exist_ok=True)
        ranks = self.data * self.tensor
        for rank in range(ranks):
            path = folder / f"run.rank-{rank}.operations-{number:06d}.h5"
            part, place = divmod(rank, self.tensor)
            with h5py.File(path, "w") as file:
                for name, value in (("operations_version", 1), ("step", number), ("rank", rank),
                                    ("ranks", ranks), ("data_rank", part),
                                    ("data_ranks", self.data)):
                    file.attrs[name] = numpy.int64(value)
                file.attrs["run"] = "run"
                file.attrs["mesh"] = f"dp={self.data} tp={self.tensor}"
                file.attrs["coordinate"] = f"{part} {place}"
                root = file.create_group("operations")
                for index, op in enumerate(files[part] if place == 0 else ()):
                    self.write_operation(root.create_group(f"{index:06d}"), op)

    def write_operation(self, group, op):
        group.attrs["type"], group.attrs["module"] = op["type"], op["module"]
        for name, value in op["attributes"].items():
            group.attrs[name] = numpy.int64(value) if isinstance(value, int) else value
        is_update = op["type"] == "adamw"
        narrow = ("x", "weight", "output", "grad_output", "grad_input", "grad_weight", "bias",
                  "tokens", "rows", "addend", "logits")
        for name, value in op["tensors"].items():
            dataset = group.create_dataset(name, data=value)
            if value.dtype.kind == "f":
                dataset.attrs["dtype"] = self.kind if name in narrow and not is_update else "float32"
                if name == "weight" and op["type"] == "linear":
                    sharded = op["split"] > 1
                    dataset.attrs["placements"] = "Replicate Shard(1)" if sharded else (
                        "Replicate Shard(0)" if op["module"].endswith("w1") else
                        "Replicate Replicate")


def record(folder, **options):
    model = Model(**options)
    for number in range(1, options.get("steps", 1) + 1):
        model.step(number, folder)
    return folder
