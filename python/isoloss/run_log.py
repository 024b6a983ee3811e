"""Run logs of isoloss (docs/run-log.md) of the rows of a journal."""

import fractions
import io
import math
import os
import struct

import h5py
import numpy

from . import journal, tensors, xxh3

SCHEMA_VERSION = 6
ORIGIN = "isoloss-recorder"  # who trained it: not isoloss itself
_TEXT = h5py.string_dtype("utf-8")
_STEP = ("step", "step", "Number of the optimizer step, from 1")

# Group, its meaning, and what its datasets are called, counted in and mean.
_GROUPS = {
    "graph": ("The tensors of a training step, in the order of announcement", (
        ("name", "", "<module>_<kind>"),
        ("module", "", "torchtitan's name of the module"),
        ("kind", "", "`weight`, `activation`, `output`, `gradient`, `dgrad`, `wgrad`, "
                     "`parameter`, `update` or `expert_ids`"),
        ("phase", "", "`forward`, `backward` or `optimizer`"),
        ("parameter", "", "Parameter that it is of; empty: none"),
        ("site", "", "GEMM site that reads or gives it; empty: none"),
        ("moe", "", "MoE layer whose choice of experts decides on its rows or slots; empty: none"),
        ("rows_of", "", "What rows stand for: `tokens`, `expert_tokens` (pairs of token and slot) "
                        "or `parameter`"),
        ("rows", "1", "Rows of a parameter's; 0: as the step has them"),
        ("columns", "1", "Values of a row"),
        ("initial_std", "1", "Standard deviation of a weight's initial values; 0: all are 1; "
                             "NaN: no weight"),
        ("initial_cut", "1", "Magnitude above which they are drawn again; NaN: no weight"))),
    "graph_inputs": ("What the operation behind each tensor reads", (
        ("tensor", "1", "Place in /graph, ascending"),
        ("input", "1", "Place in /graph of a tensor that is read"))),
    "recipe": ("What each GEMM site got: element format and scale rule of each operand and what "
               "else is not usual; empty: not quantised. Behind a space, ` in ` before how sums "
               "are made", (
        ("site", "", "Name of the site"),
        ("groups", "call", "GEMM calls of each of the three products"),
        ("fprop_x", "", "x in y = x W^T"),
        ("fprop_w", "", "W in y = x W^T"),
        ("dgrad_dy", "", "dy in dx = dy W"),
        ("dgrad_w", "", "W in dx = dy W"),
        ("wgrad_dy", "", "dy in dW = dy^T x; ` again` behind it: what dgrad made of dy is quantised "
                         "once more; ` to bf16`: dW is rounded"),
        ("wgrad_x", "", "x in dW = dy^T x; ` again` as for dy"))),
    "steps": ("One row per optimizer step", (
        _STEP,
        ("tokens_seen", "token", "Tokens trained on after this step"),
        ("loss_nats", "nat", "Mean training loss over the step's labels, before its update"),
        ("grad_norm", "1", "Global L2 norm of the gradient before clipping"),
        ("lr", "1", "Learning rate of the update"),
        ("step_seconds", "s", "Wall-clock time of the step"),
        ("tokens_per_second", "token/s", "Tokens of the step over its time"),
        ("batch_digest", "1",
         "Digest of the step's tokens and labels: equal data, equal digest"),
        ("expert_load_max_over_mean", "1",
         "Busiest expert's tokens over the mean, in the worst MoE layer"),
        ("dead_experts", "expert", "Experts without a token, summed over MoE layers"))),
    "eval": ("Held-out evaluation on fixed batches", (
        ("step", "step", "Updates made before it; 0: before the first one"),
        ("loss_nats", "nat", "Mean over sequences of equal length"))),
    "parameters": ("Each parameter in each optimizer step", (
        _STEP,
        ("names", "", "Parameters, torchtitan's names"),
        ("grad_norm", "1", "L2 norm of the gradient before clipping"))),
    "tensors": ("Tensors at chosen steps, in order of computation", (
        _STEP,
        ("names", "", "<module>_<tensor>"),
        ("digest", "1", "Digest of the content; 0 at a step without digests"),
        *tensors.STATISTICS)),
    "moe": ("Routing of each optimizer step", (
        _STEP,
        ("tokens_per_expert", "token", "Tokens that chose the expert"))),
    "exchange": ("What each optimizer step moved between ranks, payload bytes without headers",
                 (_STEP,)),
    "exchange_pairs": ("What all steps moved between each two ranks",
                       (("rank", "rank", "Sending rank, from 0"),)),
    "events": ("What happened, and when", (
        ("unix_seconds", "s", "Time since 1970-01-01 00:00 UTC"),
        ("kind", "", "`start`, `resume`, `mesh`, `checkpoint`, `damage`, `cost`, `abort`, "
                     "`interrupt` or `finish`"),
        ("text", "", "What happened, in words"))),
}
# Datasets whose columns are neither float64 nor text.
_WHOLE = {"step", "tokens_seen", "dead_experts", "digest", "tokens_per_expert", "rank", "tensor",
          "input", "rows", "columns", "groups", "batch_digest"}


