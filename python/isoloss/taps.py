"""Reads what linear layers compute, without changing it."""

import torch

from . import modules, operations, shards

_FORWARD = ("fprop_x", "fprop_w")
_BACKWARD = ("dgrad_dy", "dgrad_w", "wgrad_dy", "wgrad_x")
# Formats of bytes, by torch's types.
_FORMATS = {"float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2", "float4_e2m1fn_x2": "e2m1x2"}


class _Tap(torch.autograd.Function):
    """The identity, whose backward shows the gradient of one use."""

    @staticmethod
    def forward(ctx, x, show):
        ctx.show = show
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        ctx.show(gradient)
        return gradient, None


def _tap(x, show):
    if x is None or not x.requires_grad:
        return x
    return _Tap.apply(x, show)


def _autocast_dtype(device):
    """What matrix products get on that device; None: what they are given."""
    try:
        enabled = torch.is_autocast_enabled(device)
    except TypeError:  # torch < 2.4
        enabled = torch.is_autocast_cpu_enabled() if device == "cpu" else torch.is_autocast_enabled()
        if not enabled:
            return None
        return torch.get_autocast_cpu_dtype() if device == "cpu" else torch.get_autocast_gpu_dtype()
    return torch.get_autocast_dtype(device) if enabled else None


def _as_held(x, dtype):
    """In the type that the product gave it, if a wider one only carried it."""
    if x is None or dtype is None or x.dtype == dtype:
        return x
    narrow = x.to(dtype)
    return narrow if torch.equal(narrow.to(x.dtype), x) else x


def _is_quantized(weight):
    """Whether it is torchao's tensor of FP8 codes and one scale."""
    return hasattr(weight, "to_original_precision") and weight._scale.numel() == 1


def _flat(x):
    return x.reshape(-1, x.shape[-1])


class Product:
    """One call of a linear layer, or of one for each group of rows.

    weight_name   of the parameter; the gradient of this use is seen by `weight`,
                  which stands for it, or is told by show_grad_weight()
    experts       number of the first group and of all, if other ranks have others
    """

    def __init__(self, kind, name, place, x, weight, bias=None, group_ends=None, dtype=None,
                 operands=None, weight_name="", experts=None):
        self.operation = operations.Operation(kind, name, place)
        # To tell layers that read one tensor, as long as the step lasts.
        self.operation.read = (x, weight_name)
        self._dtype = dtype or _autocast_dtype(x.device.type)
        self._operands = operands
        self._is_part = not shards.is_sharded(x) and kind == "grouped_linear"
        if self._is_part and shards.is_part_of_experts(weight):
            experts = (shards.first_row(weight), weight.shape[0])
        if experts is not None:
            self.operation.attributes.update(first_expert=experts[0], experts=experts[1])
        cast = self._dtype if x.dtype.is_floating_point else None
        self.operation.keep("x", x.to(cast or x.dtype), _flat)
        if _is_quantized(weight):
            self._keep_quantized(weight)
        else:
            self.operation.keep("weight", self._part(weight.to(self._dtype or weight.dtype)))
        if bias is not None:
            self.operation.keep("bias", bias.to(self._dtype or bias.dtype))
        self.operation.keep("group_ends", group_ends)
        self.x = _tap(x, self._show_grad_input)
        self.weight = weight

    def tap_weight(self):
        """What stands for the weight in this use."""
        self.weight = _tap(self.weight, self.show_grad_weight)
        return self.weight

    def _part(self, weight):
        """Of experts on several ranks, those of this one."""
        return shards.local(weight.detach()) if self._is_part else weight

    def _keep_quantized(self, weight):
        """What ranks gathered in FP8. The weight itself is that of the optimizer."""
        self.operation.keep("weight", weight.to_original_precision())
        self.operation.is_weight_lost = True
        held = {"fprop_w_codes": weight._data, "fprop_w_scales": weight._scale.float().reciprocal()}
        for part in ("codes", "scales"):
            self._keep_operand(f"fprop_w_{part}", part, held)

    def finish(self, output):
        """What the layer returns."""
        self.operation.keep("output", output, _flat)
        self._keep_operands(_FORWARD)
        return _tap(output, lambda g: self.operation.keep("grad_output", g, _flat))

    def _show_grad_input(self, gradient):
        self.operation.keep("grad_input", gradient, lambda g: _as_held(_flat(g), self._dtype))
        self._keep_operands(_BACKWARD)

    def show_grad_weight(self, gradient):
        self.operation.keep("grad_weight", self._part(gradient),
                            lambda g: _as_held(g, self._dtype))
        self._keep_operands(_BACKWARD)

    def _keep_operands(self, names):
        held = self._operands() if self._operands else None
        if not held:
            return
        for name in names:
            for part in ("codes", "scales", "tensor_scale", "amax_history"):
                self._keep_operand(f"{name}_{part}", part, held)
        if "wgrad_signs" in held:
            self.operation.keep("wgrad_signs", held["wgrad_signs"])
        for name in operations.OPERAND_ATTRIBUTES:
            if name in held:
                self.operation.attributes[name] = held[name]

    def _keep_operand(self, name, part, held):
        tensor = held.get(name)
        if tensor is None:
            return
        # Bytes of torch's own FP8 types are no numbers here.
        if tensor.element_size() == 1:
            form = _FORMATS.get(str(tensor.dtype).removeprefix("torch."))
            if part == "codes":
                form = held.get(f"{name.removesuffix('_codes')}_format", form or "e4m3")
            else:
                form = held.get(f"{name}_format", form)
            if form:
                self.operation.formats[name] = form
            tensor = tensor.view(torch.uint8)
        self.operation.keep(name, tensor)


