"""One run of the rows of all its ranks."""

import fractions
import math

from . import tensors
from .journal import LogError, split

_MASK = 0xFFFFFFFFFFFFFFFF


def mean_loss(losses, tokens):
    """Of all tokens, rounded once. What a rank without tokens tells is no loss."""
    parts = [(loss, count) for loss, count in zip(losses, tokens) if count]
    losses = [loss for loss, _ in parts]
    if not all(map(math.isfinite, losses)):
        return math.fsum(losses) if not any(map(math.isinf, losses)) else math.nan
    total = sum(fractions.Fraction(loss) * count for loss, count in parts)
    return float(total / sum(tokens)) if parts else math.nan


def _same(values, what, remedy, shown=str):
    """The one value; NaN is equal to NaN."""
    for rank, value in enumerate(values):
        if value == values[0] or (value != value and values[0] != values[0]):
            continue
        raise LogError(f"{what} is {shown(values[0])} on rank 0 and {shown(value)} on rank {rank}, "
                       f"but must be the same on all ranks. {remedy}")
    return values[0]


def _hex(digest):
    return f"{digest:016x}"


def _norm(squares):
    """Of a sum of squares, in words."""
    if squares < 0:
        return "not finite"
    return repr(math.sqrt(tensors.ratio(squares, 1 << 298)))


def _sum_of(digests):
    """Of all ranks, which each have a key of their own."""
    return None if None in digests else sum(digests) & _MASK


class _Sharing:
    """What ranks have together, by `gradients` of the recording."""

    REMEDY = ("The ranks parted, or drew their own initial weights: look for a lost all-reduce and "
              "for groups that clip by norms of their own. If ranks have weights of their own, "
              "record with gradients=\"sharded\" or gradients=[NAMES].")

    def __init__(self, headers):
        self.kind = headers[0]["gradients"]
        self.own = frozenset(headers[0].get("own", ()))
        # Of other parameters on each rank, norms differ.
        self.same_trained = len({header.get("trained") for header in headers}) == 1

    def weights(self, rows, what):
        """Digest of all weights."""
        digests = [row.get("weights") for row in rows]
        if None in digests:
            return None
        if self.kind == "replicated":
            return _same(digests, f"digest of the {what}", self.REMEDY, _hex)
        if self.own:
            own = [row["own_weights"] for row in rows]
            shared = [(a - b) & _MASK for a, b in zip(digests, own)]
            return _same(shared, f"digest of the {what} that ranks share", self.REMEDY,
                         _hex) + sum(own) & _MASK
        # Of weights that all ranks have, or of which each has a part.
        return digests[0] if len(set(digests)) == 1 else _sum_of(digests)

    def squares(self, rows, step):
        """Of the gradient of all ranks; None: nobody knows, -1: not finite."""
        squares = [row["grad_squares"] for row in rows]
        if None in squares:
            return None
        what = f"step {step}: norm of the gradients that the optimizer read"
        if self.kind == "replicated":
            if rows[0]["grad_norm"] is not None and not self.same_trained:
                return None
            return _same(squares, what, self.REMEDY, _norm)
        if min(squares) < 0:
            return -1
        if not self.own:
            return sum(squares)
        own = [row["own_squares"] for row in rows]
        shared = [a - b for a, b in zip(squares, own)]
        return _same(shared, f"{what} and share", self.REMEDY, _norm) + sum(own)

    def is_own(self, tensor):
        """Whether ranks may have another one each."""
        module = tensor.rpartition("_")[0]
        return self.kind == "sharded" or module in self.own or f"{module}.weight" in self.own


def _merge_tensors(parts, step, sharing):
    """Of tensors of tokens, all ranks' rows; of weights, those that all have. A
    gradient of weights by one rank's tokens is no part of the whole in a way
    that could be merged."""
    merged = {}
    for name, first in parts[0].items():
        if first["of"] == "part":
            continue
        others = [part.get(name) for part in parts[1:]]
        if None in others:
            raise LogError(f"/tensors: {name} is of rank 0 only, but tokens are of all ranks. "
                           "Choose equal steps on all ranks.")
        if first["of"] == "whole":
            if sharing.is_own(name) and any(other != first for other in others):
                continue
            if "digest" in first:
                _same([entry["digest"] for entry in (first, *others)],
                      f"step {step}: digest of {name}", sharing.REMEDY, _hex)
            elif any(other != first for other in others):
                raise LogError(f"step {step}: statistics of {name} differ between ranks, but must be "
                               f"the same. {sharing.REMEDY}")
            merged[name] = first
            continue
        entry = dict(first)
        for other in others:
            if "digest" in entry:
                entry["digest"] = entry["digest"] + other["digest"] & _MASK
            if "moments" in entry:
                entry["moments"] = tensors.merge_moments(entry["moments"], other["moments"])
        merged[name] = entry
    return merged


def _merge_loads(rows, step):
    """Counts of all ranks, and what they must add up to."""
    layers = _same([list(row["experts"]) for row in rows], f"step {step}: the list of routers",
                   "Observe the same routers on all ranks.")
    merged = {"experts": {layer: [sum(counts) for counts in
                                  zip(*(row["experts"][layer] for row in rows))]
                          for layer in layers}}
    if all(row.get("routed") is not None for row in rows):
        merged["routed"] = sum(row["routed"] for row in rows)
        merged["slots"] = [slots[0] if len(set(slots)) == 1 else None
                           for slots in zip(*(row["slots"] for row in rows))]
        merged["dropped"] = list(map(sum, zip(*(row["dropped"] for row in rows))))
    return merged


