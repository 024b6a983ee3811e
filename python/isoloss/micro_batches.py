"""The loss of an optimizer step of several micro-batches."""

import math

import torch


def floats(tensors):
    """Of tensors of one value each, which wait for the GPU once."""
    tensors = [tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
               for tensor in tensors]
    return torch.stack([tensor.detach().reshape(()).to(torch.float32) for tensor in tensors]).tolist()


def labels_in(batch, ignored=-100):
    """How many labels a batch has that are not ignored, as a tensor: those of its
    key `labels`, else its last part, as in (x, y). None: it has neither."""
    if hasattr(batch, "keys"):
        labels = batch["labels"] if "labels" in batch else None
    else:
        labels = batch[-1] if isinstance(batch, (list, tuple)) and len(batch) > 1 else None
    return (labels != ignored).sum() if isinstance(labels, torch.Tensor) else None


class MicroBatches:
    """Of one step after the other: add() each, then mean().

    A loss is what the trainer differentiates, and `weight` by what it is
    multiplied to be a sum over labels.
    """

    def __init__(self):
        self.clear()

    def clear(self):
        self._losses, self._weights, self._labels = [], [], []
        self.tensors = []  # of tokens and labels
        self.inputs = 0  # tokens that went in

    def __len__(self):
        return len(self._losses)

    def add(self, loss, weight, labels, tensors):
        self._losses.append(loss.detach())
        self._weights.append(weight)
        self._labels.append(labels)
        self.tensors += tensors

    def mean(self):
        """The mean over the step's labels, and their number. Without labels the
        mean is NaN."""
        labels = sum(map(int, self._labels))
        total = math.fsum(loss * int(weight) for loss, weight in
                          zip(floats(self._losses), self._weights))
        return (total / labels if labels else math.nan), labels
