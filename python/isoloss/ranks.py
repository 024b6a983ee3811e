"""One run of the rows of all its ranks."""

import fractions
import math

from . import accumulation, tensors
from .journal import LogError, split
from .sharing import Sharing, in_hex, same, sum_of

_MASK = 0xFFFFFFFFFFFFFFFF


def mean_loss(losses, tokens):
    """Of all tokens, rounded once. What a rank without tokens tells is no loss."""
    parts = [(loss, count) for loss, count in zip(losses, tokens) if count]
    losses = [loss for loss, _ in parts]
    if not all(map(math.isfinite, losses)):
        return math.fsum(losses) if not any(map(math.isinf, losses)) else math.nan
    total = sum(fractions.Fraction(loss) * count for loss, count in parts)
    return float(total / sum(tokens)) if parts else math.nan


def _merge_tensors(parts, step, sharing):
    """Of tensors of tokens, all ranks' rows; of weights, those that all have. A
    gradient of weights by one rank's tokens is no part of the whole in a way
    that could be merged."""
    merged = {}
    for name in dict.fromkeys(name for part in parts for name in part):
        found = {rank: part[name] for rank, part in enumerate(parts) if name in part}
        first = next(iter(found.values()))
        if first["of"] == "whole":
            entry = _merge_wholes(name, found, step, sharing)
        elif first["of"] == "experts":
            entry = _merge_experts(name, found, step, sharing)
        elif first["of"] == "tokens":
            entry = _merge_tokens(name, found, sharing)
        else:
            entry = None
        if entry is not None:
            merged[name] = entry
    return merged


def _merge_wholes(name, found, step, sharing):
    """What is the same on all ranks that tell it; None: each has its own."""
    entries = list(found.values())
    differ = any(entry != entries[0] for entry in entries)
    if sharing.is_own(name) and (differ or len(entries) < sharing.ranks):
        return None
    if "digest" in entries[0]:
        same([entry["digest"] for entry in entries], f"step {step}: digest of {name}",
             sharing.REMEDY, in_hex, list(found))
    elif differ:
        raise LogError(f"step {step}: statistics of {name} differ between ranks, but must be "
                       f"the same. {sharing.REMEDY}")
    return entries[0]


def _merge_experts(name, found, step, sharing):
    """What ranks have parts of, by the number of their first expert."""
    parts = {}
    for rank, entry in found.items():
        parts.setdefault(entry["first"], {})[rank] = entry
    return _sum_of_entries([_merge_wholes(name, part, step, sharing)
                            for _, part in sorted(parts.items())])


def _merge_tokens(name, found, sharing):
    """Rows of all tokens, each once."""
    entries = []
    for group in sharing.data_groups:
        of_group = [found[rank] for rank in group if rank in found]
        if not of_group:
            told = next(iter(found))
            raise LogError(f"/tensors: {name} is of rank {told}, but not of rank {group[0]}, though "
                           "tokens are of all ranks. Choose equal steps on all ranks.")
        # Ranks that share tokens tell the same of them, or have parts of them.
        entries += of_group[:1] if all(e == of_group[0] for e in of_group) else of_group
    return _sum_of_entries(entries)


def _sum_of_entries(entries):
    entry = dict(entries[0])
    for other in entries[1:]:
        if "digest" in entry:
            entry["digest"] = entry["digest"] + other["digest"] & _MASK
        if "moments" in entry:
            entry["moments"] = tensors.merge_moments(entry["moments"], other["moments"])
    return entry


def _of_data(rows, step, sharing):
    """One row of each part of the batch, which ranks that share it tell alike."""
    found = []
    for group in sharing.data_groups:
        # Of a pipeline's stages, the last knows the loss.
        told = [rank for rank in group if rows[rank]["loss"] is not None]
        if not told:
            raise LogError(f"step {step}: none of the ranks {group} tells a loss. Pass it to step() "
                           "where it is known, and None elsewhere.")
        for key in ("loss", "tokens"):
            same([rows[rank][key] for rank in told], f"step {step}: {key} of ranks that share tokens",
                 "Pass what is of all tokens of the group, or data_rank= to record().", ranks=told)
        found.append(rows[told[0]])
    return found


