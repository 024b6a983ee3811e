"""Digests and statistics of what the operations of one step read and gave."""

from . import operations, tensors

# Of the tensors of a step, which isoloss lists in this order.
_PHASES = (("_weight",), ("_activation", "_output"), ("_gradient", "_dgrad"), ("_wgrad",),
           ("_parameter",), ("_update",))


def _in_order_of_computation(rows):
    """Of rows in the order of the forward pass."""
    found = {}
    for endings in _PHASES:
        names = [name for name in rows if name.endswith(endings)]
        if "_gradient" in endings:
            # Backward, but for a layer the gradient of its output comes first.
            modules = {}
            for name in names:
                modules.setdefault(name.rpartition("_")[0], []).append(name)
            names = [name for module in reversed(modules.values()) for name in module]
        found.update((name, rows[name]) for name in names)
    return found


def _wgrads(products):
    """Of each module, of all calls in the step."""
    found = {}
    for op in products:
        own = op.tensors.get("grad_weight")
        if own is not None:
            found[op.module] = found[op.module] + own if op.module in found else own
    return found


def _dgrads(products, names):
    """grad_input of each, with what isoloss adds to it: of layers of one
    module that read one tensor, each has the sum of those up to it, in the
    order of the model's parameters."""
    order = {name: place for place, name in enumerate(names)}
    sums, found = {}, {}
    for place in sorted(range(len(products)),
                        key=lambda at: order.get(products[at].read[1], len(order))):
        op = products[place]
        if "grad_input" not in op.tensors:
            continue
        key = (op.module.rpartition(".")[0], id(op.read[0]))
        own = op.tensors["grad_input"]
        sums[key] = found[place] = sums[key] + own if key in sums else own
    return found


def rows_of(step_operations, names, rank, ranks, *, digests, statistics):
    """Sums of each tensor of a step, in the order of computation.

    names   of the model's parameters, in its order
    rank, ranks   which part of the step's tokens this rank has
    """
    rows = {}
    calls = {}
    if not (digests or statistics):
        return rows

    def add(name, tensor, of, ends=None, first_row=0, first_group=None):
        entry = {"of": of}
        if first_group is not None:
            entry["first"] = first_group
        if digests:
            entry["digest"] = tensors.digest_sum(tensor, ends, first_row, first_group or 0)
        if statistics:
            entry["moments"] = tensors.moments(tensor, ends)
        old = rows.get(name)
        if old is None:
            rows[name] = entry
        elif of not in ("whole", "experts"):
            if digests:
                old["digest"] = old["digest"] + entry["digest"] & 0xFFFFFFFFFFFFFFFF
            if statistics:
                old["moments"] = tensors.merge_moments(old["moments"], entry["moments"])

    products = [op for op in step_operations if op.kind in ("linear", "grouped_linear")]
    dgrads = _dgrads(products, names)
    for place, op in enumerate(products):
        call = calls[op.module] = calls.get(op.module, -1) + 1
        ends = op.tensors.get("group_ends")
        first = (call * ranks + rank) * len(op.tensors["x"])
        for kind, key, of in (("weight", "weight", "whole"), ("activation", "x", "tokens"),
                              ("output", "output", "tokens"),
                              ("gradient", "grad_output", "tokens"),
                              ("dgrad", "grad_input", "tokens")):
            if key not in op.tensors:
                continue
            of_rows = of == "tokens"
            # Experts' rows lie in the order of one rank, so only it knows their places.
            part = "part" if of_rows and ends is not None else of
            tensor = dgrads[place] if kind == "dgrad" else op.tensors[key]
            if key == "weight" and "first_expert" in op.attributes:
                add(f"{op.module}_weight", tensor, "experts",
                    first_group=op.attributes["first_expert"])
                continue
            add(f"{op.module}_{kind}", tensor, part,
                ends if of_rows else None, first if of_rows else 0)
    for module, total in _wgrads(products).items():
        add(f"{module}_wgrad", total, "part")
    modules = {op.read[1]: op.module for op in products}
    for op in step_operations:
        if op.kind not in operations.UPDATES:
            continue
        # Experts in one module have names of their own for what is no module's `weight`.
        name = (op.module.removesuffix(".weight") if op.module.endswith(".weight") else
                modules.get(op.module, op.module))
        after, before = op.tensors["parameter_after"], op.tensors["parameter_before"]
        add(f"{name}_parameter", after, "whole")
        add(f"{name}_update", after - before, "whole")
    return _in_order_of_computation(rows)
