"""What ranks of one run share, and what each has of its own."""

import math

from . import norms, tensors
from .journal import LogError

_MASK = 0xFFFFFFFFFFFFFFFF


def same(values, what, remedy, shown=str, ranks=None):
    """The one value of all `ranks`; NaN is equal to NaN."""
    for place, value in enumerate(values):
        if value == values[0] or (value != value and values[0] != values[0]):
            continue
        first, other = (0, place) if ranks is None else (ranks[0], ranks[place])
        raise LogError(f"{what} is {shown(values[0])} on rank {first} and {shown(value)} on rank "
                       f"{other}, but must be the same on all ranks. {remedy}")
    return values[0]


def in_hex(digest):
    return f"{digest:016x}"


def _norm(squares):
    """Of a sum of squares, in words."""
    if squares < 0:
        return "not finite"
    return repr(math.sqrt(tensors.ratio(squares, 1 << 298)))


def sum_of(digests):
    """Of all ranks, which each have a key of their own."""
    return None if None in digests else sum(digests) & _MASK


class Sharing:
    """What ranks have together, by `gradients` of the recording and by the meshes
    of their DTensors."""

    REMEDY = ("The ranks parted, or drew their own initial weights: look for a lost all-reduce and "
              "for groups that clip by norms of their own. If ranks have weights of their own, "
              "record with gradients=\"sharded\" or gradients=[NAMES].")

    def __init__(self, headers):
        self.kind = headers[0]["gradients"]
        self.own = frozenset(headers[0].get("own", ()))
        self._parameter_names = [header["parameter_names"] for header in headers]
        self._keys = [header.get("keys") or [] for header in headers]
        self._coordinates = [header.get("coordinate") or {} for header in headers]
        self.ranks = len(headers)
        # Ranks with the same tokens, and ranks with the same part of the model.
        self.data_groups = _groups([header.get("data_rank", header["rank"]) for header in headers])
        self.stage_groups = _groups([header.get("stage", 0) for header in headers])
        # Of other parameters on each rank, norms differ.
        self.same_trained = len({header.get("trained") for header in headers}) == 1

    def weights(self, rows, what):
        """Digest of all weights: the sum of those of a pipeline's stages."""
        return sum_of([self._weights_of([rows[rank] for rank in group], what, group)
                       for group in self.stage_groups])

    def _weights_of(self, rows, what, ranks):
        digests = [row.get("weights") for row in rows]
        if None in digests:
            return None
        if self.kind == "replicated":
            return same(digests, f"digest of the {what}", self.REMEDY, in_hex, ranks)
        if self.own:
            own = [row["own_weights"] for row in rows]
            shared = [(a - b) & _MASK for a, b in zip(digests, own)]
            return same(shared, f"digest of the {what} that ranks share", self.REMEDY,
                        in_hex, ranks) + sum(own) & _MASK
        # Of weights that all ranks have, or of which each has a part.
        return digests[0] if len(set(digests)) == 1 else sum_of(digests)

    def squares(self, rows, step):
        """Of the gradient of all ranks; None: nobody knows, -1: not finite."""
        what = f"step {step}: norm of the gradients that the optimizer read"
        found = [self._squares_of([rows[rank] for rank in group], what, group, rows)
                 for group in self.stage_groups]
        return None if None in found else -1 if min(found) < 0 else sum(found)

    def _squares_of(self, rows, what, ranks, all_rows):
        squares = [row["grad_squares"] for row in rows]
        if None in squares:
            return None
        if any(row.get("squares") for row in rows):
            keys = same([sorted(row.get("squares") or ()) for row in rows],
                        f"{what}: the list of shards", "Distribute all ranks alike.", ranks=ranks)
            found = [self._sum(key, {rank: row["squares"][key] for rank, row in zip(ranks, rows)},
                               f"{what} of the parameters on mesh `{key}`" if key else what)
                     for key in keys]
            return -1 if min(found) < 0 else sum(found)
        if self.kind == "replicated":
            if len(self.stage_groups) == 1 and rows[0]["grad_norm"] is not None and (
                    not self.same_trained):
                return None
            return same(squares, what, self.REMEDY, _norm, ranks)
        if min(squares) < 0:
            return -1
        if not self.own:
            return sum(squares)
        own = [row["own_squares"] for row in rows]
        shared = [a - b for a, b in zip(squares, own)]
        return same(shared, f"{what} and share", self.REMEDY, _norm, ranks) + sum(own)

    def _sum(self, key, squares, what):
        """Of {rank: squares} of parameters with a key of shards.Layout. Ranks that
        differ in sharded dims alone have parts of one whole, which all wholes are."""
        dims = [dim.rstrip("*") for dim in key.split()]
        rest = [dim for dim in key.split() if not dim.endswith("*")]
        seen, wholes = {}, {}
        for rank, value in squares.items():
            own = self._coordinates[rank]
            # Ranks beyond the mesh hold further wholes.
            place = tuple(own.get(dim) for dim in dims) if key != "rank*" else rank
            turn = seen[place] = seen.get(place, -1) + 1
            whole = (turn, *(own.get(dim) for dim in rest))
            wholes.setdefault(whole, []).append((rank, value))
        if any(value < 0 for value in squares.values()):
            return -1
        sums = [sum(value for _, value in parts) for parts in wholes.values()]
        return same(sums, what, self.REMEDY, _norm, [parts[0][0] for parts in wholes.values()])

    def norms(self, rows, step):
        """Of each parameter, by the parts that ranks have; None: nobody knows."""
        if any(row["parameters"] is None for row in rows) or not any(self._keys):
            return rows[0]["parameters"]
        found = []
        for group in self.stage_groups:
            for place, key in enumerate(self._keys[group[0]]):
                total = self._sum(key, {rank: norms.squares_of([rows[rank]["parameters"][place]])
                                        for rank in group},
                                  f"step {step}: norm of the gradient of parameter "
                                  f"{self._parameter_names[group[0]][place]}")
                found.append(math.nan if total < 0 else
                             math.sqrt(tensors.ratio(total, 1 << 298)))
        return found

    def is_own(self, tensor):
        """Whether ranks may have another one each."""
        module = tensor.rpartition("_")[0]
        return self.kind == "sharded" or module in self.own or f"{module}.weight" in self.own


def _groups(keys):
    """Ranks of equal keys, in order."""
    found = {}
    for rank, key in enumerate(keys):
        found.setdefault(key, []).append(rank)
    return [found[key] for key in sorted(found)]
