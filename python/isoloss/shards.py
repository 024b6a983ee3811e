"""Tensors of which ranks hold parts (DTensor), and what ranks share.

A key tells what of a parameter each rank holds: its mesh's dims, with a star
at those in which it is sharded, as "dp_shard* tp". The key of a plain tensor
is empty, and "rank*" if each rank has its own.
"""

import contextlib

import torch

from . import xxh3

_PIPELINE = ("pp", "pipe")
_EXPERTS = ("ep", "expert")


def rank_of_process():
    """The rank, and the number of ranks."""
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    return 0, 1


def is_sharded(x):
    """Whether it is a DTensor."""
    return hasattr(x, "placements") and hasattr(x, "full_tensor")


def local(x):
    """What this rank holds."""
    return x.to_local() if hasattr(x, "to_local") else x


def full(x):
    """The whole tensor: of a DTensor, a collective of its mesh, in which FP32
    carries narrower types. Gloo knows none of them, and sums are rounded once."""
    if not is_sharded(x):
        return x
    device = x.device_mesh.device_type
    # Parameters may rest on the CPU, whose tensors a GPU's mesh cannot gather.
    held = x.detach() if x.device.type == device else x.detach().to(device)
    narrow = x.dtype.is_floating_point and x.element_size() < 4
    return (held.float() if narrow else held).full_tensor().to(x.dtype)


def has_open_sums(x):
    """Whether it is a DTensor whose ranks hold terms of a sum."""
    return is_sharded(x) and any(p.is_partial() for p in x.placements)


def as_held(gradient, parameter):
    """A gradient as ranks hold its parameter, where autograd gave it another way:
    as terms of a sum, or whole."""
    if not is_sharded(gradient) or gradient.placements == parameter.placements:
        return gradient
    return gradient.detach().redistribute(placements=parameter.placements)


def text(x):
    """Placements of a DTensor, a word for each dim of its mesh."""
    words = []
    for placement in x.placements:
        if placement.is_replicate():
            words.append("Replicate")
        elif placement.is_partial():
            words.append(f"Partial({getattr(placement, 'reduce_op', 'sum')})")
        else:
            words.append(f"Shard({placement.dim})")
    return " ".join(words)


def is_first(x):
    """Whether this rank stands for all that hold a part of the DTensor."""
    coordinate = x.device_mesh.get_coordinate()
    return coordinate is not None and not any(coordinate)


def is_part_of_experts(weight):
    """Whether this rank holds some of the experts of a weight [experts, ...]."""
    return is_sharded(weight) and weight.dim() == 3 and any(
        _splits(p) and p.dim == 0 for p in weight.placements)


def _splits(placement):
    """Shard, or another placement that splits a dim as FSDP does what is split already."""
    return not (placement.is_replicate() or placement.is_partial())


