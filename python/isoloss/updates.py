"""Reads what optimizers compute, without changing it."""

import inspect

import torch

from . import modules, muon, operations, shards, states

_MOMENTS = ("exp_avg", "exp_avg_sq")
# Classes of Adam's rule beside torch's Adam, and what says that the decay is no L2 one.
_ADAMS = {"AdamW": None, "FusedAdam": "adam_w_mode", "DeepSpeedCPUAdam": "adam_w_mode",
          "_AdamBase": "is_adamw"}
_KERNELS = ("adam_w_mode",)
# Settings by which torchao and others round weights in BF16 at random.
_RANDOM_ROUNDING = ("bf16_stochastic_round", "stochastic_rounding")
# Why there is no gradient: of a step that was called, and of one that was not.
_UNUSED = "found no gradient and changed nothing. Look for a layer that was not used, or a lost backward pass."
_CLEARED = ("was not called, and gradients were cleared before the recorder's step(), so that nothing tells "
           "why. Call zero_grad() after it.")


def _rule_of(optimizer):
    """The class whose step() the optimizer has, which it may inherit."""
    # The profiler of torch wraps the step() of each class anew.
    steps = [(kind, inspect.unwrap(getattr(kind, "step", None))) for kind in type(optimizer).__mro__]
    return [kind for kind, step in steps if step is steps[0][1]][-1]


def _in_fp32(number):
    return float(torch.tensor(float(number), dtype=torch.float32))


class _Adam:
    """Adam's rule with the settings of one group."""

    kind = "adamw"
    moments = _MOMENTS

    def __init__(self, optimizer, group):
        mode = _ADAMS.get(_rule_of(optimizer).__name__)
        # Kernels of these classes get FP32 numbers, and so subtract betas from 1.
        number = _in_fp32 if mode in _KERNELS else float
        beta1, beta2 = group["betas"]
        self.attributes = {
            "lr": number(group["lr"]), "beta1": number(beta1), "beta2": number(beta2),
            "eps": number(group["eps"]), "weight_decay": number(group["weight_decay"])}
        if group.get("capturable") or mode:
            self.attributes["corrections"] = "float32"
        if self.attributes["weight_decay"] and not self._is_decoupled(optimizer, group):
            self.attributes["decay"] = "l2"
        if any(group.get(name, getattr(optimizer, name, False)) for name in _RANDOM_ROUNDING):
            self.attributes["rounding"] = "stochastic"
        self.coefficients = None
        self._group = group

    @staticmethod
    def _is_decoupled(optimizer, group):
        rule = _rule_of(optimizer)
        if rule is torch.optim.Adam:  # from torch 2.6 on AdamW is one
            return group.get("decoupled_weight_decay", False)
        mode = _ADAMS.get(rule.__name__)
        return mode is None or bool(getattr(optimizer, mode, True))

    def step_of(self, state):
        """The count of the bias correction; None: there is none."""
        step = state.get("step", self._group.get("step"))
        return None if step is None else int(step)

    @staticmethod
    def reason_against(optimizer, group):
        """Why no operation `adamw` is the group's update; None: it is one."""
        name, reason = type(optimizer).__name__, None
        options = [option for option in ("amsgrad", "maximize") if group.get(option)]
        if not group.get("bias_correction", True):
            options.append("bias_correction=False")
        if getattr(optimizer, "isoloss_type", None) != "adamw":
            rule = _rule_of(optimizer)
            if rule is not torch.optim.Adam and rule.__name__ not in _ADAMS:
                reason = (" If the optimizer computes the same, set its attribute isoloss_type = "
                          "\"adamw\", or \"muon\".")
        if not options and reason is None:
            missing = {"lr", "betas", "eps", "weight_decay"} - group.keys()
            return f"{name} has no `{min(missing)}` in its groups." if missing else None
        return (f"{' with '.join([name, *options])} is not the rule of torch.optim.AdamW or Muon, by "
                f"which alone updates are recorded and checked.{reason or ''}")


def _rule(optimizer, group):
    """The group's rule, or a text why there is none."""
    if muon.is_muon(optimizer, group):
        return muon.Muon(optimizer, group)
    return _Adam.reason_against(optimizer, group) or _Adam(optimizer, group)


