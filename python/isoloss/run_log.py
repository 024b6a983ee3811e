"""Run logs of isoloss (docs/run-log.md) of the rows of a journal."""

import io
import math
import os
import stat
import struct

import h5py
import numpy

from . import journal, tensors, xxh3
from .journal import LogError, split
from .ranks import merge, mean_loss

__all__ = ["FAULTS", "LogError", "kind_of", "mean_loss", "merge", "plain", "read_part", "read_rows",
           "printable", "replace_file", "steps_of", "write_log"]

SCHEMA_VERSION = 6
FAULTS = ("loads", "batches", "gradients")  # events of steps that contradict themselves
ORIGIN = "isoloss-recorder"  # who trained it: not isoloss itself
_MOST_TEXT = 1 << 20  # characters, of 16 MiB that isoloss reads
_MOST_BYTES = 1 << 32  # of a journal, which is read whole
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
        ("tokens_per_expert", "token", "Tokens that chose the expert"),
        ("dropped_tokens", "token", "(token, slot) pairs without an expert"))),
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
_WHOLE = {"step", "tokens_seen", "dead_experts", "digest", "tokens_per_expert", "dropped_tokens", "rank", "tensor",
          "input", "rows", "columns", "groups", "batch_digest"}


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
            values = numpy.array(list(map(plain, values)), dtype=object)
        else:
            values = numpy.asarray(values, dtype=kind)
        chunk = tuple(max(1, size) for size in values.shape)
        dataset = group.create_dataset(
            field, data=values, dtype=kind, chunks=chunk,
            maxshape=(None, *values.shape[1:]), fletcher32=kind is not _TEXT)
        dataset.attrs["unit"] = unit
        dataset.attrs["description"] = meaning


def sealed(image):
    """With the trailer behind it that isoloss checks (lib/isoloss/hdf5/trailer.h)."""
    return image + b"isolossT" + struct.pack("<QQ", len(image), xxh3.hash_bytes(image))


def plain(text):
    """What a text of HDF5 can hold: no NUL, and no half of a character."""
    text = text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")
    return text if len(text) <= _MOST_TEXT else f"{text[:_MOST_TEXT]} (cut)"


