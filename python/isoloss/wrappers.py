"""Optimizers that hold another one, which computes the update."""


def innermost(optimizer):
    """That which computes. Its groups are those of its wrappers, as accelerate's."""
    inner = getattr(optimizer, "optimizer", None)
    while inner is not None and inner.param_groups is optimizer.param_groups:
        optimizer, inner = inner, getattr(inner, "optimizer", None)
    return optimizer


def renew(optimizer):
    """After step() of the innermost was replaced: accelerate keeps that method for
    its gradient scaler."""
    while optimizer is not None:
        if hasattr(optimizer, "_optimizer_original_step_method"):
            optimizer.__setstate__({})
        optimizer = getattr(optimizer, "optimizer", None)