class Update:
    """One step of an optimizer: before(), the step, after().

    names    of the parameters of the model and of the optimizer, by their id
    weights  the model's parameters that copy one of the optimizer's, by its id
    """

    def __init__(self, optimizer, names, weights):
        self._optimizer = optimizer
        self._names = names
        self._weights = weights
        self._open = []
        self.reasons = {}  # by the parameter's name, why no operation holds its update

    def before(self, was_called=True):
        """When gradients are there. Of several calls, as a closure's, the last counts."""
        self._open, self.reasons = [], {}
        gradients = [states.gradient_of(p) for group in self._optimizer.param_groups
                     for p in group["params"]]
        are_cleared = not was_called and not any(
            gradient is not None and bool(shards.local(gradient).any()) for gradient in gradients)
        for group in self._optimizer.param_groups:
            rule = _rule(self._optimizer, group)
            for parameter in group["params"]:
                if are_cleared or states.gradient_of(parameter) is None:
                    self.reasons[self._name(parameter)] = (
                        f"{type(self._optimizer).__name__} {_UNUSED if was_called else _CLEARED}")
                elif isinstance(rule, str):
                    self.reasons[self._name(parameter)] = rule
                else:
                    self._begin(parameter, rule)

    def _name(self, parameter):
        return self._names.get(id(parameter), "")

    def _begin(self, parameter, rule):
        operation = operations.Operation(rule.kind, self._name(parameter))
        state = self._optimizer.state.get(parameter, {})
        master = states.master_of(self._optimizer, parameter)
        operation.keep("parameter_before", parameter if master is None else master)
        operation.keep("gradient", states.gradient_of(parameter))
        operation.keep("coefficients", rule.coefficients)
        for name in rule.moments:
            if state.get(name) is None:
                operation.keep(f"{states.dataset_of(name)}_before", torch.zeros_like(parameter))
            else:
                states.keep(operation, name, "before", state)
        operation.attributes = dict(rule.attributes)
        self._open.append((operation, parameter, rule))

    def after(self, places, skipped=False):
        """The operations, complete; `skipped`: of a step that was not called."""
        found_inf = getattr(self._optimizer, "found_inf", None)
        skipped = skipped or found_inf is not None and bool(float(found_inf))
        complete = []
        for operation, parameter, rule in self._open:
            state = self._optimizer.state.get(parameter, {})
            reason = self._finish(operation, parameter, rule, state, skipped)
            if reason:
                self.reasons[operation.module] = f"{type(self._optimizer).__name__} {reason}"
                continue
            operation.place = places.new()
            complete.append(operation)
        return complete

    def _finish(self, operation, parameter, rule, state, skipped):
        """Why the update cannot be recorded; None: the operation is complete."""
        missing = [name for name in rule.moments if state.get(name) is None]
        step = rule.step_of(state)
        if skipped:
            operation.attributes["expected"] = "skipped"
            # A first step that is skipped makes no state.
            missing, step = [], max(step or 0, 1)
        if missing or step is None:
            return (f"keeps no `{(missing or ['step'])[0]}`, without which its update cannot be "
                    "computed again.")
        for name in (*rule.moments, "master_param"):
            if states.is_scaled(self._optimizer, parameter, name):
                return (f"keeps `{name}` in FP16 with a scale, which no operation holds. Keep it in "
                        "FP32, BF16 or FP8 to have the update checked.")
        for name in rule.moments:
            if state.get(name) is None:
                operation.keep(f"{states.dataset_of(name)}_after", torch.zeros_like(parameter))
                continue
            reason = states.keep(operation, name, "after", state)
            if reason:
                return reason
        if getattr(self._optimizer, "grad_scale", None) is not None:
            # A fused step divides by the loss scale, and keeps what it read.
            operation.keep("gradient", states.gradient_of(parameter))
        if rule.kind == "adamw":
            operation.attributes["step"] = step
        self._keep_parameter(operation, parameter)
        return None

    def _keep_parameter(self, operation, parameter):
        master = states.master_of(self._optimizer, parameter)
        operation.weight = self._weights.get(id(parameter))
        if master is not None:
            operation.weight = parameter
            # The master's first value is the weight itself.
            operation.keep("parameter_before", operation.tensors["parameter_before"].float())
        operation.keep("parameter_after", parameter if master is None else master)


def without_flat(step_operations, parameters):
    """Without updates of what FSDP1 holds flat, which are none of whole parameters."""
    flat = {name for name, parameter in parameters.items() if modules.is_flat(parameter)}
    return [operation for operation in step_operations
            if operation.kind not in operations.UPDATES or operation.module not in flat]


def find_lost_weights(step_operations):
    """Of products that read what ranks had gathered in FP8."""
    before = {operation.module: operation.tensors["parameter_before"]
              for operation in step_operations if operation.kind in operations.UPDATES}
    for operation in step_operations:
        if operation.is_weight_lost and operation.read[1] in before:
            operation.take_weight(before[operation.read[1]])


def keep_weights(step_operations):
    """Of a model that copies its optimizer's masters, once it has done so."""
    for operation in step_operations:
        if (operation.weight is not None and
                operation.weight.shape == operation.tensors["parameter_after"].shape):
            operation.keep("weight_after", operation.weight)


def with_gradients(before, arguments, options):
    """Arguments of an optimizer's step() that calls `before` when the gradients are
    there: now, or after its closure, which makes them."""
    closure = options.get("closure", arguments[0] if arguments else None)
    if not callable(closure):
        before()
        return arguments, options

    def observed():
        loss = closure()
        before()
        return loss

    if "closure" in options:
        return arguments, {**options, "closure": observed}
    return (observed, *arguments[1:]), options