def kind_of(module):
    """`linear`, `grouped_linear` or None."""
    named = getattr(module, "isoloss_type", None)
    if named is not None:
        return named
    return "linear" if isinstance(module, torch.nn.Linear) else None


def is_border(region, module):
    """Whether a compiled region is that module, and no larger one."""
    return region is module or region._modules.get("_orig_mod") is module


class _Uses:
    """Uses of weights within compiled regions, whose gradients come as one."""

    def __init__(self):
        self._open = {}
        self._handles = []

    def add(self, weight, product):
        if not (weight.requires_grad and weight.is_leaf):
            return
        waiting = self._open.setdefault(id(weight), [])
        waiting.append(product)
        if len(waiting) == 1:
            node = weight.view_as(weight).grad_fn.next_functions[0][0]
            handle = node.register_prehook(
                lambda gradients: self._show(id(weight), gradients[0]))
            # Without its node, a hook is lost.
            self._handles.append((handle, node))

    def _show(self, key, gradient):
        products = self._open.pop(key, [])
        # Nothing tells the parts of several uses.
        if len(products) == 1 and gradient is not None:
            products[0].show_grad_weight(gradient)

    def remove(self):
        for handle, _ in self._handles:
            handle.remove()


class ModuleHooks:
    """Watches the linear layers of a model until removed.

    `names` are those of parameters by their id. `begin(product)` is called for
    each call in the forward pass of which `place_of(name)` says that it is data,
    and where it belongs. While a layer computes, its weight is a tapped copy, so
    that a weight with several uses shows the gradient of each. A layer that is a
    compiled region is watched at its border. What lies within a larger one is
    not watched, unless `within_regions`.
    """

    def __init__(self, model, names, place_of, begin, within_regions=False):
        self._names = names
        self._place_of = place_of
        self._begin = begin
        self._calls = {}  # by the module's id
        self._undo = []
        self._modules = []
        self._uses = _Uses()
        for name, module, region in modules.walk(model):
            if modules.is_wrapper(module) or kind_of(module) is None:
                continue
            if region is None or within_regions:
                self._hook(module, name, module)
            elif is_border(region, module):
                self._hook_border(region, name, module)

    def _hook(self, caller, name, module, at_border=False):
        self._modules.append(module)
        before, after = self._before(name, module, at_border), self._after(module)
        self._undo.append(caller.register_forward_pre_hook(
            lambda _, arguments: before(arguments)).remove)
        handle = caller.register_forward_hook(lambda _, arguments, output: after(output))
        self._undo.append(handle.remove)
        # It sees what the layer gives, not what other hooks make of it.
        caller._forward_hooks.move_to_end(handle.id, last=False)

    def _hook_border(self, region, name, module):
        call = getattr(region, "_compiled_call_impl", None)
        if call is None:
            self._hook(region, name, module, at_border=True)
            return
        before, after = self._before(name, module, True), self._after(module)

        def observed(*arguments, **options):
            changed = before(arguments)
            output = call(*(changed or arguments), **options)
            seen = after(output)
            return output if seen is None else seen

        region._compiled_call_impl = observed
        self._undo.append(lambda: setattr(region, "_compiled_call_impl", call))

    def _before(self, name, module, at_border):
        kind = kind_of(module)
        # A weight may have the name of another layer, which it is shared with.
        weight_name = self._names.get(id(module._parameters.get("weight")),
                                      f"{name}.weight" if name else "weight")

        def before(arguments):
            # torch.compile would take what follows for a part of the layer.
            if modules.compiling() or not arguments:
                return None
            self._end(module)  # of a call that raised an exception
            place = self._place_of(name)
            if place is None:
                return None
            grouped = kind == "grouped_linear"
            product = Product(
                kind, name, place, arguments[0], module.weight,
                bias=None if grouped else getattr(module, "bias", None),
                group_ends=arguments[1] if grouped else None,
                dtype=getattr(module, "isoloss_compute_dtype", None),
                operands=getattr(module, "isoloss_operands", None), weight_name=weight_name,
                experts=getattr(module, "isoloss_experts", None))
            self._begin(product)
            self._calls[id(module)] = product, module.__dict__.get("weight")
            if at_border:
                self._uses.add(module.weight, product)
            else:
                # Found before the parameter, which nn.Module keeps elsewhere.
                module.__dict__["weight"] = product.tap_weight()
            return (product.x, *arguments[1:])
        return before

    def _after(self, module):
        def after(output):
            if modules.compiling():
                return None
            product = self._end(module)
            return None if product is None else product.finish(output)
        return after

    def _end(self, module):
        """The open call of a module, if any, which has its weight back."""
        product, held = self._calls.pop(id(module), (None, None))
        if product is not None:
            module.__dict__.pop("weight", None)
            if held is not None:
                module.__dict__["weight"] = held
        return product

    def remove(self):
        for undo in self._undo:
            undo()
        for module in self._modules:
            self._end(module)
        self._undo.clear()
        self._uses.remove()