def first_row(x):
    """Of this rank's part of a DTensor that is sharded along rows."""
    count, begin = x.shape[0], 0
    for placement, size, place in zip(x.placements, x.device_mesh.shape,
                                      x.device_mesh.get_coordinate()):
        if _splits(placement) and placement.dim == 0:
            part = -(-count // size)
            begin += min(part * place, count)
            count = max(0, min(part, count - part * place))
    return begin


def _root_of(mesh):
    """The mesh that it is a part of, if this torch tells it."""
    try:
        return mesh._get_root_mesh()
    except AttributeError:
        pass
    try:
        from torch.distributed.device_mesh import _mesh_resources
        return _mesh_resources.get_root_mesh(mesh)
    except (ImportError, AttributeError):
        return mesh


def _meshes_of_data(model):
    """Along which fully_shard distributes: each rank there has tokens of its own."""
    for module in model.modules():
        if not hasattr(module, "_get_fsdp_state"):
            continue
        state = module._get_fsdp_state()
        groups = getattr(state, "_fsdp_param_groups", None) or [
            getattr(state, "_fsdp_param_group", None)]
        yield from (group.mesh_info.mesh for group in groups if group is not None)


class Layout:
    """Where this rank stands.

    mesh         {dim: size}, outermost first; none: no parameter is a DTensor
    coordinate   {dim: place}, of these dims and of others that parameters have
    data_rank, data_ranks  which part of a batch its tokens are. Ranks that
                 share tokens, as under tensor parallelism, have one data_rank
    stage        of a pipeline
    """

    def __init__(self, model, parameters, rank, ranks, *, data_rank=None, data_ranks=None,
                 stage=None):
        self.mesh, self.coordinate, self._lines = {}, {}, {}
        self.data_rank, self.data_ranks, self.stage = rank, ranks, 0
        self._find(model, parameters, data_rank is None or data_ranks is None)
        self.data_rank = self.data_rank if data_rank is None else data_rank
        self.data_ranks = self.data_ranks if data_ranks is None else data_ranks
        self.stage = self.stage if stage is None else stage
        self.is_shared = ranks > self.data_ranks  # tokens, by some ranks

    def _find(self, model, parameters, is_untold):
        """What the DTensors among the parameters tell."""
        meshes = list({id(p.device_mesh): p.device_mesh for p in parameters
                       if is_sharded(p)}.values())
        if not meshes:
            return
        root = max(map(_root_of, meshes), key=lambda mesh: mesh.size())
        self.mesh = dict(zip(self.dims(root), root.shape))
        held = {dim for mesh in meshes for dim in self.dims(mesh)}
        data = {dim for mesh in _meshes_of_data(model) for dim in self.dims(mesh)}
        shared = [dim for dim in self.coordinate if dim.startswith(_PIPELINE) or
                  dim in held and dim not in data and not dim.startswith(_EXPERTS)]
        if is_untold:
            self._share_tokens([self._lines[dim] for dim in shared])
        self.stage = next((place for dim, place in self.coordinate.items()
                           if dim.startswith(_PIPELINE)), 0)

    def row(self):
        """Of a journal's header."""
        return {"mesh": self.mesh, "coordinate": self.coordinate, "data_rank": self.data_rank,
                "data_ranks": self.data_ranks, "stage": self.stage}

    def attributes(self):
        """Of an operation file."""
        found = {"data_rank": self.data_rank, "data_ranks": self.data_ranks}
        if self.mesh:
            found["mesh"] = " ".join(f"{dim}={size}" for dim, size in self.mesh.items())
            found["coordinate"] = " ".join(str(self.coordinate[dim]) for dim in self.mesh)
        return found

    def dims(self, mesh):
        """Names of the dims of a mesh, another for each line of ranks."""
        here, found = mesh.get_coordinate(), []
        for at, name in enumerate(mesh.mesh_dim_names or [f"dim_{i}" for i in range(mesh.ndim)]):
            line = mesh.mesh[tuple(slice(None) if i == at else c
                                   for i, c in enumerate(here))].tolist()
            while self._lines.setdefault(name, line) != line:
                name += "_"
            self.coordinate[name] = here[at]
            found.append(name)
        return found

    def _share_tokens(self, lines):
        """Takes dims whose ranks share tokens out of this rank's number, those of
        the longest strides first."""
        for line in sorted(lines, key=lambda line: line[0] - line[-1]):
            if len(line) == 1:
                continue
            stride, size = line[1] - line[0], len(line)
            if line != list(range(line[0], line[0] + stride * size, stride)):
                raise ValueError(f"the ranks {line} share tokens, but are not evenly spaced. Pass "
                                 "data_rank= and data_ranks= to record().")
            outer, inner = divmod(self.data_rank, stride * size)
            self.data_rank = outer * stride + inner % stride
            self.data_ranks //= size

    def key(self, parameter):
        """What of a DTensor each rank holds."""
        if not is_sharded(parameter):
            return ""
        return " ".join(f"{dim}*" if _splits(placement) else dim for dim, placement in
                        zip(self.dims(parameter.device_mesh), parameter.placements))

    def placements(self, x):
        """Of a DTensor, a word for each dim of `mesh`, `-` if its own has not that
        dim; or for each of its own if `mesh` lacks one."""
        words = dict(zip(self.dims(x.device_mesh), text(x).split()))
        if not words.keys() <= self.mesh.keys():
            return text(x)
        return " ".join(words.get(dim, "-") for dim in self.mesh)


def gather(found, layout):
    """Makes the DTensors of a step's operations whole, and leaves each operation to
    one of the ranks that share its tokens. All ranks call it. An operation that
    not all ranks of a DTensor's mesh have loses its tensors.
    """
    with _on_device(found):
        _gather(found, layout)


def _on_device(found):
    """Of the operations' tensors: NCCL uses the current one, which a thread may have lost."""
    for op in found:
        for tensor in op.tensors.values():
            if tensor.device.type == "cuda":
                return torch.cuda.device(local(tensor).device)
    return contextlib.nullcontext()


def _gather(found, layout):
    keys = list(_keys(found, layout))
    here = (layout.data_rank, layout.stage), keys
    told = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(told, here)
    held = [set(theirs) for _, theirs in told]
    copies = set()
    for place, theirs in told[:torch.distributed.get_rank()]:
        if place == here[0]:
            copies.update(theirs)
    for op, key in zip(found, keys):
        sharded = {name: tensor for name, tensor in op.tensors.items() if is_sharded(tensor)}
        op.is_here = key not in copies
        if not all(key in held[rank] for tensor in sharded.values()
                   for rank in tensor.device_mesh.mesh.flatten().tolist()):
            op.is_here = False
        else:
            _make_whole(op, sharded, layout)
        if not op.is_here:
            op.tensors.clear()


def _keys(found, layout):
    """What tells operations apart that ranks have in common: of plain tensors, also
    their content."""
    counts = {}
    for op in found:
        call = counts[op.kind, op.module] = counts.get((op.kind, op.module), 0) + 1
        sharded = [name for name, tensor in op.tensors.items() if is_sharded(tensor)]
        content = ""
        if not sharded and layout.is_shared:
            content = [(name, _digest(tensor)) for name, tensor in op.tensors.items()]
        yield f"{op.kind} {op.module} {call} {sharded} {content}"


def _digest(tensor):
    values = tensor.cpu().contiguous().reshape(-1).view(torch.uint8)
    return xxh3.hash_bytes(values.numpy().tobytes())


def _make_whole(op, sharded, layout):
    for name, tensor in sharded.items():
        whole = full(tensor)
        # Each rank's tokens met the whole weight, wherever it was lost.
        if name != "weight" or not op.is_weight_lost:
            op.is_here = op.is_here and is_first(tensor)
        op.make_whole(name, whole.cpu() if op.is_here else None, layout.placements(tensor))
