"""Records a training loop of PyTorch: a row for each step, and at chosen steps
tensors and operations."""

import json
import math
import pathlib
import time
import types

import torch

from . import journal, operations, run_log, taps, tensors

VERSION = "0.1.0"
# Weights whose digest is taken unasked: 0.1 s for each million on one core.
MOST_DIGESTED = 10 ** 8

_active = []


class RecorderError(Exception):
    """A call that does not fit the recording."""


def _number(value):
    """Of a number or a tensor of one value."""
    return float(value.detach()) if isinstance(value, torch.Tensor) else float(value)


def _rank():
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    return 0, 1


def _norms(gradients):
    gradients = [g.to_local() if hasattr(g, "to_local") else g for g in gradients]
    gradients = [g.detach().float() for g in gradients]
    if hasattr(torch, "_foreach_norm"):
        norms = torch._foreach_norm(gradients)
    else:
        norms = [torch.linalg.vector_norm(g) for g in gradients]
    device = gradients[0].device
    return torch.stack([norm.to(device) for norm in norms]).tolist()


def _squares(norms):
    """Sum of squares of float32 numbers, a whole number of 2^-298; -1: not finite."""
    if not all(map(math.isfinite, norms)):
        return -1
    return sum(int(math.ldexp(norm * norm, 298)) for norm in norms)


# Of the tensors of a step, which isoloss lists in this order.
_PHASES = (("_weight",), ("_activation", "_output"), ("_gradient", "_dgrad"), ("_wgrad",),
           ("_parameter",), ("_update",))


def _in_order_of_computation(rows):
    """Of rows in the order of the forward pass."""
    found = {}
    for endings in _PHASES:
        names = [name for name in rows if name.endswith(endings)]
        if "_gradient" in endings:
            # Backward, but for a layer the gradient of its output comes first.
            modules = {}
            for name in names:
                modules.setdefault(name.rpartition("_")[0], []).append(name)
            names = [name for module in reversed(modules.values()) for name in module]
        found.update((name, rows[name]) for name in names)
    return found


def _wgrads(products):
    """Of each module, of all calls in the step."""
    found = {}
    for op in products:
        own = op.tensors.get("grad_weight")
        if own is not None:
            found[op.module] = found[op.module] + own if op.module in found else own
    return found