class LogError(Exception):
    """Rows that are no run, or that do not fit each other."""


def _type_of(name, unit):
    if name in _WHOLE:
        return "<i8"
    return _TEXT if unit == "" else "<f8"


def _write_group(file, name, columns):
    """Those datasets of a group that `columns` has; its index always."""
    description, fields = _GROUPS[name]
    group = file.create_group(name)
    group.attrs["description"] = description
    whole = name in ("graph", "graph_inputs", "recipe", "events")
    for place, (field, unit, meaning) in enumerate(fields):
        if field not in columns and place > 0 and not whole:
            continue
        kind = _type_of(field, unit)
        values = columns.get(field, [])
        if kind is _TEXT:
            values = numpy.array(values, dtype=object)
        else:
            values = numpy.asarray(values, dtype=kind)
        chunk = tuple(max(1, size) for size in values.shape)
        dataset = group.create_dataset(
            field, data=values, dtype=kind, chunks=chunk,
            maxshape=(None, *values.shape[1:]), fletcher32=kind is not _TEXT)
        dataset.attrs["unit"] = unit
        dataset.attrs["description"] = meaning


def sealed(image):
    """With the trailer behind it that isoloss checks (lib/isoloss/runlog/trailer.h)."""
    return image + b"isolossT" + struct.pack("<QQ", len(image), xxh3.hash_bytes(image))


