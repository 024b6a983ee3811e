"""Computes what an operation file's operations should have given, in FP64 and
from the definitions of docs/check-tensors.md alone."""

import h5py
import numpy as np

BLOCK = 32
# Largest relative error of rounding to nearest.
HALF_ULP = {"bfloat16": 2.0 ** -8, "float32": 2.0 ** -24, "float16": 2.0 ** -11}
FORMATS = {"e4m3": (3, 7, 448.0), "e5m2": (2, 15, 57344.0)}


def decode(codes, name):
    mantissa, bias, _ = FORMATS[name]
    magnitude = (codes & 0x7F).astype(np.int64)
    exponent, fraction = magnitude >> mantissa, magnitude & (1 << mantissa) - 1
    units = fraction + ((exponent > 0).astype(np.int64) << mantissa)
    values = np.ldexp(units.astype(float), np.maximum(exponent, 1) - bias - mantissa)
    return np.where(codes & 0x80, -values, values)


def quantise(x, name="e4m3"):
    """Codes' values and scale bytes in blocks along rows."""
    mantissa, bias, largest = FORMATS[name]
    rows, columns = x.shape
    padded = np.pad(x, ((0, 0), (0, -columns % BLOCK))).reshape(rows, -1, BLOCK)
    amax = np.abs(padded).max(2)
    with np.errstate(divide="ignore"):
        byte = np.where(amax > 0, np.ceil(np.log2(amax / largest)), -127) + 127
    scaled = padded / np.exp2(byte - 127)[:, :, None]
    with np.errstate(divide="ignore"):
        exponent = np.floor(np.log2(np.abs(scaled)))
    step = np.exp2(np.maximum(exponent, 1 - bias) - mantissa)
    return (np.rint(scaled / step) * step).reshape(rows, -1)[:, :columns], byte


def spread(scales, columns):
    return np.repeat(np.exp2(scales.astype(float) - 127), BLOCK, 1)[:, :columns]