class Recorder:
    """What `record` returns; see there."""

    def __init__(self, model, optimizer, path, *, steps=None, dump=(), statistics=(), digests=(),
                 parameters=False, first_step=1, gradients="replicated", rank=None, ranks=None,
                 name=None, arm=None, recipe="", seed=None, experiment="", config=None,
                 weights=None, expected=None):
        if gradients not in ("replicated", "sharded"):
            raise RecorderError(f"gradients is `{gradients}`, but must be `replicated` or `sharded`.")
        found_rank, found_ranks = _rank()
        self.rank = found_rank if rank is None else rank
        self.ranks = found_ranks if ranks is None else ranks
        self._model = model
        self._optimizers = list(optimizer) if isinstance(optimizer, (list, tuple)) else [optimizer]
        path = pathlib.Path(path)
        self.run = name or path.stem
        self._base = path
        self.path = path.with_name(f"{path.stem}.rank-{self.rank}.h5") if self.ranks > 1 else path
        self.journal_path = self.path.with_suffix(".journal")
        self._chosen = {"dump": dump, "statistics": statistics, "digests": digests}
        for key, value in self._chosen.items():
            if not isinstance(value, range):
                self._chosen[key] = frozenset(value)
        self._step = first_step
        named = list(model.named_parameters())
        self._names = {id(parameter): key for key, parameter in named}
        self._trained = [p for o in self._optimizers for g in o.param_groups for p in g["params"]]
        self._by_parameter = parameters
        device = self._trained[0].device if self._trained else torch.device("cpu")
        self.arm = arm or recipe or "run"
        self.seed = -1 if seed is None else int(seed)
        size = sum(p.numel() for p in model.parameters())
        self._weights = size <= MOST_DIGESTED if weights is None else weights
        self._expected = expected or {}
        for kind, values in self._expected.items():
            operations.check(kind, values)
        if not isinstance(config, (str, type(None))):
            config = json.dumps(config, sort_keys=True)
        header = {
            "row": "header", "version": 1,
            "tool_version": f"isoloss-recorder {VERSION} (torch {torch.__version__})",
            "device": str(device), "name": self.run, "arm": self.arm, "recipe": recipe,
            "seed": self.seed, "experiment": experiment, "config": config or "",
            "steps_planned": steps, "rank": self.rank, "ranks": self.ranks,
            "threads": torch.get_num_threads(), "gradients": gradients,
            "parameters": max(1, sum(p.numel() for p in self._trained)),
            "parameter_names": [self._names.get(id(p), "") for p in self._trained]
                               if parameters else [],
        }
        self._header = header
        self._journal = None
        self._hooks = None
        self._wrapped = []
        self._norms_told = False
        self._last_time = None
        self._clear()

    # ---- of the user ---------------------------------------------------------

    def step(self, loss, *, tokens, lr=None, grad_norm=None, batch=None):
        """Reports an optimizer step, after optimizer.step().

        loss       mean over the step's labels, nats: of this rank, not scaled
        tokens     labels that it is the mean of
        lr         of the update; default: what the optimizer's first group had
        grad_norm  global L2 norm before clipping; default: that of the gradients
                   that the optimizer read
        batch      the step's tensors of tokens and labels, of all micro-batches:
                   one or a list. Their digest tells whether runs saw equal data

        When it returns, a kill of the process loses nothing of the step.
        """
        now = time.monotonic()
        row = {"row": "step", "step": self._step, "loss": _number(loss), "tokens": int(tokens),
               "lr": self._lr if lr is None else _number(lr),
               "seconds": max(now - self._last_time, 1e-9)}
        if row["lr"] is None:
            raise RecorderError(f"step {self._step}: optimizer.step() was not called, and no lr was "
                                "given. Call step() after the optimizer's.")
        row["grad_norm"] = None if grad_norm is None else _number(grad_norm)
        self._norms_told = grad_norm is not None
        row["grad_squares"] = None
        if self._norms is not None and (grad_norm is None or self._by_parameter):
            row["grad_squares"] = _squares(self._norms)
        row["parameters"] = self._norms if self._by_parameter else None
        row["batch"] = None if batch is None else tensors.batch_digest(batch, self.rank)
        row["experts"] = {layer: counts.tolist() for layer, counts in self._experts.items()}
        row["tensors"] = self._tensor_rows()
        if self._captures("dump"):
            operations.write(operations.file_name(self._base, self.rank, self._step),
                             self._file_attributes(row),
                             [op for op in self._operations if op.tensors])
        self._journal.append(row)
        self._step += 1
        self._clear()
        self._watch()
        self._last_time = time.monotonic() if row["tensors"] else now

    def observe(self, kind, module, **values):
        """What an operation outside of linear layers read and gave: its type and
        datasets are those of docs/operations.md. Routers are counted at every
        step, everything else is taken at steps of `dump` only."""
        operations.check(kind, values)
        if not torch.is_grad_enabled():
            return
        if kind == "router":
            experts = next(values[key].shape[-1] for key in ("logits", "scores", "bias")
                           if values.get(key) is not None)
            counts = torch.bincount(values["expert_ids"].detach().reshape(-1), minlength=experts)
            self._experts[module] = self._experts.get(module, 0) + counts
        if not self.dumping:
            return
        operation = operations.Operation(kind, module)
        if kind == "combine" and values.get("source") is None:
            # Row i is added to token i.
            values = {**values, "source": torch.arange(len(values["rows"]))}
        for key, value in {**values, **self._expected.get(kind, {})}.items():
            if isinstance(value, torch.Tensor) and key in operations.TYPES[kind][0]:
                operation.keep(key, value)
            elif value is not None:
                operation.attributes[key] = value
        self._operations.append(operation)

    def linear(self, name, function, x, weight, bias=None, dtype=None, operands=None):
        """function(x, weight) or function(x, weight, bias), seen as an operation
        `linear`."""
        if self._hooks is None or not torch.is_grad_enabled():
            return function(x, weight) if bias is None else function(x, weight, bias)
        product = taps.Product("linear", name, x, weight, bias=bias, dtype=dtype,
                               operands=operands)
        self._operations.append(product.operation)
        return product.finish(function(product.x, product.weight) if bias is None else
                              function(product.x, product.weight, bias))

    def grouped_linear(self, name, function, x, weight, group_ends, dtype=None, operands=None):
        """function(x, weight, group_ends), seen as an operation `grouped_linear`."""
        if self._hooks is None or not torch.is_grad_enabled():
            return function(x, weight, group_ends)
        product = taps.Product("grouped_linear", name, x, weight, group_ends=group_ends,
                               dtype=dtype, operands=operands)
        self._operations.append(product.operation)
        return product.finish(function(product.x, product.weight, group_ends))

    def event(self, kind, text, **values):
        """Adds a row to /events."""
        self._journal.append({"row": "event", "unix_seconds": time.time(), "event": kind,
                              "text": text, **values})

    @property
    def dumping(self):
        """Whether this step's operations are kept."""
        return self._captures("dump")

    # ---- recording -----------------------------------------------------------

    def __enter__(self):
        self._header["weights"] = self._weights_digest()
        self._journal = journal.Journal(self.journal_path, self._header)
        self.event("start", f"rank {self.rank} of {self.ranks}")
        for optimizer in self._optimizers:
            self._wrap(optimizer)
        _active.append(self)
        self._watch()
        self._last_time = time.monotonic()
        return self

    def __exit__(self, kind, error, _):
        _active.remove(self)
        if self._hooks is not None:
            self._hooks.remove()
        for optimizer, original in self._wrapped:
            if original is None:
                del optimizer.step
            else:
                optimizer.step = original
        if kind is None:
            self.event("finish", f"{self._step - 1} steps", weights=self._weights_digest())
        else:
            self.event("interrupt" if kind is KeyboardInterrupt else "abort",
                       f"{kind.__name__}: {error}")
        self._journal.sync()
        self._journal.close()
        run_log.write_log(self.path, run_log.read_rows(self.journal_path))
        self.journal_path.unlink()
        return False

    def _weights_digest(self):
        return tensors.weights_digest(self._model.named_parameters()) if self._weights else None

    def _file_attributes(self, row):
        """What an operation file tells of its run and step."""
        found = {"run": self.run, "step": self._step, "rank": self.rank, "ranks": self.ranks,
                 "arm": self.arm, "tokens": row["tokens"], "loss_nats": row["loss"]}
        if self.seed >= 0:
            found["seed"] = self.seed
        # Of several ranks, each may have another part of the weights.
        if self.ranks == 1 and self._header["weights"] is not None:
            found["initial_weights_digest"] = f"{self._header['weights']:016x}"
        norm = run_log.grad_norm(row)
        if not math.isnan(norm):
            found["grad_norm"] = norm
        return found

    def _clear(self):
        self._lr = None
        self._norms = None
        self._experts = {}
        self._operations = []
        self._parameters_before = {}

    def _captures(self, what=None):
        return any(self._step in self._chosen[key] for key in ([what] if what else self._chosen))

    def _watch(self):
        """Hooks are in place in steps that need them, and cost nothing in others."""
        if self._hooks is not None:
            self._hooks.remove()
            self._hooks = None
        if self._captures():
            self._hooks = taps.ModuleHooks(
                self._model, lambda product: self._operations.append(product.operation))

    def _wrap(self, optimizer):
        inner = optimizer.step
        self._wrapped.append((optimizer, optimizer.__dict__.get("step")))

        def step(_, *arguments, **options):
            self._before_update(optimizer)
            update = taps.Update(optimizer, self._names) if self._captures() else None
            if update:
                update.before()
            result = inner(*arguments, **options)
            if update:
                self._operations += update.after(self._expected.get("adamw", {}))
            return result

        # A method with the marks of the old one, which schedulers expect.
        step.__dict__.update(getattr(inner, "__dict__", {}))
        optimizer.step = types.MethodType(step, optimizer)

    def _before_update(self, optimizer):
        if self._lr is None:
            self._lr = _number(optimizer.param_groups[0]["lr"])
        if self._norms is None and (self._by_parameter or not self._norms_told):
            gradients = [p.grad for p in self._trained if p.grad is not None]
            if not gradients:
                return
            norms = iter(_norms(gradients))
            self._norms = [next(norms) if p.grad is not None else 0.0 for p in self._trained]

    # ---- tensors -------------------------------------------------------------

    def _tensor_rows(self):
        """Sums of each tensor, in the order of computation."""
        digests, statistics = self._captures("digests"), self._captures("statistics")
        rows = {}
        calls = {}
        if not (digests or statistics):
            return rows

        def add(name, tensor, of, ends=None, first_row=0):
            entry = {"of": of}
            if digests:
                entry["digest"] = tensors.digest_sum(tensor, ends, first_row)
            if statistics:
                entry["moments"] = tensors.moments(tensor, ends)
            old = rows.get(name)
            if old is None:
                rows[name] = entry
            elif of != "whole":
                if digests:
                    old["digest"] = old["digest"] + entry["digest"] & 0xFFFFFFFFFFFFFFFF
                if statistics:
                    old["moments"] = tensors.merge_moments(old["moments"], entry["moments"])

        products = [op for op in self._operations if op.kind in ("linear", "grouped_linear")]
        dgrads = self._dgrads(products)
        for place, op in enumerate(products):
            call = calls[op.module] = calls.get(op.module, -1) + 1
            ends = op.tensors.get("group_ends")
            first = (call * self.ranks + self.rank) * len(op.tensors["x"])
            for kind, key, of in (("weight", "weight", "whole"), ("activation", "x", "tokens"),
                                  ("output", "output", "tokens"),
                                  ("gradient", "grad_output", "tokens"),
                                  ("dgrad", "grad_input", "tokens")):
                if key not in op.tensors:
                    continue
                of_rows = of == "tokens"
                # Experts' rows lie in the order of one rank, so only it knows their places.
                part = "part" if of_rows and ends is not None else of
                tensor = dgrads[place] if kind == "dgrad" else op.tensors[key]
                add(f"{op.module}_{kind}", tensor, part,
                    ends if of_rows else None, first if of_rows else 0)
        for module, total in _wgrads(products).items():
            add(f"{module}_wgrad", total, "part")
        modules = {self._names.get(id(op.read[1])): op.module for op in products}
        for op in self._operations:
            if op.kind != "adamw":
                continue
            # Experts in one module have names of their own for what is no module's `weight`.
            name = (op.module.removesuffix(".weight") if op.module.endswith(".weight") else
                    modules.get(op.module, op.module))
            after, before = op.tensors["parameter_after"], op.tensors["parameter_before"]
            add(f"{name}_parameter", after, "whole")
            add(f"{name}_update", after - before, "whole")
        return _in_order_of_computation(rows)

    def _dgrads(self, products):
        """grad_input of each, with what isoloss adds to it: of layers of one
        module that read one tensor, each has the sum of those up to it, in the
        order of the model's parameters."""
        order = {key: place for place, key in enumerate(self._names)}
        sums, found = {}, {}
        for place in sorted(range(len(products)),
                            key=lambda at: order.get(id(products[at].read[1]), len(order))):
            op = products[place]
            if "grad_input" not in op.tensors:
                continue
            key = (op.module.rpartition(".")[0], id(op.read[0]))
            own = op.tensors["grad_input"]
            sums[key] = found[place] = sums[key] + own if key in sums else own
        return found


