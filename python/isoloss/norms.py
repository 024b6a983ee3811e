"""Norms of the gradients that a step's optimizers read."""

import itertools
import math

import torch

from . import shards


@torch.no_grad()  # to_local() is fast then
def _norms(parameters, order=2):
    """Of gradients, of what this rank holds; of parameters, and whether these are DTensors."""
    gradients = [shards.local(shards.as_held(p.grad, p)) if is_sharded else p.grad
                 for p, is_sharded in parameters]
    # Sums are FP32, without an FP32 copy of narrower gradients. A norm refuses to narrow wider ones.
    gradients = [g.float() if g.dtype is torch.float64 else g for g in gradients]
    try:
        norms = torch._foreach_norm(gradients, order, dtype=torch.float32)
    except (AttributeError, TypeError):  # torch < 2.5
        norms = [torch.linalg.vector_norm(g, order, dtype=torch.float32) for g in gradients]
    device = gradients[0].device
    return torch.stack([norm.to(device) for norm in norms])


def squares_of(norms):
    """Sum of squares of float32 numbers, a whole number of 2^-298; -1: not finite."""
    if not all(map(math.isfinite, norms)):
        return -1
    return sum(int(math.ldexp(norm * norm, 298)) for norm in norms)


class GradientNorms:
    """Of one step after the other: read(), then row().

    trained       parameters of all optimizers, with their `names`, and `keys` of
                  what each rank has of them (shards.Layout.key)
    own           names of those of which each rank has its own
    sharded       whether each rank has a part of all gradients
    by_parameter  whether rows have the norm of each
    """

    def __init__(self, trained, names, keys, own, *, sharded, ranks, by_parameter):
        self._trained = [(p, shards.is_sharded(p)) for p in trained]
        self._names = names
        self._keys = ["rank*" if name in own else key for name, key in zip(names, keys)]
        self._has_shards = any(keys)
        self._own = own
        self._by_parameter = by_parameter
        # Ranks that share gradients read equal norms, whatever norm they tell.
        self._is_evidence = ranks > 1 and not sharded and any(
            not dim.endswith("*") for key in self._keys for dim in key.split() or [""])
        # Names of what ranks may share unasked, until a row has norms of them.
        self._untold = {name for name in names if ranks > 1 and (sharded or name in own)}
        self._is_told = False  # the norm, by the trainer
        self.clear()

    def clear(self):
        """Begins a step."""
        self._norms = self._pending = None
        self._first_norms = {}

    def read(self):
        """Before the first optimizer's update in the step."""
        is_known = self._pending or self._norms is not None
        if is_known or not (self._by_parameter or not self._is_told or self._is_evidence):
            return
        # A sum over ranks only to see that they did not part costs too much.
        adds_up = self._by_parameter or not self._is_told
        is_read = [p.grad is not None and (adds_up or not shards.has_open_sums(p.grad))
                   for p, _ in self._trained]
        found = list(itertools.compress(self._trained, is_read))
        if not found:
            return
        # They are waited for when the step is told: a GPU has computed them by then.
        self._pending = _norms(found), is_read
        if self._untold and not self._is_told:
            self._wait()
            self._first_norms = self._norms_of_new()

    def _wait(self):
        if self._pending:
            norms, is_read = self._pending
            norms = iter(norms.tolist())
            self._norms = [next(norms) if known else 0.0 for known in is_read]
            self._pending = None

    def overflowed(self):
        """Whether a gradient that was read is not finite."""
        self._wait()
        return self._norms is not None and not all(map(math.isfinite, self._norms))

    def _norms_of_new(self):
        """Two norms of each gradient that is the first of its parameter and not
        zero. Ranks where both are equal share it."""
        new = [(norm, p, name) for norm, p, name in zip(self._norms, self._trained, self._names)
               if name in self._untold and 0 < norm < math.inf]
        self._untold.difference_update(name for _, _, name in new)
        sums = _norms([p for _, p, _ in new], 1).tolist() if new else []
        return {name: [norm, total] for (norm, _, name), total in zip(new, sums)}

    def row(self, is_told):
        """Of the gradients that the optimizers read: of those that all ranks
        share, and of those of which each rank has its own."""
        self._is_told = is_told
        self._wait()
        row = {"grad_squares": None, "parameters": self._norms if self._by_parameter else None}
        if self._norms is None or (is_told and not self._by_parameter and not self._is_evidence):
            return row
        row["grad_squares"] = squares_of(self._norms)
        if self._own:
            row["own_squares"] = squares_of([norm for norm, name in zip(self._norms, self._names)
                                           if name in self._own])
        if self._has_shards:
            row["squares"] = {key: squares_of([norm for norm, other in zip(self._norms, self._keys)
                                             if other == key]) for key in self._keys}
        if self._first_norms:
            row["norms"] = self._first_norms
        return row