def _merge_loads(rows, step, sharing):
    """Counts of all ranks, and what they must add up to."""
    stages = [[rows[rank] for rank in group] for group in sharing.stage_groups]
    layers = {}
    for group, stage in zip(sharing.stage_groups, stages):
        names = same([list(row["experts"]) for row in stage], f"step {step}: the list of routers",
                     "Observe the same routers on all ranks.", ranks=group)
        layers.update((name, (group, place)) for place, name in enumerate(names))
    merged = {"experts": {}, "slots": [], "dropped": []}
    known = all(row.get("routed") is not None for row in rows if row["experts"])
    for name, (group, place) in layers.items():
        counted = [rows[rank] for rank in _counted(rows, name, group, sharing)]
        merged["experts"][name] = [sum(counts) for counts in
                                   zip(*(row["experts"][name] for row in counted))]
        if known:
            merged["routed"] = sum(row["routed"] for row in counted)
            slots = {row["slots"][place] for row in counted}
            merged["slots"].append(slots.pop() if len(slots) == 1 else None)
            merged["dropped"].append(sum(row["dropped"][place] for row in counted))
    if not known or not layers:
        return {"experts": merged["experts"]}
    return merged


def _counted(rows, layer, stage, sharing):
    """Ranks of a stage whose loads count: of those that share tokens and route them
    alike, one."""
    found = []
    for group in sharing.data_groups:
        ranks = [rank for rank in group if rank in stage]
        loads = [rows[rank]["experts"][layer] for rank in ranks]
        is_copy = (len(ranks) > 1 and all(load == loads[0] for load in loads) and
                   rows[ranks[0]].get("routed") == rows[ranks[0]]["tokens"])
        found += ranks[:1] if is_copy else ranks
    return found


def _merge_step(rows, sharing):
    step = rows[0]["step"]
    told = [row["grad_norm"] for row in rows]
    of_data = _of_data(rows, step, sharing)
    return {
        "row": "step", "step": step, "tokens": sum(row["tokens"] for row in of_data),
        "loss": mean_loss([row["loss"] for row in of_data], [row["tokens"] for row in of_data]),
        "lr": same([row["lr"] for row in rows], f"step {step}: lr", "Use one schedule."),
        "seconds": max(row["seconds"] for row in rows),
        "grad_norm": same(told, f"step {step}: grad_norm", "Pass the norm of all ranks together."),
        "grad_squares": sharing.squares(rows, step),
        **_merge_loads(rows, step, sharing),
        "batch": sum_of([row.get("batch") for row in of_data]),
        "tensors": _merge_tensors([row["tensors"] for row in rows], step, sharing),
        "parameters": sharing.norms(rows, step),
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


def _events(split_parts, sharing, steps, faults):
    """Rank 0's, what other ranks say of their loads and of what no operation holds,
    `faults` of all together, and the end if all finished."""
    kept = [event for event in split_parts[0][2] if event["event"] != "finish"]
    told = {event["text"] for event in kept}
    for _, _, events in split_parts[1:]:
        new = [event for event in events if event["event"] in ("loads", "unrecorded") and
               event["text"] not in told]
        kept += new
        told.update(event["text"] for event in new)
    now = max((event["unix_seconds"] for _, _, events in split_parts for event in events), default=0.0)
    kept += [{"row": "event", "unix_seconds": now, "event": kind, "text": text}
             for kind, text in faults]
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
                "gradients", "own", "mesh", "data_ranks"):
        same([header.get(key) for header in headers], key, "Pass files of one run.")
    found = sorted({header.get("data_rank", header["rank"]) for header in headers})
    count = headers[0].get("data_ranks", count)
    if found != list(range(count)):
        raise LogError(f"ranks have the parts {found} of the data, but there are {count}, which count "
                       "from 0. Pass data_rank= and data_ranks= to record().")


