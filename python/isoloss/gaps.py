"""What a recorded step computed that no operation holds."""

import itertools

import torch

from . import modules, operations, taps

_SHOWN = 5
EMBEDDINGS = (torch.nn.Embedding, torch.nn.EmbeddingBag)
_NOT_GIVEN = ("record() was given no optimizer for that. Pass all optimizers, and freeze with "
              "requires_grad_(False) what is not trained.")
_NOT_CALLED = ("optimizer.step() was not called. Call it before the recorder's step(), unless a "
               "gradient scaler skipped the update.")
_UNREAD = ("Only calls of linear layers are recorded, not functions such as "
           "torch.nn.functional.linear. Call the layers, or isoloss.linear(), and set `isoloss_type` "
           "on linear layers of your own classes.")
_COMPILED = ("These layers lie within larger regions of torch.compile. Record with eager=True, which "
             "runs steps with tensors without torch.compile, or compile them one by one.")
_FLAT = ("FSDP1 holds parameters flat and in parts. Use fully_shard (FSDP2), whose parameters are "
         "recorded whole.")


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

    `parameters` are those of the model by their names, `trained` names of those of
    all optimizers. Layers within regions of torch.compile are `seen` or not.
    """

    def __init__(self, model, parameters, trained, seen):
        self._parameters = parameters
        self._trained = frozenset(trained)
        names = {id(parameter): name for name, parameter in parameters.items()}
        self._weights = list(self._weights_of(model, names, seen))
        self._known = frozenset()

    @staticmethod
    def _weights_of(model, names, seen):
        """Of linear layers, and whatever else has the shape of a weight."""
        for prefix, module, region in modules.walk(model):
            if isinstance(module, EMBEDDINGS) or modules.is_wrapper(module):
                continue
            is_watched = taps.kind_of(module) is not None
            is_hidden = (region is not None and not seen and
                         not (is_watched and taps.is_border(region, module)))
            for key, weight in module._parameters.items():
                if weight is not None and weight.dim() > 1 and (is_watched or weight.requires_grad):
                    own = f"{prefix}.{key}" if prefix else key
                    yield own, names.get(id(weight), own), is_hidden

    def find(self, step_operations, reasons):
        """Texts of a step, and texts of what is new in it. `reasons` tell, by a
        parameter's name, why an optimizer that was called left no operation of its
        update."""
        found = [*self._updates(step_operations, reasons), *self._unread(step_operations)]
        new = [gap for gap in found if gap not in self._known]
        self._known = frozenset(found)
        return list(_texts(found)), list(_texts(new))

    def _updates(self, step_operations, reasons):
        held = {op.module for op in step_operations if op.kind in operations.UPDATES}
        for name, parameter in self._parameters.items():
            if parameter.requires_grad and (name not in held or modules.is_flat(parameter)):
                usual = _NOT_CALLED if name in self._trained else _NOT_GIVEN
                reason = _FLAT if modules.is_flat(parameter) else reasons.get(name, usual)
                yield "no operation holds the update of {} trained parameter{}", reason, name

    def _unread(self, step_operations):
        products = [op for op in step_operations if op.kind in ("linear", "grouped_linear")]
        read = {op.read[1] for op in products}
        called = {op.module for op in products}
        for name, first_name, is_hidden in self._weights:
            # A layer may read what it made of its parameters, such as a cast.
            own_names = itertools.accumulate(name.split("."), "{}.{}".format)
            if first_name not in read and called.isdisjoint(own_names):
                yield "no operation reads {} weight{}", _COMPILED if is_hidden else _UNREAD, name
