"""Which forward passes are data, and which only compute data again.

Activation checkpointing runs layers twice. With `use_reentrant`, and in the
checkpoint functions of other libraries, an autograd function runs them without
a graph at first; its own backward runs them again and makes the graph that has
gradients. Without it, they make their graph at first, and a hook of saved
tensors runs them again for what backward reads; that second graph is thrown
away. So each pass is of one of these kinds, which the call stack tells.
"""

import sys

from torch.autograd.function import BackwardCFunction

# Names of such hooks: torch has `unpack`, from torch 2.1 on `unpack_hook`.
_HOOKS = ("unpack", "unpack_hook")


def _function_of(frame):
    """The context of the autograd function whose method runs in the frame."""
    if not frame.f_code.co_argcount:
        return None
    first = frame.f_locals.get(frame.f_code.co_varnames[0])
    return first if isinstance(first, BackwardCFunction) else None


def _callers(frame):
    """The functions within whose forward the frame is, the one within whose
    backward these are, and whether a hook of saved tensors runs all of it."""
    forwards = []
    while frame is not None:
        name = frame.f_code.co_name
        if name in _HOOKS:
            return forwards, None, True
        if name in ("forward", "backward"):
            context = _function_of(frame)
            if context is not None and name == "backward":
                return forwards, context, False
            if context is not None:
                forwards.append(context)
        frame = frame.f_back
    return forwards, None, False


class Places:
    """Numbers the calls of observed layers in the order of the first pass."""

    def __init__(self):
        self._next = 0

    def new(self):
        self._next += 1
        return self._next

    def of_call(self):
        """Of the call that asks: that of the first pass if it is a second one;
        None if the call is only run again."""
        forwards, backward, hook = _callers(sys._getframe(1))
        if hook:
            return None
        # Places of the first pass, in its order; taken one by one.
        waiting = getattr(backward, "isoloss_places", None)
        if waiting is not None and not waiting:
            return None  # a second backward through one graph
        place = waiting.pop(0) if waiting else self.new()
        for context in forwards:
            if not hasattr(context, "isoloss_places"):
                context.isoloss_places = []
            context.isoloss_places.append(place)
        return place
