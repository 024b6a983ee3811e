"""Optimizers that hold others, which compute the update."""


def parts(optimizer):
    """Those that compute: one that accelerate or Megatron-Core wraps, whose groups
    are its wrapper's, or several in one container."""
    for name in ("chained_optimizers", "optimizers"):
        held = getattr(optimizer, name, None)
        if isinstance(held, (list, tuple)):
            return [part for each in held for part in parts(each)]
    # Of Megatron-Core, on a rank that trains nothing.
    if getattr(optimizer, "is_stub_optimizer", False):
        return []
    inner = getattr(optimizer, "optimizer", None)
    if inner is None or inner.param_groups is not optimizer.param_groups:
        return [optimizer]
    return parts(inner)


def renew(optimizer):
    """After step() of what it wraps was replaced: accelerate keeps that method for
    its gradient scaler."""
    if hasattr(optimizer, "_optimizer_original_step_method"):
        optimizer.__setstate__({})