def record(model, optimizer, path, **options):
    """A context in which a training loop is recorded in the run log `path`.

    model       its linear layers are found by their type, or by `isoloss_type`
    optimizer   or a list of several
    steps       planned number of steps; the log is complete with them
    dump        steps whose operations are written into a file each
    statistics  steps with statistics of tensors in the log
    digests     steps with digests of tensors in the log
    parameters  whether each parameter's gradient norm is logged: as the
                optimizer read it, or if step() is told the norm from before
                clipping, as it was then
    first_step  number of the first step, of a run that is resumed
    gradients   "replicated" if all ranks have the same, "sharded" if each has
                its own part of them
    rank, ranks default: those of torch.distributed
    arm, seed   which side of a comparison the run is on, and which of its runs
                it is: the gate pairs runs of equal seeds. Default: the recipe's
                name, and the order in which the gate is given the logs
    recipe      of number formats; a name
    name        of this run, default: that of the file
    experiment  what the runs of all arms and seeds are part of
    config      text or dictionary of all settings but the recipe and the seed,
                equal for runs that may be compared
    expected    attributes of operations as they are configured, in place of what
                modules and optimizers say of themselves: {"router": {"top_k": 2}}
    weights     whether digests of all weights before and after are logged,
                default: of up to 10^8 weights

    In it, call step() of what it returns after each optimizer step.
    """
    return Recorder(model, optimizer, path, **options)


def observe(kind, module, **values):
    """Recorder.observe of the recording that this is called in, if any."""
    if _active:
        _active[-1].observe(kind, module, **values)


def linear(name, function, x, weight, bias=None, dtype=None, operands=None):
    """Recorder.linear of the recording that this is called in; without one it
    calls the function."""
    if not _active:
        return function(x, weight) if bias is None else function(x, weight, bias)
    return _active[-1].linear(name, function, x, weight, bias, dtype, operands)


def grouped_linear(name, function, x, weight, group_ends, dtype=None, operands=None):
    """Recorder.grouped_linear of the recording that this is called in; without
    one it calls the function."""
    if not _active:
        return function(x, weight, group_ends)
    return _active[-1].grouped_linear(name, function, x, weight, group_ends, dtype, operands)