def replace_file(path, data):
    """Whole or not at all."""
    scratch = f"{path}.{os.getpid()}.tmp"
    with open(scratch, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(scratch, path)


def split(rows, origin):
    """Header, steps and events. `origin` is for messages."""
    if not rows or rows[0].get("row") != "header":
        raise LogError(f"{origin}: its first line does not describe a run. Pass a journal or a log "
                       "of the recorder.")
    return (rows[0], [row for row in rows if row["row"] == "step"],
            [row for row in rows if row["row"] == "event"])


def read_rows(path):
    """Rows of a journal, or of a log of the recorder."""
    with open(path, "rb") as file:
        data = file.read()
    if data.startswith(b"\x89HDF"):
        with h5py.File(io.BytesIO(data), "r") as log:
            if "recorder" not in log:
                raise LogError(f"{path}: has no group /recorder, so the recorder did not write it. "
                               "Pass its logs or journals.")
            data = log["recorder/journal"][()].tobytes()
    return journal.decode(data)


def grad_norm(row):
    """Of a step; NaN if nobody knows."""
    if row["grad_norm"] is not None:
        return row["grad_norm"]
    squares = row["grad_squares"]
    if squares is None:
        return math.nan
    return math.nan if squares < 0 else math.sqrt(tensors.ratio(squares, 1 << 298))


def _step_columns(steps):
    tokens = 0
    columns = {field: [] for field, _, _ in _GROUPS["steps"][1]}
    for row in steps:
        tokens += row["tokens"]
        loads = [max(counts) * len(counts) / sum(counts) if sum(counts) else math.nan
                 for counts in row["experts"].values()]
        known = [load for load in loads if not math.isnan(load)]
        for field, value in (
                ("step", row["step"]), ("tokens_seen", tokens), ("loss_nats", row["loss"]),
                ("grad_norm", grad_norm(row)), ("lr", row["lr"]),
                ("step_seconds", row["seconds"]),
                ("tokens_per_second", row["tokens"] / row["seconds"]),
                ("expert_load_max_over_mean", max(known, default=math.nan)),
                ("dead_experts", sum(counts.count(0) for counts in row["experts"].values()))):
            columns[field].append(value)
    columns["batch_digest"] = [tensors.finish_digest(row["batch"]) for row in steps
                               if row.get("batch") is not None]
    # A column has a value of every step, or is not there.
    if len(columns["batch_digest"]) < len(steps):
        del columns["batch_digest"]
    return columns


def _moe_columns(steps):
    if not steps or not steps[0]["experts"]:
        return {}
    counts = [list(row["experts"].values()) for row in steps]
    shapes = {tuple(len(layer) for layer in row) for row in counts}
    if len(shapes) != 1 or len(set(next(iter(shapes)))) != 1:
        raise LogError(f"/moe/tokens_per_expert: layers of {sorted(shapes)} experts, but all layers "
                       "have equally many at all steps. Observe the routers of one size only.")
    return {"step": [row["step"] for row in steps], "tokens_per_expert": counts}


def _clipped(row):
    """What clipping to a global norm took: the norm before it over that which
    the optimizer read; 1 if nobody knows."""
    told, squares = row["grad_norm"], row["grad_squares"]
    if told is None or squares is None or squares <= 0 or not math.isfinite(told):
        return 1.0
    return told / math.sqrt(tensors.ratio(squares, 1 << 298))


def _parameter_columns(header, steps):
    if not header["parameter_names"] or not steps:
        return {}
    # A rank with a part of the gradients does not know the norm of what it read of all.
    whole = header["gradients"] == "replicated" or header["ranks"] == 1
    norms = [[norm * (_clipped(row) if whole else 1.0) for norm in row["parameters"]]
             for row in steps]
    return {"step": [row["step"] for row in steps], "names": header["parameter_names"],
            "grad_norm": norms}


def _tensor_columns(steps):
    chosen = [row for row in steps if row["tensors"]]
    names = list(dict.fromkeys(name for row in chosen for name in row["tensors"]))
    if not names:
        return {}
    columns = {"step": [row["step"] for row in chosen], "names": names}
    entries = [[row["tensors"].get(name, {}) for name in names] for row in chosen]
    if any("digest" in entry for row in entries for entry in row):
        columns["digest"] = [[tensors.finish_digest(entry["digest"]) if "digest" in entry else 0
                              for entry in row] for row in entries]
    if any("moments" in entry for row in entries for entry in row):
        nothing = [math.nan] * len(tensors.STATISTICS)
        values = [[tensors.statistics(entry["moments"]) if "moments" in entry else nothing
                   for entry in row] for row in entries]
        for place, (name, _, _) in enumerate(tensors.STATISTICS):
            columns[name] = [[entry[place] for entry in row] for row in values]
    return columns


def _hex(digest):
    return "" if digest is None else f"{digest:016x}"


def _attributes(header, steps, events):
    nan = float("nan")
    planned = header["steps_planned"] or max(1, len(steps))
    finished = [event for event in events if event["event"] == "finish"]
    weights = finished[-1].get("weights") if finished else None
    config = header.get("config", "")
    return {
        "tool_version": header["tool_version"], "commit": "unknown", "compiler": "",
        "cpu_target": header["device"], "experiment_name": header.get("experiment", ""),
        "experiment_text": "", "experiment_digest": "",
        "config_digest": _hex(xxh3.hash_bytes(config.encode())) if config else "",
        "arm": header["arm"], "baseline_arm": "", "recipe": header["recipe"],
        "resolved_recipe": "", "corpus_description": "", "corpus_digest": "",
        "initial_weights_digest": _hex(header.get("weights")),
        "final_weights_digest": _hex(weights), "seed": header["seed"], "steps_planned": planned,
        "tokens_per_step": steps[0]["tokens"] if steps else 1,
        "parameters": header["parameters"], "workers": header["threads"], "transport": "none",
        "processes": header["ranks"], "ranks": header["ranks"], "expert_data_parallel": 1,
        "ranks_per_node": header["ranks"], "exchange": "", "routing": "", "numerics_digest": "",
        "quantized_gemms_per_step": 0, "gemms_per_step": 0, "unigram_entropy_nats": nan,
        "entropy_floor_nats": nan, "bigram_entropy_nats": nan, "deflated_bits": nan,
        "complete": bool(finished) and len(steps) >= planned, "origin": ORIGIN,
    }


def write_log(path, rows):
    """The run log of the rows of one rank, or of all merged; whole or not at all.

    Errors   LogError if the rows are not those of a run.
    """
    header, steps, events = split(rows, path)
    image = io.BytesIO()
    with h5py.File(image, "w") as file:
        file.attrs["schema_version"] = numpy.int64(SCHEMA_VERSION)
        for name, value in _attributes(header, steps, events).items():
            if isinstance(value, bool):
                value = numpy.bool_(value)
            elif isinstance(value, int):
                value = numpy.int64(value)
            file.attrs[name] = value
        groups = {
            "steps": _step_columns(steps), "parameters": _parameter_columns(header, steps),
            "tensors": _tensor_columns(steps), "moe": _moe_columns(steps),
            "events": {"unix_seconds": [event["unix_seconds"] for event in events],
                       "kind": [event["event"] for event in events],
                       "text": [event["text"] for event in events]}}
        for name in _GROUPS:
            _write_group(file, name, groups.get(name, {}))
        lines = b"".join(journal.encode(row) for row in rows)
        recorder = file.create_group("recorder")
        recorder.attrs["description"] = "The rows of this log as the recorder wrote them"
        recorder.create_dataset("journal", data=numpy.frombuffer(lines, numpy.uint8))
    replace_file(path, sealed(image.getvalue()))


def mean_loss(losses, tokens):
    """Of all tokens, rounded once."""
    if not all(map(math.isfinite, losses)):
        return math.fsum(losses) if not any(map(math.isinf, losses)) else math.nan
    total = sum(fractions.Fraction(loss) * count for loss, count in zip(losses, tokens))
    return float(total / sum(tokens)) if sum(tokens) else math.nan


def _same(values, what, remedy):
    if any(value != values[0] for value in values[1:]):
        raise LogError(f"{what} is {', '.join(map(str, values))} on the ranks, but must be the same. "
                       f"{remedy}")
    return values[0]


def _merge_tensors(parts):
    """Of tensors of tokens, all ranks' rows; of weights, rank 0's, which all
    have. A gradient of weights by one rank's tokens is no part of the whole in
    a way that could be merged."""
    merged = {}
    for name, first in parts[0].items():
        if first["of"] == "part":
            continue
        entry = dict(first)
        for part in parts[1:] if first["of"] == "tokens" else []:
            other = part.get(name)
            if other is None:
                raise LogError(f"/tensors: {name} is of rank 0 only, but tokens are of all ranks. "
                               "Choose equal steps on all ranks.")
            if "digest" in entry:
                entry["digest"] = entry["digest"] + other["digest"] & 0xFFFFFFFFFFFFFFFF
            if "moments" in entry:
                entry["moments"] = tensors.merge_moments(entry["moments"], other["moments"])
        merged[name] = entry
    return merged


def _sum_of(digests):
    """Of all ranks, which each have a key of their own."""
    return None if None in digests else sum(digests) & 0xFFFFFFFFFFFFFFFF


def _whole(digests):
    """Of weights that all ranks have, or of which each has a part."""
    return digests[0] if len(set(digests)) == 1 else _sum_of(digests)


def _merge_step(rows, sharded):
    step = rows[0]["step"]
    squares = [row["grad_squares"] for row in rows]
    told = [row["grad_norm"] for row in rows]
    remedy = "If each rank has gradients of its own, record with gradients=\"sharded\"."
    layers = _same([list(row["experts"]) for row in rows], f"step {step}: the list of routers",
                   "Observe the same routers on all ranks.")
    merged = {
        "row": "step", "step": step, "tokens": sum(row["tokens"] for row in rows),
        "loss": mean_loss([row["loss"] for row in rows], [row["tokens"] for row in rows]),
        "lr": _same([row["lr"] for row in rows], f"step {step}: lr", "Use one schedule."),
        "seconds": max(row["seconds"] for row in rows),
        "grad_norm": None if told[0] is None else
                     _same(told, f"step {step}: grad_norm", "Pass the norm of all ranks together."),
        "experts": {layer: [sum(counts) for counts in zip(*(row["experts"][layer] for row in rows))]
                    for layer in layers},
        "batch": _sum_of([row.get("batch") for row in rows]),
        "tensors": _merge_tensors([row["tensors"] for row in rows]),
        "parameters": rows[0]["parameters"],
    }
    if any(value is None or value < 0 for value in squares):
        merged["grad_squares"] = None if None in squares else -1
    elif sharded:
        merged["grad_squares"] = sum(squares)
    else:
        merged["grad_squares"] = _same(squares, f"step {step}: the square of the gradient's norm",
                                       remedy)
    return merged


def merge(parts):
    """Rows of one run, of the rows of all its ranks.

    Exact    counts are added, sums are exact, and the loss is rounded once: no
             bit depends on the order of ranks.
    Errors   LogError if they are not all ranks of one run.
    """
    split_parts = sorted((split(rows, f"file {i + 1}") for i, rows in enumerate(parts)),
                         key=lambda part: part[0]["rank"])
    headers = [header for header, _, _ in split_parts]
    ranks = [header["rank"] for header in headers]
    expected = list(range(headers[0]["ranks"]))
    if ranks != expected:
        raise LogError(f"ranks {ranks} were passed, but the run has {expected}. Pass one file of "
                       "each rank.")
    for key in ("name", "seed", "arm", "experiment", "config", "steps_planned", "gradients"):
        _same([header.get(key) for header in headers], key, "Pass files of one run.")
    sharded = headers[0]["gradients"] == "sharded"
    header = dict(headers[0])
    header["rank"] = 0
    header["weights"] = _whole([h.get("weights") for h in headers])
    if sharded:
        header["parameter_names"] = []
        header["parameters"] = sum(h["parameters"] for h in headers)
    by_step = [{row["step"]: row for row in steps} for _, steps, _ in split_parts]
    common = [step for step in by_step[0] if all(step in rows for rows in by_step)]
    merged = [header] + [_merge_step([rows[step] for rows in by_step], sharded) for step in common]
    finishes = [[event for event in events if event["event"] == "finish"][-1:]
                for _, _, events in split_parts]
    merged += [event for event in split_parts[0][2] if event["event"] != "finish"]
    if all(finishes):
        weights = _whole([finish.get("weights") for finish, in finishes])
        merged.append({**finishes[0][0], "weights": weights})
    return merged