def _merge_parameters(header, headers, sharing):
    """Number and names of all."""
    header["parameters"] = 0
    for group in sharing.stage_groups:
        stage = [headers[rank] for rank in group]
        own = [0]
        if sharing.kind != "replicated":
            own = [h["own_parameters"] if sharing.own else h["parameters"] for h in stage]
        header["parameters"] += stage[0]["parameters"] - own[0] + sum(own)
    header["parameter_names"] = [] if sharing.kind != "replicated" else [
        name for group in sharing.stage_groups for name in headers[group[0]]["parameter_names"]]


def _check_loads(steps, faults):
    """Tells the first loads that do not add up."""
    for row in steps:
        if row.get("routed") is None:
            continue
        for (layer, counts), slots, dropped in zip(row["experts"].items(), row["slots"],
                                                   row["dropped"]):
            pairs = sum(counts) + dropped
            if slots is not None and pairs != slots * row["routed"]:
                faults.append(("loads", f"step {row['step']}: the loads of router {layer} of all ranks add up to "
                             f"{pairs}, but {row['routed']} tokens with {slots} slots each have "
                             f"{slots * row['routed']}. Look for tokens that ranks lost or counted "
                             "twice."))
                return


def _check_batches(steps, sharing, faults):
    """Tells the first step in which ranks with parts of their own saw equal data."""
    for rows in steps:
        seen = {}
        for group in sharing.data_groups:
            digest = rows[group[0]].get("own_batch")
            other = seen.setdefault(digest, group[0])
            if digest is not None and other != group[0]:
                faults.append(("batches", f"step {rows[0]['step']}: ranks {other} and {group[0]} read "
                               "the same batch, but each should have a part of its own. Look for a "
                               "sampler that does not know the rank."))
                return


def _check_gradients(steps, sharing, faults):
    """Tells what is wrong with sums over micro-batches and ranks, of the first step
    that says so."""
    for rows in steps:
        of_data = _of_data(rows, rows[0]["step"], sharing)
        if all(row.get("accumulation") for row in of_data):
            texts = accumulation.texts_of([row["accumulation"] for row in of_data],
                                          rows[0]["grad_norm"])
            if texts:
                faults += [("gradients", f"step {rows[0]['step']}: {text}") for text in texts]
                return


def merge(parts, notes=None):
    """Rows of one run, of the rows of all its ranks. What is to be said of it is
    appended to `notes`. What contradicts itself in a step is an event, too.

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
    sharing = Sharing(headers)
    header = {**headers[0], "rank": 0, "merged": True,
              "weights": sharing.weights(headers, "initial weights")}
    if header["weights"] is None and sharing.kind != "sharded":
        notes.append("the weights of ranks were not compared, as not all ranks have digests of them. "
                     "Ranks that parted cannot be told. Record with weights=True.")
    _merge_parameters(header, headers, sharing)
    by_step = [{row["step"]: row for row in steps} for _, steps, _ in split_parts]
    common = [step for step in by_step[0] if all(step in rows for rows in by_step)]
    for rank, rows in enumerate(by_step):
        if len(rows) > len(common):
            notes.append(f"rank {rank} has {len(rows)} steps, but all ranks have only "
                         f"{len(common)} in common. The merged log has these.")
    of_steps = [[rows[step] for rows in by_step] for step in common]
    steps = [_merge_step(rows, sharing) for rows in of_steps]
    _drop_doubled_norms(header, steps, split_parts, notes)
    faults = []
    _check_loads(steps, faults)
    _check_batches(of_steps, sharing, faults)
    _check_gradients(of_steps, sharing, faults)
    notes += [text for _, text in faults]
    return [header, *steps, *_events(split_parts, sharing, common, faults)]
