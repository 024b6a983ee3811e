"""Finds what optimizers keep for a parameter: gradients, moments, masters."""

import torch

_FORMATS = ("e4m3", "e5m2")
_DATASETS = {"momentum_buffer": "momentum"}


def _format_of(dtype):
    """Of FP8 numbers of torch or Transformer Engine; None: they are no FP8 numbers."""
    name = str(dtype).lower()
    return next((found for found in _FORMATS if found in name and "uz" not in name), None)


def _codes_of(state, name):
    """Codes, scales and format of a moment in FP8; None: it is in no such format."""
    value = state[name]
    if hasattr(value, "codes") and hasattr(value, "scale"):  # torchao
        codes, scales, dtype = value.codes, value.scale, value.codes.dtype
    elif hasattr(value, "_data") and hasattr(value, "_scale_inv"):  # Transformer Engine
        codes, scales, dtype = value._data, value._scale_inv, value._fp8_dtype
    else:
        codes, dtype = value, value.dtype
        scales = state.get(f"{name}_scale")
        if scales is None:
            scales = torch.ones(1)
    kind = _format_of(dtype)
    return None if kind is None else (codes.view(torch.uint8), scales.reshape(-1).float(), kind)


def dataset_of(name):
    """What operations call a moment of that name."""
    return _DATASETS.get(name, name)


def keep(operation, name, when, state):
    """The moment of that name, `before` or `after` the step. Returns why it
    cannot be recorded, or None."""
    value, target = state[name], f"{dataset_of(name)}_{when}"
    found = _codes_of(state, name)
    if found is not None:
        for part, tensor in zip(("codes", "scales"), found):
            operation.keep(f"{target}_{part}", tensor)
        operation.formats[target] = found[2]
        # It began in another type, as zeros.
        operation.tensors.pop(target, None)
        return None
    if hasattr(value, "codes") or not value.dtype.is_floating_point:
        kind = type(value).__name__ if hasattr(value, "codes") else value.dtype
        return f"keeps `{name}` in {kind}, whose codes no operation holds."
    operation.keep(target, value)
    return None


def is_scaled(optimizer, parameter, name):
    """Whether it keeps the state of that name in FP16 with a scale, as Transformer Engine can."""
    value = optimizer.state.get(parameter, {}).get(name)
    scales = getattr(optimizer, "_scales", None)
    of_parameter = scales.get(parameter, {}) if isinstance(scales, dict) else {}
    return getattr(value, "dtype", None) is torch.float16 and (
        name in of_parameter or f"{name}_scale" in optimizer.state[parameter])


def gradient_of(parameter):
    """What an optimizer reads; None: there is none."""
    if parameter.grad is not None:
        return parameter.grad
    return getattr(parameter, "decoupled_grad", None)  # of Transformer Engine


def master_of(optimizer, parameter):
    """The FP32 master that the optimizer keeps for a parameter, or None."""
    master = optimizer.state.get(parameter, {}).get("master_param")
    if master is None or master.dtype.is_floating_point:
        return master
    # Of Transformer Engine: FP32's lower half. The weight is the upper half, rounded.
    return (parameter.detach().float().view(torch.int32) + master.to(torch.int32)).view(torch.float32)
