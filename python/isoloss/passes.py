"""Which forward passes are data, and which only compute data again.

Activation checkpointing runs layers twice. With `use_reentrant`, and in the
checkpoint functions of other libraries, an autograd function runs them without
a graph at first; its own backward, or a hook of a tensor, runs them again and
makes the graph that has gradients. Without it, they make their graph at first,
and a hook of saved tensors runs them again for what backward reads; that second
graph is thrown away. So each pass is of one of these kinds, which the call stack
tells.
"""

import sys
import weakref

import torch
from torch.autograd.function import BackwardCFunction

# Of the backward pass that this thread runs; -1: none. torch 1.13 does not tell.
_backward_pass = getattr(torch._C, "_current_graph_task_id", lambda: -1)


def _function_of(frame):
    """The context of the autograd function whose method runs in the frame."""
    if not frame.f_code.co_argcount:
        return None
    first = frame.f_locals.get(frame.f_code.co_varnames[0])
    return first if isinstance(first, BackwardCFunction) else None


def _callers(frame):
    """The functions within whose forward the frame is; the one within whose
    backward these are; and which hook of the backward pass runs all of it: one of
    saved `tensors`, of which torch's own is known, or `another`."""
    forwards = []
    while frame is not None:
        name, module = frame.f_code.co_name, frame.f_globals.get("__name__")
        if module == "torch.utils.checkpoint" and name in ("unpack", "unpack_hook"):
            return forwards, None, "tensors"
        if module == "torch.autograd" and name in ("backward", "grad"):
            return forwards, None, "another"
        context = _function_of(frame) if name in ("forward", "backward") else None
        if context is not None and name == "backward":
            return forwards, context, None
        if context is not None:
            forwards.append(context)
        frame = frame.f_back
    # On a GPU, that pass runs in a thread without the frame that began it.
    return forwards, None, "another" if _backward_pass() != -1 else None


class Places:
    """Numbers the calls of observed layers in the order of the first pass."""

    def __init__(self):
        self._next = 0
        self._open = []  # of functions whose backward has not come yet

    def new(self):
        self._next += 1
        return self._next

    def of_call(self, name):
        """Of the call of layer `name`: that of the first pass if it is a second
        one; None if the call is only run again."""
        forwards, backward, hook = _callers(sys._getframe(1))
        if hook:
            return None if hook == "tensors" or forwards else self._again(name)
        # Places of the first pass, in its order; taken one by one.
        waiting = getattr(backward, "isoloss_places", None)
        if waiting is not None and not waiting:
            return None  # a second backward through one graph
        place = waiting.pop(0)[1] if waiting else self.new()
        for context in forwards:
            if not hasattr(context, "isoloss_places"):
                context.isoloss_places = []
                self._open.append(weakref.ref(context, self._open.remove))
            context.isoloss_places.append((name, place))
        return place

    def _again(self, name):
        """Of a hook's call: the place of the oldest first pass without a graph."""
        for context in list(self._open):
            waiting = getattr(context(), "isoloss_places", ())
            for found in waiting:
                if found[0] == name:
                    waiting.remove(found)
                    return found[1]
        return None
