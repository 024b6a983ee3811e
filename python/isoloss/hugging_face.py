"""Records trainings of transformers.Trainer and of classes that inherit it, such
as those of TRL.

    from isoloss.hugging_face import Callback

    Trainer(..., callbacks=[Callback("run.h5", dump=[1, 100], arm="fp8")]).train()
"""

import atexit
import functools
import inspect
import sys

import torch
from transformers import TrainerCallback

from .micro_batches import MicroBatches, floats, labels_in
from .recorder import RecorderError
from .recording import record


def _trainer_of(callback):
    """Which calls the callback. The library tells a callback of models and
    optimizers, but not of losses and gradient norms."""
    frame = sys._getframe(2)
    while frame is not None:
        found = frame.f_locals.get("self")
        handler = vars(found).get("callback_handler") if hasattr(found, "__dict__") else None
        if any(other is callback for other in getattr(handler, "callbacks", ())):
            return found
        frame = frame.f_back
    raise RecorderError("no transformers.Trainer called on_train_begin. Pass the callback to a "
                        "Trainer, as in callbacks=[Callback(\"run.h5\")].")


def _shifts_labels(trainer):
    """Whether the first label of a row is none, as each predicts the next one."""
    known = getattr(trainer, "_loss_shifts_labels", None)  # transformers 5
    if known is not None:
        return known
    function = getattr(trainer.accelerator.unwrap_model(trainer.model), "loss_function", None)
    return getattr(function, "__name__", "") == "ForCausalLMLoss"


def _labels_of(trainer):
    """A function that counts the labels of a micro-batch."""
    shifts = _shifts_labels(trainer)

    def count(inputs):
        labels = inputs.get("shift_labels")
        if labels is None:
            labels = inputs.get("labels")
            if labels is not None and shifts:
                labels = labels[..., 1:]
        return labels_in({"labels": labels})
    return count


class Callback(TrainerCallback):
    """Records what a Trainer trains in the run log `path`.

    `options` are those of isoloss.record(). Unless they say otherwise, the number
    of steps and the seed are those of the Trainer's arguments. The callback

    * reports each optimizer step: the mean loss over its labels, of all
      micro-batches, their number, and the gradient norm from before clipping
    * reports held-out losses
    * counts what evaluations compute in no step

    tokens    a function of the inputs of a micro-batch: how many labels its loss
              is the mean of; default: those of `labels` that are not -100

    If the training ends with an exception, the log is made when the process ends.
    """

    def __init__(self, path, *, tokens=None, **options):
        self._path, self._tokens, self._options = path, tokens, options
        self._recorder = self._trainer = self._norm = None
        self._step = MicroBatches()
        self._replaced = []

    # ---- events --------------------------------------------------------------

    def on_train_begin(self, args, state, control, model=None, optimizer=None, **_):
        self._end(RecorderError("another training began"))
        trainer = _trainer_of(self)
        if args.n_gpu > 1:
            raise RecorderError("torch.nn.DataParallel splits batches where no hook sees it. Start the "
                                "training with torchrun or accelerate, one process for each GPU.")
        options = {"steps": state.max_steps - state.global_step, "seed": args.seed,
                   "first_step": state.global_step + 1, **self._options}
        self._recorder = record(model, optimizer, self._path, **options)
        self._recorder.__enter__()
        self._trainer = trainer
        self._count = self._tokens or _labels_of(trainer)
        self._step.clear()
        self._replace(trainer, "compute_loss", self._seeing_losses)
        self._replace(trainer.accelerator, "clip_grad_norm_", self._seeing_norms)
        atexit.register(self._end, RecorderError("the training had no end"))

    def on_step_end(self, args, state, control, optimizer=None, **_):
        if not len(self._step):
            raise RecorderError(f"step {state.global_step}: {type(self._trainer).__name__} called no "
                                "compute_loss(), so its loss is not known. Call it in its "
                                "training_step().")
        loss, tokens = self._step.mean()
        skipped = getattr(optimizer, "step_was_skipped", False)
        norm = self._norm
        self._recorder.step(
            loss, tokens=tokens, batch=self._step.tensors or None,
            grad_norm=floats([norm])[0] if isinstance(norm, torch.Tensor) else norm,
            lr=optimizer.param_groups[0]["lr"] if skipped else None,
            routed=self._step.inputs or None)
        self._step.clear()
        self._norm = None

    def on_evaluate(self, args, state, control, metrics=None, **_):
        loss = (metrics or {}).get("eval_loss")
        if self._recorder is not None and loss is not None:
            self._recorder.held_out(loss)

    def on_train_end(self, args, state, control, **_):
        self._end(None)

    # ---- what the Trainer does not tell ---------------------------------------

    def _replace(self, owner, name, make):
        """A method of one object, until the recording ends."""
        self._replaced.append((owner, name, vars(owner).get(name)))
        setattr(owner, name, make(getattr(owner, name)))

    def _seeing_losses(self, inner):
        signature = inspect.signature(inner)

        @functools.wraps(inner)
        def compute_loss(*arguments, **options):
            given = signature.bind(*arguments, **options).arguments
            if not given["model"].training:
                return inner(*arguments, **options)
            # Before the Trainer takes the labels out.
            inputs = dict(given["inputs"])
            result = inner(*arguments, **options)
            loss = result[0] if isinstance(result, tuple) else result
            self._add(loss, inputs, given.get("num_items_in_batch"))
            return result
        return compute_loss

    def _add(self, loss, inputs, items):
        labels = self._count(inputs)
        if labels is None:
            raise RecorderError("the inputs have no `labels`, so nobody knows what the loss is the "
                                "mean of. Pass tokens=, a function of the inputs.")
        trainer, weight = self._trainer, labels
        if items is not None and (trainer.model_accepts_loss_kwargs or
                                  getattr(trainer, "compute_loss_func", None) is not None):
            # A sum over the labels of this micro-batch, over those of the whole step.
            weight = items
            if trainer.args.average_tokens_across_devices:
                layout = getattr(trainer.accelerator, "parallelism_config", None)
                loss = loss / (trainer.accelerator.num_processes //
                               (layout.tp_size if layout is not None else 1))
        told = [inputs[name] for name in ("input_ids", "labels") if name in inputs]
        self._step.add(loss, weight, labels, told)
        if "input_ids" in inputs:
            self._step.inputs += inputs["input_ids"].numel()

    def _seeing_norms(self, inner):
        @functools.wraps(inner)
        def clip_grad_norm_(*arguments, **options):
            norm = inner(*arguments, **options)
            if self._norm is None:
                self._norm = norm
            return norm
        return clip_grad_norm_

    # ---- begin and end ---------------------------------------------------------

    def _end(self, error):
        if self._recorder is None:
            return
        recorder, self._recorder = self._recorder, None
        atexit.unregister(self._end)
        for owner, name, before in self._replaced:
            if before is None:
                delattr(owner, name)
            else:
                setattr(owner, name, before)
        self._replaced.clear()
        recorder.__exit__(type(error) if error else None, error, None)
