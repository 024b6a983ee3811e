"""Digests and statistics of tensors, defined as those of isoloss' run logs.

Both are kept as sums that can be merged in any order: whole numbers, exact
sums, and maxima. They are finished when a log is written.
"""

import math

import torch

from . import shards, xxh3

_GOLDEN = xxh3.signed(0x9E3779B97F4A7C15)
_MIX1 = xxh3.signed(0xBF58476D1CE4E5B9)
_MIX2 = xxh3.signed(0x94D049BB133111EB)
_BLOCK = 32

# Dataset, unit and meaning, as lib/isoloss/runlog/tensor_statistics.def.
STATISTICS = (
    ("numel", "1", "Elements"),
    ("nonfinite_num", "1", "NaN and infinite elements; the statistics are of the others"),
    ("zeros_num", "1", "Elements that are zero"),
    ("min", "1", "Smallest element"),
    ("max", "1", "Largest element"),
    ("sum", "1", "Sum"),
    ("mean", "1", "Sum / number of finite elements"),
    ("variance", "1", "Sample variance, by finite elements less 1"),
    ("std", "1", "Square root of the variance"),
    ("l1_norm", "1", "Sum of magnitudes"),
    ("l2_norm", "1", "Square root of the sum of squares"),
    ("cur_amax", "1", "Largest magnitude"),
    ("dynamic_range", "bit", "log2 of the largest magnitude over the smallest other than zero"),
    ("max_blockwise_dynamic_range", "bit",
     "The same within 32 elements along a row, worst block; 0 for a block of zeros"),
    ("max_blockwise_dynamic_range_columnwise", "bit", "The same down a column"),
)


def _mix(x):
    """SplitMix64's finaliser."""
    x = (x ^ xxh3.shift_right(x, 30)) * _MIX1
    x = (x ^ xxh3.shift_right(x, 27)) * _MIX2
    return x ^ xxh3.shift_right(x, 31)


def _rows_of(values, ends):
    """The rows of a tensor as [rows, columns] float32, with group and position
    of each. The groups of rows end at `ends`; a 3-D tensor is one of groups."""
    if values.dim() == 3 and ends is None:
        groups, rows, columns = values.shape
        ends = torch.arange(1, groups + 1) * rows
        values = values.reshape(-1, columns)
    values = values.detach().to(torch.float32)
    values = values.reshape(1, -1) if values.dim() < 2 else values.reshape(-1, values.shape[-1])
    row = torch.arange(len(values), device=values.device)
    if ends is None:
        return values.contiguous(), torch.zeros_like(row), row, None
    ends = ends.to(values.device)
    group = torch.searchsorted(ends, row, right=True)
    begins = torch.cat([ends.new_zeros(1), ends[:-1]])
    return values.contiguous(), group, row - begins[group], ends


def digest_sum(values, ends=None, first_row=0, first_group=0):
    """Sum over rows of their mixtures, modulo 2^64, as a number from 0.

    Exact    that of lib/isoloss/probes/tensor_digest.cc with one segment in
             each group; row i is at position first_row + i, and without it in
             its group. Groups count from first_group.
    """
    rows, group, position, ends = _rows_of(values, ends)
    if ends is None:
        position = position + first_row
    rows = torch.where(rows == rows, rows, torch.full_like(rows, math.nan))
    bits = rows.view(torch.int32)
    bits = torch.where(rows == rows, bits, torch.full_like(bits, 0x7FC00000))
    content = xxh3.hash_rows(bits.contiguous().view(torch.uint8).reshape(len(rows), -1))
    key = _mix(group + first_group + _GOLDEN)
    key = _mix(key + _GOLDEN)  # segment 0
    key = _mix((key ^ position) + _GOLDEN)
    return int(_mix(content + key).sum()) & 0xFFFFFFFFFFFFFFFF


def weights_digest(named):
    """Of a model's values and their names, in any order, modulo 2^64. DTensors are
    gathered one by one."""
    total = 0
    for name, values in named:
        values = shards.full(values)
        text = f"{name} {list(values.shape)} {digest_sum(values):x}" if values.numel() else name
        total += xxh3.hash_bytes(text.encode())
    return total & 0xFFFFFFFFFFFFFFFF


def batch_digests(batch, rank):
    """Of a step's tensors, in their order: one of which those of all ranks are
    added, and one that ranks with the same tensors have alike."""
    total = alone = 0
    for place, values in enumerate([batch] if isinstance(batch, torch.Tensor) else batch):
        values = values.detach()
        held = values.to(torch.float32 if values.is_floating_point() else torch.int64).cpu()
        digest = xxh3.hash_bytes(held.contiguous().numpy().tobytes())
        told = f"{place} {list(values.shape)} {digest:x}"
        total += xxh3.hash_bytes(f"{rank} {told}".encode())
        alone += xxh3.hash_bytes(told.encode())
    return total & 0xFFFFFFFFFFFFFFFF, alone & 0xFFFFFFFFFFFFFFFF


def finish_digest(total):
    """The digest in a log, an int64 other than 0."""
    sum_ = torch.tensor([xxh3.signed(total)])
    return int(_mix(sum_ + _GOLDEN)[0]) or 1


