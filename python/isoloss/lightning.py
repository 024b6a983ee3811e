"""Records trainings of Lightning 2, of automatic and of manual optimization.

    from isoloss.lightning import Callback

    Trainer(..., callbacks=[Callback("run.h5", dump=[1, 100], arm="fp8")]).fit(module, data)
"""

import importlib
import math
import sys

import torch

from .micro_batches import MicroBatches, labels_in
from .recorder import RecorderError
from .recording import record


def _library():
    """That of its two packages which the program imported."""
    names = ("lightning.pytorch", "pytorch_lightning")
    for name in [name for name in names if name in sys.modules] or names:
        try:
            return importlib.import_module(name)
        except ImportError:
            pass
    raise ImportError("neither `lightning` nor `pytorch_lightning` is installed. Install one of them.")


def _whole_numbers(batch):
    """Its tensors of tokens and labels."""
    parts = batch.values() if hasattr(batch, "keys") else batch
    parts = [parts] if isinstance(parts, torch.Tensor) else parts
    return [part for part in parts if isinstance(part, torch.Tensor) and
            not part.is_floating_point()]


class Callback(_library().Callback):
    """Records what a Trainer fits in the run log `path`.

    `options` are those of isoloss.record(). Unless they say otherwise, the number
    of steps is that of the Trainer. The callback reports each batch after which an
    optimizer stepped: the mean loss of all batches since the step before, the
    number of their labels, and the gradient norm from before the Trainer clips.

    tokens    a function of a batch: how many labels its loss is the mean of;
              default: those of `labels`, else of its last part, that are not -100
    held_out  name of the logged metric that is the loss of an evaluation
    """

    def __init__(self, path, *, tokens=None, held_out="val_loss", **options):
        super().__init__()
        self._path, self._held_out, self._options = path, held_out, options
        self._tokens = tokens or labels_in
        self._recorder = None
        self._step = MicroBatches()
        self._lr = None  # of the first update since the last report

    def on_train_start(self, trainer, pl_module):
        steps = trainer.estimated_stepping_batches
        options = {"steps": int(steps) - trainer.global_step if math.isfinite(steps) else None,
                   "first_step": trainer.global_step + 1, **self._options}
        self._recorder = record(pl_module, trainer.optimizers, self._path, **options)
        self._recorder.__enter__()
        self._step.clear()
        self._lr = None

    def on_before_optimizer_step(self, trainer, pl_module, optimizer):
        self._recorder.read_gradients()
        if self._lr is None:
            # Before schedules change it. A gradient scaler may yet skip the update.
            self._lr = optimizer.param_groups[0]["lr"]

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        loss = outputs.get("loss") if hasattr(outputs, "get") else outputs
        if loss is not None:
            self._add(trainer, pl_module, loss, batch)
        if self._lr is None:
            return
        if not len(self._step):
            raise RecorderError(f"batch {batch_idx}: an optimizer stepped, but training_step() "
                                "returned no loss. Return it.")
        mean, tokens = self._step.mean()
        self._recorder.step(mean, tokens=tokens, lr=self._lr, batch=self._step.tensors or None)
        self._step.clear()
        self._lr = None

    def _add(self, trainer, pl_module, loss, batch):
        labels = self._tokens(batch)
        if labels is None:
            raise RecorderError("the batch has no labels, so nobody knows what the loss is the mean "
                                "of. Pass tokens=, a function of the batch.")
        # Automatic optimization divides each loss by the number of batches of a step.
        parts = trainer.accumulate_grad_batches if pl_module.automatic_optimization else 1
        self._step.add(loss, labels * parts, labels, _whole_numbers(batch))

    def on_validation_end(self, trainer, pl_module):
        loss = trainer.callback_metrics.get(self._held_out)
        if self._recorder is not None and loss is not None and not trainer.sanity_checking:
            self._recorder.held_out(loss)

    def on_train_end(self, trainer, pl_module):
        self._end(None)

    def on_exception(self, trainer, pl_module, exception):
        self._end(exception)

    def _end(self, error):
        recorder, self._recorder = self._recorder, None
        if recorder is not None:
            recorder.__exit__(type(error) if error else None, error, None)