def printable(text):
    """On one line, without what controls a terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def steps_of(rows):
    return sum(row["row"] == "step" for row in rows)


def kind_of(path):
    """What is there, in words; None: nothing."""
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return None
    kinds = {stat.S_IFREG: "a file", stat.S_IFDIR: "a folder", stat.S_IFLNK: "a link",
             stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket"}
    return kinds.get(stat.S_IFMT(mode), "a device")


def _put(scratch, path, replace):
    found = kind_of(path)
    if not replace and not found:
        try:
            # Unlike a rename, it fails if something came there meanwhile.
            os.link(scratch, path)
            os.unlink(scratch)
            return
        except FileExistsError:
            found = kind_of(path)
        except OSError:
            pass  # a file system without hard links
    if found and not (replace and found == "a file"):
        raise LogError(f"{path}: is {found}, which is not replaced. Pass another path, or remove "
                       "that one.")
    os.replace(scratch, path)


def replace_file(path, data, replace=True):
    """Whole or not at all. Without `replace`, nothing may be there; what is no
    file is never replaced."""
    scratch = f"{path}.{os.getpid()}.tmp"
    try:
        with open(scratch, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        _put(scratch, path, replace)
    except BaseException:
        if os.path.lexists(scratch):
            os.unlink(scratch)
        raise


def _refuse_size(path, size):
    if size > _MOST_BYTES:
        raise LogError(f"{path}: has rows of {size} bytes, but at most {_MOST_BYTES} are read. Pass a "
                       "journal or a log of the recorder.")


def read_part(path):
    """Rows of a journal or of a log of the recorder, notes on what is wrong
    with it, and whether steps are missing."""
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise LogError(f"{path}: is no file. Pass a journal or a log of the recorder.")
    with open(path, "rb") as file:
        _refuse_size(path, os.fstat(file.fileno()).st_size)
        data = file.read()
    if data.startswith(b"\x89HDF"):
        with h5py.File(io.BytesIO(data), "r") as log:
            # Neither may lie in another file.
            if not all(isinstance(log.get(name, getlink=True), h5py.HardLink)
                       for name in ("recorder", "recorder/journal")):
                raise LogError(f"{path}: has no group /recorder, so the recorder did not write it. "
                               "Pass its logs or journals.")
            lines = log["recorder/journal"]
            _refuse_size(path, lines.nbytes)
            data = b"" if lines.external or lines.is_virtual else lines[()].tobytes()
    return journal.whole(data, path)


def read_rows(path):
    """Rows alone."""
    return read_part(path)[0]


def grad_norm(row):
    """Of a step; NaN if nobody knows."""
    if row["grad_norm"] is not None:
        return row["grad_norm"]
    squares = row["grad_squares"]
    if squares is None:
        return math.nan
    return math.nan if squares < 0 else math.sqrt(tensors.ratio(squares, 1 << 298))


def _step_columns(header, steps):
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
    if header.get("norm_is_unknown"):
        del columns["grad_norm"]
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
    columns = {"step": [row["step"] for row in steps], "tokens_per_expert": counts}
    dropped = [row.get("dropped") for row in steps]
    if all(dropped) and any(map(any, dropped)):
        columns["dropped_tokens"] = dropped
    return columns


def _slots(steps):
    """Experts of each token, if all routers have equally many and see the tokens
    that the steps count; None: that is not so, or nobody knows."""
    found = {slots for row in steps for slots in row.get("slots") or [None]}
    if len(found) != 1 or any(row.get("routed") != row["tokens"] for row in steps):
        return None
    return found.pop()


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
    whole = header["ranks"] == 1 or header["gradients"] == "replicated" and (
        header.get("merged") or not any(header.get("keys", ())))
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
    config = header.get("config", "").encode("utf-8", "backslashreplace")
    slots = _slots(steps)
    return {
        **({"top_k": slots} if slots else {}),
        "tool_version": header["tool_version"], "commit": "unknown", "compiler": "",
        "cpu_target": header["device"], "experiment_name": header.get("experiment", ""),
        "experiment_text": "", "experiment_digest": "",
        "config_digest": _hex(xxh3.hash_bytes(config)) if config else "",
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


def _check_header(header, path):
    for keys, kind, name in ((("tool_version", "device", "arm", "recipe", "experiment"), str, "a text"),
                             (("seed", "threads", "ranks", "parameters"), int, "a whole number")):
        for key in keys:
            if type(header[key]) is not kind:
                raise LogError(f"{path}: `{key}` of its run is {header[key]!r:.40}, but must be "
                               f"{name}. Pass rows that the recorder wrote.")


def write_log(path, rows, replace=True):
    """The run log of the rows of one rank, or of all merged; whole or not at
    all. Without `replace`, nothing may be there.

    Errors   LogError if the rows are not those of a run.
    """
    header, steps, events = split(rows, path)
    _check_header(header, path)
    image = io.BytesIO()
    with h5py.File(image, "w") as file:
        file.attrs["schema_version"] = numpy.int64(SCHEMA_VERSION)
        for name, value in _attributes(header, steps, events).items():
            if isinstance(value, bool):
                value = numpy.bool_(value)
            elif isinstance(value, int):
                value = numpy.int64(value)
            file.attrs[name] = plain(value) if isinstance(value, str) else value
        evaluations = {event["step"]: event["loss"] for event in events
                       if event["event"] == "evaluation" and "loss" in event}
        groups = {
            "eval": {"step": list(evaluations), "loss_nats": list(evaluations.values())},
            "steps": _step_columns(header, steps), "parameters": _parameter_columns(header, steps),
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
    replace_file(path, sealed(image.getvalue()), replace)
