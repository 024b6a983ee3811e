"""Records a training loop of PyTorch: a row for each step, and at chosen steps
tensors and operations."""

import fnmatch
import glob
import json
import math
import pathlib
import time
import types
import warnings

import torch

from . import (accumulation, expectations, gaps, journal, loads, modules, norms, operations, passes,
               run_log, shards, step_tensors, taps, tensors, updates, wrappers, xxh3)
from .version import VERSION

# Weights whose digest is taken unasked: 0.1 s for each million on one core.
MOST_DIGESTED = 10 ** 8

active = []


class RecorderError(Exception):
    """A call that does not fit the recording."""


def _number(value):
    """Of a number or a tensor of one value."""
    return float(shards.full(value.detach())) if isinstance(value, torch.Tensor) else float(value)


class Recorder:
    """What recording.record returns; see there."""

    def __init__(self, model, optimizer, path, *, steps=None, dump=(), statistics=(), digests=(),
                 parameters=False, first_step=1, gradients=None, rank=None, ranks=None,
                 data_rank=None, data_ranks=None, stage=None, eager=False, name=None, arm=None,
                 recipe="", seed=None, experiment="", config=None, weights=None, expected=None):
        found_rank, found_ranks = shards.rank_of_process()
        self.rank = found_rank if rank is None else rank
        self.ranks = found_ranks if ranks is None else ranks
        self.arm = str(arm or recipe or "run")
        self.seed = -1 if seed is None else int(seed)
        self._base = path = pathlib.Path(path)
        self.run = name or path.stem
        self.path = path.with_name(f"{path.stem}.rank-{self.rank}.h5") if self.ranks > 1 else path
        self.journal_path = self.path.with_suffix(".journal")
        self._model = model = modules.Parts(model) if isinstance(model, (list, tuple)) else model
        self._given = list(optimizer) if isinstance(optimizer, (list, tuple)) else [optimizer]
        self._optimizers = [part for given in self._given for part in wrappers.parts(given)]
        self._trained = [p for o in self._optimizers for g in o.param_groups for p in g["params"]]
        self._parameters = dict(modules.named_parameters(model))
        self._names = {id(parameter): key for key, parameter in self._parameters.items()}
        # Optimizers may have FP32 masters, which Megatron's parameters name so.
        self._copies = {id(parameter.main_param): parameter for parameter in self._parameters.values()
                        if isinstance(getattr(parameter, "main_param", None), torch.Tensor)}
        self._names.update((key, self._name(copy)) for key, copy in self._copies.items())
        flat = any(map(modules.is_flat, self._parameters.values()))
        if gradients is None:
            gradients = "sharded" if flat else "replicated"
        self._own = self._own_names(gradients, list(self._parameters))
        self._layout = shards.Layout(
            model, self._parameters.values(), self.rank, self.ranks, data_rank=data_rank,
            data_ranks=data_ranks, stage=stage)
        self._eager = eager
        size = sum(p.numel() for p in self._parameters.values())
        # Digests of flat parts are equal to no other layout's.
        self._weights = size <= MOST_DIGESTED and not flat if weights is None else weights
        self._chosen = {key: value if isinstance(value, range) else frozenset(value) for key, value in
                        (("dump", dump), ("statistics", statistics), ("digests", digests))}
        self._step = first_step
        self._expected = expectations.Expectations(expected)
        self._header = self._header_of(recipe, experiment, config, steps, gradients, parameters)
        trained = list(map(self._name, self._trained))
        self._norms = norms.GradientNorms(
            self._trained, trained,
            self._header["keys"], self._own, sharded=gradients == "sharded", ranks=self.ranks,
            by_parameter=parameters)
        self._gaps = gaps.Gaps(model, self._parameters, trained, eager)
        self._places = passes.Places()
        self._journal = self._hooks = self._stance = self._last_time = None
        self._recording = time.time_ns()
        self._wrapped = []
        self._is_trained = False  # once an optimizer was called
        self._captured = frozenset()  # of what is chosen, what this step keeps
        self._loads_told = False
        self._clear()

    # ---- of the user ---------------------------------------------------------

    def _name(self, parameter):
        return self._names.get(id(parameter), "")

    @staticmethod
    def _own_names(gradients, names):
        """Of the parameters of which each rank has its own."""
        if gradients in ("replicated", "sharded"):
            return frozenset()
        known = ("gradients is {!r}, but must be `replicated`, `sharded`, or a list of names of the "
                 "parameters that each rank has of its own, such as [\"*.experts.*\"].")
        if isinstance(gradients, str):
            raise RecorderError(known.format(gradients))
        for pattern in gradients:
            if not fnmatch.filter(names, pattern):
                raise RecorderError(f"gradients has `{pattern}`, but no parameter has that name. "
                                    f"Names are {', '.join(names[:5])} and so on.")
        return frozenset(name for name in names
                         if any(fnmatch.fnmatchcase(name, pattern) for pattern in gradients))

    def step(self, loss, *, tokens, lr=None, grad_norm=None, batch=None, routed=None):
        """Reports an optimizer step, after optimizer.step().

        loss       mean over the step's labels, nats: of this rank, not scaled.
                   None: another stage of the pipeline tells it
        tokens     labels that it is the mean of
        lr         of the update; default: what the optimizer's first group had
        grad_norm  global L2 norm before clipping; default: that of the gradients
                   that the optimizer read
        batch      the step's tensors of tokens and labels, of all micro-batches:
                   one or a list. Their digest tells whether runs saw equal data
        routed     tokens that each router saw in the step, on this rank. Default:
                   `tokens`, or the elements of a tensor of `batch` if that fits

        When it returns, a kill of the process loses nothing of the step.
        """
        now = time.monotonic()
        grad_norm = None if grad_norm is None else _number(grad_norm)
        if self._lr is None:
            self._skip(grad_norm)
        row = {"row": "step", "step": self._step, "loss": None if loss is None else _number(loss),
               "tokens": int(tokens),
               "lr": self._lr if lr is None else _number(lr),
               "seconds": max(now - self._last_time, 1e-9)}
        if row["lr"] is None:
            raise RecorderError(f"step {self._step}: optimizer.step() was not called, and no lr was "
                                "given. Call step() after the optimizer's.")
        row["grad_norm"] = grad_norm
        row.update(self._norms.row(grad_norm is not None))
        row["batch"], row["own_batch"] = (None, None) if batch is None else tensors.batch_digests(
            batch, self._layout.data_rank)
        counts, wrong = self._loads.finish(row["tokens"], routed, batch)
        row.update(counts)
        if wrong:
            self._contradictions.append(wrong)
            if not self._loads_told:
                self._tell("loads", wrong)
            self._loads_told = True
        self._add_tensors(row)
        self._journal.append(row)
        self._step += 1
        self._clear()
        self._watch()
        self._last_time = time.monotonic() if row["tensors"] else now

    def observe(self, kind, module, *, dropped=0, **values):
        """What an operation outside of linear layers read and gave: its type and
        datasets are those of docs/check-tensors.md. Routers are counted at every
        step, everything else is taken at steps of `dump` only.

        dropped   of a router: pairs of token and slot that `expert_ids` leaves
                  out, because a capacity dropped them
        """
        operations.check(kind, values)
        # A compiled layer passes this by, and is compiled anew for steps of `dump` only.
        if kind == "router" or self.dumping:
            self._observe(kind, module, dropped, values)

    @modules.uncompiled
    def _observe(self, kind, module, dropped, values):
        place = self._place(module)
        if place is None:
            return
        if kind == "router":
            self._loads.count(module, place, int(dropped), values)
        if not self.dumping:
            return
        operation = operations.Operation(kind, module, place)
        if dropped:
            operation.attributes["dropped"] = int(dropped)
        if kind == "combine" and values.get("source") is None:
            # Row i is added to token i.
            values = {**values, "source": torch.arange(len(values["rows"]))}
        for key, value in values.items():
            if isinstance(value, torch.Tensor) and key in operations.TYPES[kind][0]:
                operation.keep(key, value)
            elif value is not None:
                operation.attributes[key] = value
        self._operations.append(operation)

    def linear(self, name, function, x, weight, bias=None, dtype=None, operands=None):
        """function(x, weight) or function(x, weight, bias), seen as an operation
        `linear`."""
        rest = () if bias is None else (bias,)
        product = self._begin("linear", name, x, weight, bias=bias, dtype=dtype,
                              operands=operands)
        if product is None:
            return function(x, weight, *rest)
        return product.finish(function(product.x, product.tap_weight(), *rest))

    def grouped_linear(self, name, function, x, weight, group_ends, dtype=None, operands=None,
                       experts=None):
        """function(x, weight, group_ends), seen as an operation `grouped_linear`.

        experts   (number of the first group's expert, experts of the layer), if
                  other ranks have others. Default: as a DTensor of that name says
        """
        product = self._begin("grouped_linear", name, x, weight, group_ends=group_ends,
                              dtype=dtype, operands=operands, experts=experts)
        if product is None:
            return function(x, weight, group_ends)
        return product.finish(function(product.x, product.tap_weight(), group_ends))

    def _begin(self, kind, name, x, weight, **options):
        """A product of a function; None: it is not watched."""
        if self._hooks is None or modules.compiling():
            return None
        place = self._place(name)
        if place is None:
            return None
        of_weight = self._names.get(id(weight)) or modules.name_of(self._model, weight)
        if kind == "grouped_linear" and options["experts"] is None:
            options["experts"] = modules.experts_of(self._model, name, weight)
        product = taps.Product(kind, name, place, x, weight, weight_name=of_weight, **options)
        self._operations.append(product.operation)
        return product

    @property
    def dumping(self):
        """Whether this step's operations are kept."""
        return "dump" in self._captured

    def event(self, kind, text, **values):
        """Adds a row to /events."""
        self._journal.append({"row": "event", "unix_seconds": time.time(), "event": kind,
                              "text": text, **values})

    def read_gradients(self):
        """Takes the gradients' norms now: before they are clipped, rather than when
        the optimizer reads them."""
        self._norms.read()

    def held_out(self, loss):
        """Reports the mean loss of an evaluation, after the steps so far."""
        loss = _number(loss)
        self.event("evaluation", f"held-out loss {loss:.6g} after step {self._step - 1}",
                   step=self._step - 1, loss=loss)
        self._last_time = time.monotonic()

    # ---- recording -----------------------------------------------------------

    def _header_of(self, recipe, experiment, config, steps, gradients, parameters):
        """The journal's first row."""
        if not isinstance(config, (str, type(None))):
            config = json.dumps(config, sort_keys=True)
        device = self._trained[0].device if self._trained else torch.device("cpu")
        names = list(map(self._name, self._trained))
        return {
            "row": "header", "version": 1,
            "tool_version": f"isoloss-recorder {VERSION} (torch {torch.__version__})",
            "device": str(device), "name": self.run, "arm": self.arm, "recipe": recipe,
            "seed": self.seed, "first_step": self._step, "experiment": experiment,
            "config": config or "", "steps_planned": steps, "rank": self.rank, "ranks": self.ranks,
            **self._layout.row(), "keys": list(map(self._layout.key, self._trained)),
            "threads": torch.get_num_threads(), "own": sorted(self._own),
            "gradients": gradients if isinstance(gradients, str) else "partly sharded",
            "trained": xxh3.hash_bytes(" ".join(names).encode()),
            "parameters": max(1, sum(p.numel() for p in self._trained)),
            "own_parameters": sum(p.numel() for p, name in zip(self._trained, names)
                                  if name in self._own),
            "parameter_names": names if parameters else [],
        }

    def __enter__(self):
        self._refuse_what_is_there()
        self._header.update(self._weights_digests())
        self._journal = journal.Journal(self.journal_path, self._header)
        self.event("start", f"rank {self.rank} of {self.ranks}")
        for optimizer in self._optimizers:
            self._wrap(optimizer)
        self._renew_wrappers()
        active.append(self)
        self._watch()
        self._last_time = time.monotonic()
        return self

    def __exit__(self, kind, error, _):
        active.remove(self)
        self._unwatch()
        for optimizer, original in self._wrapped:
            if original is None:
                del optimizer.step
            else:
                optimizer.step = original
        self._renew_wrappers()
        try:
            self._finish(kind, error)
        except Exception as failure:  # pylint: disable=broad-except
            if kind is None:
                raise
            # What ended the training is what its caller must see.
            warnings.warn(f"{self.path}: no log was made ({failure}). Steps are in "
                          f"{self.journal_path}: make the log with `python -m isoloss recover`.")
        return False

    def _finish(self, kind, error):
        """Makes the log of the journal; `kind` is of the exception that ends the
        recording, if any."""
        if kind is None:
            self.event("finish", f"{self._step - 1} steps", **self._weights_digests())
        else:
            try:
                text = str(error)
            except Exception:  # pylint: disable=broad-except
                text = "(an exception without a text)"
            self.event("interrupt" if kind is KeyboardInterrupt else "abort",
                       f"{kind.__name__}: {text}")
        self._journal.sync()
        self._journal.close()
        run_log.write_log(self.path, run_log.read_rows(self.journal_path), replace=False)
        self.journal_path.unlink()

    def _renew_wrappers(self):
        for optimizer in self._given:
            wrappers.renew(optimizer)

    def _refuse_what_is_there(self):
        """A recording makes new files, and replaces none."""
        if self.path == self.journal_path:
            raise RecorderError(f"{self.path}: a log cannot end in .journal, as its journal has that "
                                "name. Pass a path that ends in .h5.")
        stem = operations.file_name(self._base, self.rank, 0).name.removesuffix("000000.h5")
        dumped = [path for path in sorted(self._base.parent.glob(f"{glob.escape(stem)}*.h5"))
                  if path.name[len(stem):-3].isdigit() and
                  int(path.name[len(stem):-3]) in self._chosen["dump"]]
        for path in (self.path, *dumped):
            found = run_log.kind_of(path)
            if found:
                raise RecorderError(f"{path}: is {found}, but a recording makes a new file and "
                                    "replaces none. Record to another path, or remove that one.")

    def _weights_digests(self):
        """Of all weights, and of those of which each rank has its own."""
        if not self._weights:
            return {"weights": None}
        found = {"weights": tensors.weights_digest(self._parameters.items())}
        if self._own:
            found["own_weights"] = tensors.weights_digest(
                (name, values) for name, values in self._parameters.items() if name in self._own)
        return found

    def _file_attributes(self, row):
        """What an operation file tells of its run and step."""
        found = {"run": self.run, "step": self._step, "rank": self.rank, "ranks": self.ranks,
                 "arm": self.arm, "tokens": row["tokens"], "loss_nats": row["loss"],
                 "recording": self._recording, **self._layout.attributes()}
        if self.seed >= 0:
            found["seed"] = self.seed
        # Of several ranks, each may have another part of the weights.
        if self.ranks == 1 and self._header["weights"] is not None:
            found["initial_weights_digest"] = f"{self._header['weights']:016x}"
        if row["loss"] is None:
            del found["loss_nats"]
        if not math.isnan(norm := run_log.grad_norm(row)):
            found["grad_norm"] = norm
        return found

    def _add_tensors(self, row):
        """What this step's operations read and gave, and a word on what they lack."""
        row["tensors"] = {}
        if not self._captured:
            return
        self._operations.sort(key=lambda operation: operation.place)
        updates.keep_weights(self._operations)
        updates.find_lost_weights(self._operations)
        self._operations = updates.without_flat(self._operations, self._parameters)
        self._expected.apply(self._operations)
        if self._layout.mesh:
            shards.gather(self._operations, self._layout)
        row["tensors"] = step_tensors.rows_of(
            [op for op in self._operations if op.tensors], self._parameters,
            self._layout.data_rank, self._layout.data_ranks,
            digests="digests" in self._captured, statistics="statistics" in self._captured)
        lacking, new = self._gaps.find(self._operations, self._no_update)
        if self.dumping:
            self._check_gradients(row)
            attributes = self._file_attributes(row)
            if lacking:
                attributes["unrecorded"] = "\n".join(lacking)
            if self._contradictions:
                attributes["contradictions"] = "\n".join(self._contradictions)
            operations.write(operations.file_name(self._base, self.rank, self._step), attributes,
                             [op for op in self._operations if op.tensors])
        for text in new:
            self._tell("unrecorded", text)

    def _skip(self, grad_norm):
        """Of a step whose optimizer was not called, as gradient scalers do if gradients
        are not finite."""
        self._norms.read()
        if not (self._is_trained or self._norms.overflowed() or
                grad_norm is not None and not math.isfinite(grad_norm)):
            return
        self._lr = _number(self._optimizers[0].param_groups[0]["lr"])
        for optimizer in self._optimizers if self._captured else ():
            update = updates.Update(optimizer, self._names, self._copies)
            update.before(was_called=False)
            self._keep_update(update, skipped=True)

    def _keep_update(self, update, skipped=False):
        self._operations += update.after(self._places, skipped)
        self._no_update.update(update.reasons)

    def _check_gradients(self, row):
        """That they are those of all micro-batches. Of several ranks, merge does."""
        row["accumulation"] = accumulation.row_of(
            self._operations, self._left_out(), len(self._trained))
        if self.ranks == 1:
            for text in accumulation.texts_of([row["accumulation"]], row["grad_norm"]):
                self._tell("gradients", text)
                self._contradictions.append(text)

    def _left_out(self):
        """Names of weights whose gradient is not of their linear layers alone: those of
        embeddings, too, or of each rank."""
        tied = {self._names.get(id(module.weight)) for module in self._model.modules()
                if isinstance(module, gaps.EMBEDDINGS)}
        return tied | self._own

    def _tell(self, kind, text):
        """Of the step, in the log and to who watches the training."""
        text = f"step {self._step}: {text}"
        self.event(kind, text)
        warnings.warn(text)

    def _clear(self):
        self._lr = None
        self._norms.clear()
        self._loads = loads.Loads(self._expected.of("router").get("top_k"))
        self._operations = []
        self._contradictions = []  # of this step, in words
        self._no_update = {}  # by the parameter's name, why an optimizer left none

    def _place(self, name):
        """Of a call in the order of computation; None: it is no data, but an
        evaluation or a layer that is computed again."""
        place = self._places.of_call(name)
        return place if torch.is_grad_enabled() else None

    def _watch(self):
        """Hooks are in place in steps that need them, and cost nothing in others."""
        self._unwatch()
        self._captured = frozenset(key for key, steps in self._chosen.items() if self._step in steps)
        if self._captured:
            self._hooks = taps.ModuleHooks(
                self._model, self._names, self._place,
                lambda product: self._operations.append(product.operation), self._eager)
            if self._eager:
                self._stance = torch.compiler.set_stance("force_eager")
                self._stance.__enter__()

    def _unwatch(self):
        if self._hooks is None:
            return
        self._hooks.remove()
        self._hooks = None
        if self._stance:
            self._stance.__exit__(None, None, None)

    def _wrap(self, optimizer):
        inner = optimizer.step
        self._wrapped.append((optimizer, optimizer.__dict__.get("step")))

        def step(_, *arguments, **options):
            update = (updates.Update(optimizer, self._names, self._copies) if self._captured
                      else None)
            if self._lr is None:
                self._lr = _number(optimizer.param_groups[0]["lr"])

            def before():
                self._norms.read()
                if update:
                    update.before()

            arguments, options = updates.with_gradients(before, arguments, options)
            result = inner(*arguments, **options)
            self._is_trained = True
            if update:
                self._keep_update(update)
            return result

        # A method with the marks of the old one, which schedulers expect.
        step.__dict__.update(getattr(inner, "__dict__", {}))
        optimizer.step = types.MethodType(step, optimizer)
