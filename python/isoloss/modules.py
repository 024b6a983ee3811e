"""Modules and parameters of a model by canonical names: without what wrappers
put before them."""

import torch

from . import shards

# Children by which wrappers of torch hold what they wrap.
_TRANSPARENT = ("_orig_mod", "_checkpoint_wrapped_module", "_fsdp_wrapped_module")
# Wrappers whose child is called `module`.
_HOLDERS = ("DistributedDataParallel", "DataParallel", "FullyShardedDataParallel", "Float16Module",
            "DeepSpeedEngine")


class Parts(torch.nn.ModuleList):
    """Of one model, whose names tell nothing of the part."""


def is_wrapper(module):
    """Whether it stands for the module in it."""
    return any(_is_transparent(module, key) for key in module._modules)


def _is_transparent(module, key):
    return (isinstance(module, Parts) or key in _TRANSPARENT or
            key == "module" and type(module).__name__ in _HOLDERS)


def is_compiled(module):
    """Whether a call of it enters a region of torch.compile."""
    return (getattr(module, "_compiled_call_impl", None) is not None or
            "_orig_mod" in module._modules or
            hasattr(module.__dict__.get("forward"), "_torchdynamo_orig_callable"))


def walk(model):
    """(name, module, outermost compiled module that it is within or None), each
    module once, in the order of named_modules()."""
    seen = set()

    def visit(module, name, region):
        if module is None or id(module) in seen:
            return
        seen.add(id(module))
        if region is None and is_compiled(module):
            region = module
        yield name, module, region
        for key, child in module._modules.items():
            inner = name if _is_transparent(module, key) else f"{name}.{key}" if name else key
            yield from visit(child, inner, region)

    return visit(model, "", None)


def named_parameters(model):
    """As model.named_parameters(), with canonical names. Weights that
    fully_shard has gathered are given back to their ranks first."""
    seen, found = set(), []
    for _, module, _ in walk(model):
        if hasattr(module, "reshard") and hasattr(module, "unshard"):
            module.reshard()
    for prefix, module, _ in walk(model):
        for key, parameter in module._parameters.items():
            if parameter is not None and id(parameter) not in seen:
                seen.add(id(parameter))
                found.append((f"{prefix}.{key}" if prefix else key, parameter))
    return found


def name_of(model, parameter):
    """The canonical name of what is a parameter now; empty: of none."""
    for prefix, module, _ in walk(model):
        for key, found in module._parameters.items():
            if found is parameter:
                return f"{prefix}.{key}" if prefix else key
    return ""


def experts_of(model, name, weight):
    """(first expert, experts of the layer) of a rank's part of the DTensor `name`
    or `name`.weight; None: it is no such part."""
    for prefix, module, _ in walk(model):
        for key, found in module._parameters.items():
            own = f"{prefix}.{key}" if prefix else key
            if own in (name, f"{name}.weight") and found is not None:
                if (shards.is_part_of_experts(found) and not shards.is_sharded(weight) and
                        shards.local(found).shape == weight.shape):
                    return shards.first_row(found), found.shape[0]
    return None


def is_flat(parameter):
    """Whether FSDP1 holds a part of several parameters, or such a part, in it."""
    return (getattr(parameter, "_fsdp_flattened", False) or
            type(parameter).__name__ == "FlatParameter" or hasattr(parameter, "_fqns"))


def uncompiled(function):
    """The function, which torch.compile leaves as it is."""
    # Unlike torch.compiler.disable, it imports the compiler when the function is first called.
    disable = getattr(getattr(torch, "_compile", None), "_disable_dynamo", None)
    return disable(function) if disable else function


def compiling():
    """Whether torch.compile reads the code that asks."""
    compiler = getattr(torch, "compiler", None)
    return compiler is not None and getattr(compiler, "is_compiling", bool)()
