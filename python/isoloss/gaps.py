"""What a recorded step computed that no operation holds."""

import itertools

import torch

from . import taps

_SHOWN = 5
_EMBEDDINGS = (torch.nn.Embedding, torch.nn.EmbeddingBag)
_NOT_GIVEN = ("record() was given no optimizer for that. Pass all optimizers, and freeze with "
              "requires_grad_(False) what is not trained.")
_NOT_CALLED = ("optimizer.step() was not called. Call it before the recorder's step(), unless a "
               "gradient scaler skipped the update.")
_UNREAD = ("Only calls of linear layers are recorded, not functions such as "
           "torch.nn.functional.linear. Call the layers, or isoloss.linear(), and set `isoloss_type` "
           "on linear layers of your own classes.")


def _texts(gaps):
    groups = {}
    for what, reason, name in gaps:
        groups.setdefault((what, reason), []).append(name)
    for (what, reason), names in groups.items():
        shown = ", ".join(names[:_SHOWN])
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        plural = "s" if len(names) > 1 else ""
        yield f"{what.format(len(names), plural)}: {shown}{more}. {reason}"


class Gaps:
    """What no operation holds, of one step after the other.

    `trained` are the parameters of all optimizers.
    """

    def __init__(self, model, trained):
        self._model = model
        self._trained = {id(p) for p in trained}
        self._known = frozenset()

    def find(self, step_operations, reasons):
        """Texts of a step, and texts of what is new in it. `reasons` tell, by a
        parameter's id, why an optimizer that was called left no operation of its
        update."""
        found = [*self._updates(step_operations, reasons), *self._weights(step_operations)]
        new = [gap for gap in found if gap not in self._known]
        self._known = frozenset(found)
        return list(_texts(found)), list(_texts(new))

    def _updates(self, step_operations, reasons):
        held = {op.module for op in step_operations if op.kind == "adamw"}
        for name, parameter in self._model.named_parameters():
            if parameter.requires_grad and name not in held:
                usual = _NOT_CALLED if id(parameter) in self._trained else _NOT_GIVEN
                yield ("no operation holds the update of {} trained parameter{}",
                       reasons.get(id(parameter), usual), name)

    def _weights(self, step_operations):
        """Of linear layers, and whatever else has the shape of a weight."""
        products = [op for op in step_operations if op.kind in ("linear", "grouped_linear")]
        read = {id(op.read[1]) for op in products}
        modules = {op.module for op in products}
        for prefix, module in self._model.named_modules():
            is_watched = taps.kind_of(module) is not None
            if isinstance(module, _EMBEDDINGS):
                continue
            for name, weight in module.named_parameters(prefix, recurse=False):
                # A layer may read what it made of its parameters, such as a cast.
                own_names = itertools.accumulate(name.split("."), "{}.{}".format)
                if (weight.dim() > 1 and (is_watched or weight.requires_grad) and
                        id(weight) not in read and modules.isdisjoint(own_names)):
                    yield "no operation reads {} weight{}", _UNREAD, name