def _exact(exponents, mantissas, scale):
    """Sum of mantissa * 2^(scale * exponent), a whole number of any size."""
    bins = torch.zeros(256, dtype=torch.int64, device=mantissas.device)
    bins.index_add_(0, exponents, mantissas)
    return sum(count << (scale * e) for e, count in enumerate(bins.tolist()) if count)


def _range(magnitudes, dim):
    """Largest of the ratios within blocks: the largest over the smallest."""
    largest = magnitudes.amax(dim)
    smallest = torch.where(magnitudes > 0, magnitudes,
                           torch.full_like(magnitudes, math.inf)).amin(dim)
    ratio = torch.where(largest > 0, largest / smallest, torch.ones_like(largest))
    return float(ratio.max())


def _padded(magnitudes, rows, columns):
    return torch.nn.functional.pad(
        magnitudes, (0, -magnitudes.shape[1] % columns, 0, -magnitudes.shape[0] % rows))


def moments(values, ends=None):
    """What statistics are made of; merge() adds them.

    Exact    sums are whole numbers of 2^-149 and squares of 2^-298. Blocks down
             columns begin anew in each group.
    """
    rows, _, _, ends = _rows_of(values, ends)
    flat = rows.reshape(-1)
    finite = torch.isfinite(flat)
    bits = torch.where(finite, flat, torch.zeros_like(flat)).view(torch.int32).to(torch.int64)
    exponent = (bits >> 23) & 0xFF
    mantissa = (bits & 0x7FFFFF) | ((exponent > 0).to(torch.int64) << 23)
    exponent = (exponent - 1).clamp(min=0)
    signed = torch.where(bits < 0, -mantissa, mantissa)
    square = mantissa * mantissa
    high, low = square >> 24, square & 0xFFFFFF
    found = flat[finite].to(torch.float64)
    magnitude = found.abs()
    nonzero = magnitude[magnitude > 0]
    blocks = torch.where(torch.isfinite(rows), rows, torch.zeros_like(rows)).to(torch.float64).abs()
    ranges = [None, None]
    if flat.numel():
        along = _padded(blocks, 1, _BLOCK)
        ranges[0] = _range(along.reshape(len(along), -1, _BLOCK), 2)
        begin, worst = 0, []
        for end in ends.tolist() if ends is not None else [len(rows)]:
            if end > begin:
                down = _padded(blocks[begin:end], _BLOCK, 1)
                worst.append(_range(down.reshape(-1, _BLOCK, down.shape[1]), 1))
            begin = end
        ranges[1] = max(worst)
    return {
        "numel": flat.numel(),
        "nonfinite": flat.numel() - found.numel(),
        "zeros": found.numel() - nonzero.numel(),
        "sum": _exact(exponent, signed, 1),
        "magnitudes": _exact(exponent, mantissa, 1),
        "squares": (_exact(exponent, high, 2) << 24) + _exact(exponent, low, 2),
        "min": float(found.min()) if found.numel() else None,
        "max": float(found.max()) if found.numel() else None,
        "smallest": float(nonzero.min()) if nonzero.numel() else None,
        "ranges": ranges,
    }


def _pick(choose, a, b):
    known = [value for value in (a, b) if value is not None]
    return choose(known) if known else None


def merge_moments(a, b):
    """Of both parts together."""
    merged = {key: a[key] + b[key] for key in
              ("numel", "nonfinite", "zeros", "sum", "magnitudes", "squares")}
    merged["min"] = _pick(min, a["min"], b["min"])
    merged["max"] = _pick(max, a["max"], b["max"])
    merged["smallest"] = _pick(min, a["smallest"], b["smallest"])
    merged["ranges"] = [_pick(max, x, y) for x, y in zip(a["ranges"], b["ranges"])]
    return merged


def ratio(numerator, denominator):
    """Of whole numbers, rounded once."""
    try:
        return numerator / denominator
    except OverflowError:
        return math.inf if numerator > 0 else -math.inf


def statistics(m):
    """Values in the order of STATISTICS, of moments; NaN: no meaning."""
    count = m["numel"] - m["nonfinite"]
    variance = mean = amax = bits = math.nan
    if count > 0:
        mean = ratio(m["sum"], count << 149)
        amax = max(m["max"], -m["min"])
        if amax > 0:
            bits = math.log2(amax / m["smallest"])
    if count > 1:
        deviations = m["squares"] * count - m["sum"] * m["sum"]
        variance = ratio(deviations, count * (count - 1) << 298)
    extremes = [math.nan if m[end] is None else m[end] + 0.0 for end in ("min", "max")]
    ranges = [math.nan if r is None else math.log2(r) for r in m["ranges"]]
    return [float(m["numel"]), float(m["nonfinite"]), float(m["zeros"]), *extremes,
            ratio(m["sum"], 1 << 149), mean, variance, math.sqrt(variance),
            ratio(m["magnitudes"], 1 << 149), math.sqrt(ratio(m["squares"], 1 << 298)),
            amax, bits, *ranges]
