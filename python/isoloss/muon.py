"""Reads the settings of Muon from optimizers that are named so."""

import inspect

import torch

_JORDAN = (3.4445, -4.7750, 2.0315)
# Named sets of Megatron-Core and Transformer Engine, step by step.
_COEFFICIENTS = {
    "simple": (_JORDAN,),
    "quintic": ((4.0848, -6.8946, 2.9270), (3.9505, -6.3029, 2.6377), (3.7418, -5.5913, 2.3037),
                (2.8769, -3.1427, 1.2046), (2.8366, -3.0525, 1.2012)),
    "polar_express": ((8.2051, -22.9019, 16.4607), (4.0664, -2.8612, 0.5184),
                      (3.9096, -2.8234, 0.5250), (3.2856, -2.4153, 0.4853),
                      (2.2779, -1.6198, 0.3985), (1.8726, -1.2307, 0.3585),
                      (1.8564, -1.2132, 0.3568), (1.8750, -1.2500, 0.3750)),
    "aol": ((4.0098, -7.0585, 2.4635), (3.4585, -5.5479, 2.5959), (2.7573, -3.2939, 1.4254),
            (2.7215, -3.0494, 1.3169)),
}
_SCALES = {None: "original", "original": "original", "shape_scaling": "original",
           "match_rms_adamw": "match_rms_adamw", "spectral_unclamped": "unclamped",
           "unit_rms_norm": "unclamped", "spectral": "spectral"}
_NOT_SAID = object()


def is_muon(optimizer, group):
    """Whether the optimizer says that it is one, or is named so and keeps a momentum."""
    if getattr(optimizer, "isoloss_type", None) == "muon":
        return True
    steps = [kind for kind in type(optimizer).__mro__ if "step" in vars(kind)]
    return ("muon" in steps[0].__name__.lower() and "momentum" in group and
            group.get("use_muon", True))


def _first(names, *places):
    """The first setting of these names, of dictionaries; _NOT_SAID: none has any."""
    return next((place[name] for place in places for name in names if name in place), _NOT_SAID)


def _steps_of(coefficients, steps):
    """Three coefficients, or as many rows of three as there are steps."""
    rows = torch.as_tensor(coefficients, dtype=torch.float64).reshape(-1, 3)
    if len(rows) in (1, steps):
        return rows
    # The last one of a short set is repeated by Polar Express, others begin anew.
    last = len(rows) == len(_COEFFICIENTS["polar_express"])
    return torch.stack([rows[min(i, len(rows) - 1) if last else i % len(rows)] for i in range(steps)])


class Muon:
    """Muon's rule with the settings of one group. What a class does not say is left
    out, and `check-tensors` then takes each usual way for right."""

    kind = "muon"
    moments = ("momentum_buffer",)

    def __init__(self, optimizer, group):
        own = {name: value for name, value in vars(optimizer).items() if not name.startswith("_")}
        steps = _first(("ns_steps", "num_ns_steps"), group, own)
        steps = 5 if steps is _NOT_SAID else int(steps)
        decay = _first(("weight_decay", "wd"), group)
        self.attributes = {
            "lr": float(group["lr"]), "momentum": float(group["momentum"]), "ns_steps": steps,
            "weight_decay": 0.0 if decay is _NOT_SAID else float(decay),
            "eps": float(group.get("eps", 1e-7))}
        if not group.get("use_decoupled_weight_decay", True) and self.attributes["weight_decay"]:
            self.attributes["decay"] = "l2"
        self._add_choices(optimizer, group)
        named = _first(("coefficient_type",), group, own)
        coefficients = _first(("ns_coefficients", "coefficients"), group, own)
        if coefficients is _NOT_SAID:
            coefficients = _COEFFICIENTS.get(named, (_JORDAN,))
        self.coefficients = _steps_of(coefficients, steps)

    def _add_choices(self, optimizer, group):
        """What the classes of torch, Jordan, Moonshot and Transformer Engine compute."""
        step = inspect.unwrap(type(optimizer).step)
        is_torch = step.__module__ == "torch.optim._muon"
        said = {"nesterov", "ns_steps", "num_ns_steps", "scale_mode"} & group.keys()
        chosen = self.attributes
        if "nesterov" in group:
            chosen["nesterov"] = int(group["nesterov"])
        elif not said:  # Jordan's newer ones have no settings
            chosen["nesterov"] = 1
        if is_torch or not said or "scale_mode" in group:
            chosen["momentum_rule"] = "lerp"
        mode = group.get("adjust_lr_fn") if is_torch else group.get("scale_mode", _NOT_SAID)
        if hasattr(optimizer, "adjust_lr_for_muon"):  # Moonshot's
            chosen.update(momentum_rule="sum", scale_rule="match_rms_adamw")
        elif mode is not _NOT_SAID and mode in _SCALES:
            chosen["scale_rule"] = _SCALES[mode]
        elif not said:
            chosen["scale_rule"] = "original"
        if group.get("extra_scale_factor", 1.0) != 1.0:
            chosen["scale"] = float(group["extra_scale_factor"])
        if is_torch or not said:
            chosen["ns_dtype"] = "bfloat16"

    @staticmethod
    def step_of(_):
        """Muon corrects no bias, so its steps are not counted."""
        return 1