def _merge_step(rows, sharing):
    step = rows[0]["step"]
    told = [row["grad_norm"] for row in rows]
    return {
        "row": "step", "step": step, "tokens": sum(row["tokens"] for row in rows),
        "loss": mean_loss([row["loss"] for row in rows], [row["tokens"] for row in rows]),
        "lr": _same([row["lr"] for row in rows], f"step {step}: lr", "Use one schedule."),
        "seconds": max(row["seconds"] for row in rows),
        "grad_norm": _same(told, f"step {step}: grad_norm", "Pass the norm of all ranks together."),
        "grad_squares": sharing.squares(rows, step),
        **_merge_loads(rows, step),
        "batch": _sum_of([row.get("batch") for row in rows]),
        "tensors": _merge_tensors([row["tensors"] for row in rows], step, sharing),
        "parameters": rows[0]["parameters"],
    }


def _shared_norm(split_parts):
    """The first parameter whose gradient two ranks have alike, and these ranks."""
    found = {}
    for header, steps, _ in split_parts:
        for row in steps:
            for name, norms in (row.get("norms") or {}).items():
                # A gradient of zeros tells nothing; norms were one number once.
                key = (name, row["step"], *(norms if isinstance(norms, list) else [norms]))
                if norms and found.setdefault(key, header["rank"]) != header["rank"]:
                    return key, found[key], header["rank"]
    return None


def _drop_doubled_norms(header, steps, split_parts, notes):
    """A gradient that ranks have alike would be counted once for each of them."""
    shared = _shared_norm(split_parts)
    if shared is None or all(row["grad_norm"] is not None for row in steps):
        return
    for row in steps:
        row["grad_squares"] = None
    header["norm_is_unknown"] = all(row["grad_norm"] is None for row in steps)
    (name, step, norm, *_), first, second = shared
    given = "\"sharded\"" if header["gradients"] == "sharded" else "[NAMES]"
    notes.append(
        f"step {step}: the gradient of {name} has the norm {norm!r} both on rank {first} and on rank "
        f"{second}, but with gradients={given} each rank has its own. Gradients that ranks share "
        "would count twice, so the merged log has no gradient norm. Pass grad_norm= to step(), or "
        "record with gradients=[NAMES of what no two ranks share].")


def _events(split_parts, sharing, steps):
    """Rank 0's, what other ranks say of their loads and of what no operation holds,
    and the end if all finished."""
    kept = [event for event in split_parts[0][2] if event["event"] != "finish"]
    told = {event["text"] for event in kept}
    for _, _, events in split_parts[1:]:
        new = [event for event in events if event["event"] in ("loads", "unrecorded") and
               event["text"] not in told]
        kept += new
        told.update(event["text"] for event in new)
    ends = [[event for event in events if event["event"] == "finish"][-1:]
            for _, _, events in split_parts]
    # Ranks that ended at other steps have other weights.
    if all(ends) and len({len(rows) and rows[-1]["step"] for _, rows, _ in split_parts}) == 1:
        last = [end for end, in ends]
        after = f"final weights, after step {steps[-1]}," if steps else "final weights"
        kept.append({**last[0], "weights": sharing.weights(last, after)})
    return kept


def _check_ranks(headers):
    """That they are of all ranks of one run, in order."""
    ranks = [header["rank"] for header in headers]
    if any(header.get("merged") for header in headers):
        raise LogError("one of the files is a merged log, which holds all ranks already. Pass one "
                       "file of each rank.")
    count = headers[0]["ranks"]
    if len(ranks) != count or any(rank != place for place, rank in enumerate(ranks)):
        raise LogError(f"ranks {ranks} were passed, but the run has {count}, which count from 0. "
                       "Pass one file of each rank.")
    for key in ("name", "seed", "arm", "experiment", "config", "first_step", "steps_planned",
                "gradients", "own"):
        _same([header.get(key) for header in headers], key, "Pass files of one run.")


def merge(parts, notes=None):
    """Rows of one run, of the rows of all its ranks. What is to be said of it is
    appended to `notes`.

    Exact    counts are added, sums are exact, and the loss is rounded once: no
             bit depends on the order of ranks.
    Errors   LogError if they are not all ranks of one run, or if ranks differ in
             what they must share.
    """
    notes = [] if notes is None else notes
    split_parts = sorted((split(rows, f"file {i + 1}") for i, rows in enumerate(parts)),
                         key=lambda part: part[0]["rank"])
    headers = [header for header, _, _ in split_parts]
    _check_ranks(headers)
    sharing = _Sharing(headers)
    header = {**headers[0], "rank": 0, "merged": True,
              "weights": sharing.weights(headers, "initial weights")}
    if header["weights"] is None and sharing.kind != "sharded":
        notes.append("the weights of ranks were not compared, as not all ranks have digests of them. "
                     "Ranks that parted cannot be told. Record with weights=True.")
    if sharing.kind != "replicated":
        header["parameter_names"] = []
        own = [h["own_parameters"] if sharing.own else h["parameters"] for h in headers]
        header["parameters"] = headers[0]["parameters"] - own[0] + sum(own)
    by_step = [{row["step"]: row for row in steps} for _, steps, _ in split_parts]
    common = [step for step in by_step[0] if all(step in rows for rows in by_step)]
    for rank, rows in enumerate(by_step):
        if len(rows) > len(common):
            notes.append(f"rank {rank} has {len(rows)} steps, but all ranks have only "
                         f"{len(common)} in common. The merged log has these.")
    steps = [_merge_step([rows[step] for rows in by_step], sharing) for step in common]
    _drop_doubled_norms(header, steps, split_parts, notes)
    return [header, *steps, *_events(split_parts, sharing, common)]
