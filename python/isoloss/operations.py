"""Operation files: what the operations of one step read and gave
(docs/check-tensors.md)."""

import io

import h5py
import numpy
import torch

from . import run_log, shards, xxh3

VERSION = 1
_OPERANDS = tuple(f"{operand}_{part}"
                  for operand in ("fprop_x", "fprop_w", "dgrad_dy", "dgrad_w", "wgrad_dy", "wgrad_x")
                  for part in ("codes", "scales", "tensor_scale", "amax_history"))
# What was configured of operands, beside their tensors.
OPERAND_ATTRIBUTES = ("amax_margin", "amax_algorithm", "amax_ranks", "largest_block_scale",
                      *(f"{operand.removesuffix('_codes')}_four_over_six"
                        for operand in _OPERANDS if operand.endswith("_codes")))
_STATES = tuple(f"{moment}_{when}_{part}" for moment in ("exp_avg", "exp_avg_sq")
                for when in ("before", "after") for part in ("codes", "scales"))
_PRODUCT = ("x", "weight", "output", "grad_output", "grad_input", "grad_weight")

# Datasets and attributes of each type.
TYPES = {
    "linear": ((*_PRODUCT, "bias", "wgrad_signs", *_OPERANDS), OPERAND_ATTRIBUTES),
    "grouped_linear": ((*_PRODUCT, "group_ends", "wgrad_signs", *_OPERANDS),
                       ("first_expert", "experts", *OPERAND_ATTRIBUTES)),
    "router": (("logits", "scores", "bias", "expert_ids", "weights"),
               ("top_k", "score_function", "normalize", "scale", "groups", "limited_groups",
                "dropped")),
    "dispatch": (("tokens", "source", "rows"), ()),
    "combine": (("rows", "source", "weights", "addend", "output"), ()),
    "adamw": (("parameter_before", "gradient", "exp_avg_before", "exp_avg_sq_before",
               "parameter_after", "exp_avg_after", "exp_avg_sq_after", "weight_after", *_STATES),
              ("lr", "beta1", "beta2", "eps", "weight_decay", "step", "decay", "corrections",
               "rounding", "expected")),
    "muon": (("parameter_before", "gradient", "momentum_before", "parameter_after", "momentum_after",
              "weight_after", "coefficients"),
             ("lr", "momentum", "weight_decay", "eps", "scale", "ns_steps", "nesterov",
              "momentum_rule", "scale_rule", "ns_dtype", "decay", "rounding", "expected")),
    "loss": (("logits", "labels", "loss"), ("ignore_index",)),
}
# Those of optimizers.
UPDATES = ("adamw", "muon")
_INTEGER_ATTRIBUTES = {"top_k", "normalize", "step", "groups", "limited_groups",
                       "dropped", "ignore_index", "first_expert", "experts", "ns_steps", "nesterov",
                       "amax_margin", "largest_block_scale"}


class OperationError(Exception):
    """An observation that no operation file holds."""


class Operation:
    """One operation while its step lasts."""

    def __init__(self, kind, module, place=0):
        self.kind = kind
        self.module = module
        self.place = place  # in the order of computation
        self.tensors = {}
        self.attributes = {}
        self.formats = {}  # of codes, and of scales that are not E8M0
        self.placements = {}  # of what was a DTensor, in words
        self.is_here = True  # or another rank has the whole tensors
        self.read = ()  # of a product: x itself and the name of its weight
        self._later = {}  # what is done with a DTensor once it is whole
        self.is_weight_lost = False  # of a product that has codes of it alone
        self.weight = None  # of an update: the model's parameter that copies the optimizer's

    def keep(self, name, tensor, then=None):
        """A copy of then(tensor), since a trainer may write into its tensors later.
        Of a DTensor, a copy of what this rank has."""
        if tensor is None:
            return
        tensor = tensor.detach()
        if shards.is_sharded(tensor):
            self._later[name] = then
        elif then:
            tensor = then(tensor)
        self.tensors[name] = tensor.clone()

    def take_weight(self, parameter):
        """That of the optimizer, in the type of the product's."""
        dtype = self.tensors["weight"].dtype
        if shards.is_sharded(parameter):
            self._later["weight"] = lambda whole: whole.to(dtype)
            self.tensors["weight"] = parameter
        else:
            self.tensors["weight"] = parameter.to(dtype)

    def make_whole(self, name, tensor, placements):
        """In place of a DTensor; None: another rank has it."""
        self.placements[name] = placements
        then = self._later.get(name)
        self.tensors[name] = then(tensor) if then and tensor is not None else tensor


def check(kind, values):
    """That `values` are those of an operation of that type."""
    if kind not in TYPES:
        raise OperationError(f"operation `{kind}`: unknown. Known types: {', '.join(TYPES)}.")
    known = (*TYPES[kind][0], *TYPES[kind][1])
    for name in values:
        if name not in known:
            raise OperationError(f"operation `{kind}` got `{name}`, but has {', '.join(known)} "
                                 "(docs/check-tensors.md).")


def file_name(path, rank, step):
    """Beside the log `path`."""
    return path.with_name(f"{path.stem}.rank-{rank}.operations-{step:06d}.h5")


def _write_tensor(group, name, tensor, operation):
    dtype = str(tensor.dtype).removeprefix("torch.")
    if tensor.dtype.is_floating_point:
        values = tensor.to("cpu", torch.float32).numpy()
    elif name.endswith(("_codes", "_scales")):
        values = tensor.cpu().view(torch.uint8).numpy()
    else:
        values = tensor.to("cpu", torch.int64).numpy()
    if values.ndim == 0:
        values = values.reshape(1)
    dataset = group.create_dataset(name, data=values)
    if tensor.dtype.is_floating_point:
        dataset.attrs["dtype"] = dtype
    dataset.attrs["digest"] = numpy.uint64(xxh3.hash_bytes(numpy.ascontiguousarray(values).data))
    if name in operation.placements:
        dataset.attrs["placements"] = operation.placements[name]
    if name in operation.formats:
        dataset.attrs["format"] = operation.formats[name]


def write(path, attributes, operations):
    """Whole or not at all. `attributes` tell of the run and the step."""
    image = io.BytesIO()
    with h5py.File(image, "w") as file:
        file.attrs["operations_version"] = numpy.int64(VERSION)
        for name, value in attributes.items():
            kind = {int: numpy.int64, float: numpy.float64}.get(type(value), str)
            file.attrs[name] = run_log.plain(value) if kind is str else kind(value)
        root = file.create_group("operations")
        for place, operation in enumerate(operations):
            group = root.create_group(f"{place:06d}")
            group.attrs["type"] = operation.kind
            group.attrs["module"] = run_log.plain(operation.module)
            for name, value in operation.attributes.items():
                if isinstance(value, str):
                    value = run_log.plain(value)
                else:
                    value = (numpy.int64 if name in _INTEGER_ATTRIBUTES else numpy.float64)(value)
                group.attrs[name] = value
            for name, tensor in operation.tensors.items():
                _write_tensor(group, name, tensor, operation)
    run_log.replace_file(path, image.getvalue(), replace=False)
