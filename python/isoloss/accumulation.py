"""Whether the gradients that optimizers read are what the layers' backward passes
gave, over all micro-batches and ranks, and whether each label counts once.

The gradient of a weight is a sum over calls and ranks, times one number for all
weights: of averaging and clipping. Sums of elements with random signs tell this
without the tensors, since they are sums over ranks, too.
"""

import itertools
import math
import statistics

import torch

from . import xxh3

_SUMS = 16
_SHOWN = 5
# BF16 rounds each sum of a rank or a part to 2^-9 of it; so does a reduction in BF16 each
# of its terms. This is eight times both, and far below the share of one part or rank.
_TOLERANCE = 2.0 ** -5


def _sums(tensor, name):
    """Of elements with signs that the name chooses."""
    flat = tensor.detach().reshape(-1).to("cpu", torch.float64)
    draw = torch.Generator().manual_seed(xxh3.hash_bytes(name.encode()) >> 1)
    signs = torch.randint(0, 2, flat.shape, generator=draw, dtype=torch.int8) * 2 - 1
    padded = torch.nn.functional.pad(flat * signs, (0, -len(flat) % _SUMS))
    return padded.reshape(-1, _SUMS).sum(0).tolist()


def _label_weight(loss, products):
    """By what the gradient of a mean loss is multiplied at each of its labels, by
    the layer that gave the logits, and their number; None: no layer is known."""
    logits, labels = (loss.tensors.get(key) for key in ("logits", "labels"))
    if logits is None or labels is None:
        return None
    for product in products:
        output, gradient = (product.tensors.get(key) for key in ("output", "grad_output"))
        if (gradient is not None and output.shape == logits.shape and
                torch.equal(output.float(), logits.float())):
            known = labels != loss.attributes.get("ignore_index", -100)
            wanted = logits.float().softmax(-1)[known]
            wanted[torch.arange(len(wanted)), labels[known]] -= 1
            found = gradient.float()[known]
            return [float((found * wanted).sum() / wanted.square().sum()), len(wanted)]
    return None


def row_of(operations, left_out, trained):
    """What a rank knows of one step with operations: for each weight sums of what
    its calls gave and of what the optimizer read, squares of the latter, and weights
    of labels. `left_out` are names of parameters that are used elsewhere, too."""
    products = [op for op in operations if op.kind in ("linear", "grouped_linear")]
    parts = {}
    for op in products:
        name = op.read[1] if op.read else None
        gradient = op.tensors.get("grad_weight")
        if name is None or name in left_out or "first_expert" in op.attributes:
            continue
        before = parts.get(name, 0.0)
        # A call without a gradient may yet have had one.
        parts[name] = None if before is None or gradient is None else before + gradient.double()
    whole = {op.module: op.tensors["gradient"] for op in operations
             if op.tensors.get("gradient") is not None}
    weights = [_label_weight(op, products) for op in operations if op.kind == "loss"]
    return {"parts": {name: _sums(total, name) for name, total in parts.items() if total is not None},
            "whole": {name: _sums(gradient, name) for name, gradient in whole.items()
                      if name in parts},
            "squares": {name: float(gradient.double().square().sum())
                        for name, gradient in whole.items()},
            "trained": trained,
            "labels": [weight for weight in weights if weight is not None]}


def _dot(a, b):
    return math.fsum(x * y for x, y in zip(a, b))


def _misfit(whole, parts):
    """Factor of parts, and what is left of the whole, as a share of it."""
    squares = _dot(parts, parts)
    factor = _dot(whole, parts) / squares if squares else 0.0
    left = [x - factor * y for x, y in zip(whole, parts)]
    size = _dot(whole, whole)
    return factor, math.sqrt(_dot(left, left) / size) if size else float(squares > 0)


def _shown(names):
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def _factors(rows):
    """Of each weight whose gradient is a sum of parts; and what is said of others."""
    factors, said = {}, {}
    for name in dict.fromkeys(name for row in rows for name in row["whole"]):
        whole = next(row["whole"][name] for row in rows if name in row["whole"])
        parts = [row["parts"].get(name) for row in rows]
        if None in parts or not all(map(math.isfinite, itertools.chain(whole, *parts))):
            continue
        factor, misfit = _misfit(whole, [math.fsum(column) for column in zip(*parts)])
        if misfit <= _TOLERANCE:
            factors[name] = factor
            continue
        alone = [rank for rank, part in enumerate(parts)
                 if len(parts) > 1 and _misfit(whole, part)[1] <= _TOLERANCE]
        said.setdefault(
            f"that of rank {alone[0]} alone. Look for a lost all-reduce" if alone else
            "no multiple of what its layer's backward passes gave in this step. Look for gradients "
            "that were not cleared, for lost or doubled micro-batches, and for another use of the "
            "weight", []).append(name)
    return factors, [f"{text}: {_shown(names)}" for text, names in said.items()]


def _clipped(rows, norm):
    """By what clipping multiplied all gradients, whose norm was this; None: nobody
    knows."""
    squares = {name: square for row in rows for name, square in row["squares"].items()}
    if not norm or not math.isfinite(norm) or len(squares) < max(row["trained"] for row in rows):
        return None
    return math.sqrt(math.fsum(squares.values())) / norm


def texts_of(rows, norm):
    """What is wrong in a step, of the rows of all ranks with other tokens. `norm` is
    that of the gradient before clipping, or None."""
    factors, said = _factors(rows)
    usual = statistics.median(factors.values()) if factors else 0.0
    others = {}
    for name, factor in factors.items():
        if abs(factor - usual) > _TOLERANCE * abs(usual):
            others.setdefault(f"{factor / usual if usual else math.inf:.3g}", []).append(name)
    said += [f"{factor} times what others are of their layers' backward passes. Look for a norm or "
             f"an average of a part of the model alone: {_shown(names)}"
             for factor, names in others.items()]
    texts = [f"the gradient of a weight that the optimizer read is {text}."
             for text in said]
    clipped = _clipped(rows, norm)
    labels = [sum(count for _, count in row["labels"]) for row in rows]
    if not clipped or not all(labels) or not usual:
        return texts
    # The loss is the mean over all labels, or over ranks of their means.
    counts = [[usual * weight / clipped * (sum(labels) if whole else len(rows) * of_rank)
               for of_rank, row in zip(labels, rows) for weight, count in row["labels"] if count]
              for whole in (True, False)]
    if all(max(abs(count - 1) for count in found) > _TOLERANCE for found in counts):
        least, most = min(counts[0]), max(counts[0])
        shown = f"{least:.4g}" if most - least <= _TOLERANCE * most else f"{least:.4g} to {most:.4g}"
        texts.append(f"a label counts {shown} times in the gradient, but once in the mean "
                     f"over {sum(labels)} labels. Look for sums over ranks that are no averages, and "
                     "for losses that are divided by the number of micro-batches twice, or never.")
    return texts