class Checker:
    """Names what of an operation does not fit: {"fprop_x_codes", "output", ...}."""

    def __init__(self, group):
        self.type = group.attrs["type"]
        self.module = group.attrs["module"]
        self.attributes = dict(group.attrs)
        self.values = {name: dataset[()] for name, dataset in group.items()}
        self.dtypes = {name: dataset.attrs.get("dtype") for name, dataset in group.items()}
        self.formats = {name: dataset.attrs.get("format") for name, dataset in group.items()}
        self.wrong = set()

    def __getitem__(self, name):
        value = self.values[name]
        return value.astype(float) if value.dtype == np.float32 else value

    def check(self, name, expected, slack=0.0):
        """`slack` is what summing may lose; then the result is rounded once."""
        found = self[name]
        if found.shape != expected.shape:
            self.wrong.add(name)
            return
        rounding = HALF_ULP[self.dtypes[name]] * (np.abs(expected) + slack) + 2.0 ** -133
        if not (np.abs(found - expected) <= rounding * (1 + 1e-9) + slack).all():
            self.wrong.add(name)

    def product(self, name, a, b):
        # n products and sums of FP32 lose at most n 2^-24 of the magnitudes each.
        slack = a.shape[1] * 2.0 ** -23 * (np.abs(a) @ np.abs(b).T)
        return a @ b.T, slack

    # ---- quantised operands --------------------------------------------------

    def operand(self, name, tensor, down, ends):
        """As the product reads it: what its codes stand for."""
        if f"{name}_codes" not in self.values:
            return tensor
        codes, scales = self[f"{name}_codes"], self[f"{name}_scales"]
        element = self.formats[f"{name}_codes"]
        flat = codes.reshape(-1, codes.shape[-1])
        values = tensor.reshape(flat.shape)
        if element != "e4m3":
            self.wrong.add(f"{name}_format")
        if down:
            parts, begin = [], 0
            for end in ends:
                if end > begin:
                    held, byte = quantise(values[begin:end].T, element)
                    parts.append((held.T, byte.T))
                begin = end
            expected, bytes_ = (np.concatenate([part[i] for part in parts]) for i in (0, 1))
        else:
            expected, bytes_ = quantise(values, element)
        flat_scales = scales.reshape(-1, scales.shape[-1])
        if flat_scales.shape != bytes_.shape:
            self.wrong.add(f"{name}_scales")
            return tensor
        if (flat_scales != bytes_).any():
            self.wrong.add(f"{name}_scales")
        elif (decode(flat, element) != expected).any():
            self.wrong.add(f"{name}_codes")
        held = decode(flat, element)
        if not down:
            return (held * spread(flat_scales, flat.shape[1])).reshape(tensor.shape)
        begin, at, factors = 0, 0, []
        for end in ends:
            blocks = -(-(end - begin) // BLOCK)
            factors.append(spread(flat_scales[at:at + blocks].T, end - begin).T)
            begin, at = end, at + blocks
        return (held * np.concatenate(factors)).reshape(tensor.shape)

    def linear(self):
        quantised = "fprop_x_codes" in self.values
        x, w = self["x"], self["weight"]
        w = w if w.ndim == 3 else w[None]
        ends = self.values.get("group_ends", np.array([len(x)]))
        weight_ends = np.arange(1, len(w) + 1) * w.shape[1]
        if quantised and "wgrad_x_codes" not in self.values:
            self.wrong.add("wgrad_x_codes")
        groups = list(zip([0, *ends[:-1]], ends))
        fx, fw = self.operand("fprop_x", x, False, ends), self.operand("fprop_w", w, False, None)
        if "grad_output" not in self.values:
            self.wrong.add("grad_output")
            return
        dy = self["grad_output"]
        gy = self.operand("dgrad_dy", dy, False, ends)
        gw = self.operand("dgrad_w", w, True, weight_ends)
        wy = self.operand("wgrad_dy", dy, True, ends)
        wx = self.operand("wgrad_x", x, True, ends)
        for name, parts in (
                ("output", [(fx[b:e], fw[i]) for i, (b, e) in enumerate(groups)]),
                ("grad_input", [(gy[b:e], gw[i].T) for i, (b, e) in enumerate(groups)]),
                ("grad_weight", [(wy[b:e].T, wx[b:e].T) for b, e in groups])):
            if name not in self.values:
                continue
            join = np.stack if name == "grad_weight" else np.concatenate
            results = [self.product(name, a, b) for a, b in parts]
            bias = self.values.get("bias")
            if name == "output" and bias is not None:
                results = [(y + bias, slack + 2.0 ** -23 * (np.abs(y) + np.abs(bias)))
                           for y, slack in results]
            shape = self.values[name].shape
            self.check(name, *(join([result[i] for result in results]).reshape(shape)
                               for i in (0, 1)))

    grouped_linear = linear

    def router(self):
        attributes = self.attributes
        logits, bias, ids = self["logits"], self["bias"], self["expert_ids"]
        scores = 1 / (1 + np.exp(-logits))
        self.check("scores", scores, 2.0 ** -20)
        best = np.sort(np.argsort(-(self["scores"] + bias), 1,
                                  kind="stable")[:, :attributes["top_k"]], 1)
        if best.shape != ids.shape or (np.sort(ids, 1) != best).any():
            self.wrong.add("expert_ids")
        gates = np.take_along_axis(self["scores"], ids, 1)
        if attributes["normalize"]:
            gates = gates / gates.sum(1, keepdims=True)
        self.check("weights", gates * attributes["scale"], 2.0 ** -20)

    def dispatch(self):
        if (self["rows"] != self["tokens"][self["source"]]).any():
            self.wrong.add("rows")

    def combine(self):
        weighted = self["rows"]
        if "weights" in self.values:
            weighted = weighted * self["weights"][:, None]
        expected, size = self["addend"].copy(), np.abs(self["addend"])
        np.add.at(expected, self["source"], weighted)
        np.add.at(size, self["source"], np.abs(weighted))
        self.check("output", expected, 2.0 ** -21 * size)

    def adamw(self):
        a = self.attributes
        g, t = self["gradient"], int(a["step"])
        m = a["beta1"] * self["exp_avg_before"] + (1 - a["beta1"]) * g
        v = a["beta2"] * self["exp_avg_sq_before"] + (1 - a["beta2"]) * g * g
        root = np.sqrt(v / (1 - a["beta2"] ** t)) + a["eps"]
        step = a["lr"] * m / (1 - a["beta1"] ** t) / root
        before = self["parameter_before"]
        # FP32 rounds each of some ten operations once.
        self.check("exp_avg_after", m, 2.0 ** -21 * (np.abs(self["exp_avg_before"]) + np.abs(g)))
        self.check("exp_avg_sq_after", v, 2.0 ** -21 * (self["exp_avg_sq_before"] + g * g))
        m_size = a["beta1"] * np.abs(self["exp_avg_before"]) + (1 - a["beta1"]) * np.abs(g)
        step_size = a["lr"] * m_size / (1 - a["beta1"] ** t) / root
        self.check("parameter_after", before * (1 - a["lr"] * a["weight_decay"]) - step,
                   2.0 ** -20 * step_size + 2.0 ** -22 * np.abs(before))

    def loss(self):
        logits, labels = self["logits"], self["labels"]
        known = labels != self.attributes["ignore_index"]
        top = logits.max(1)
        total = np.log(np.exp(logits - top[:, None]).sum(1)) + top
        losses = total[known] - logits[known, labels[known]]
        self.check("loss", np.array([losses.mean()]), 2.0 ** -18 * losses.mean())


def wrong_of(path):
    """{(type, what does not fit)} of an operation file."""
    found = set()
    with h5py.File(path) as file:
        for name in sorted(file["operations"]):
            checker = Checker(file["operations"][name])
            getattr(checker, checker.type)()
            found |= {(checker.type, what) for what in checker.wrong}
    return found
