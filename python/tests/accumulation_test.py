"""Gradients are sums over micro-batches and ranks, in which each label counts once."""

import contextlib
import unittest
import warnings

import torch
from torch.nn import functional

import isoloss
from isoloss import run_log
from recorder_test import Case

PARTS, CLIP = 2, 0.05


class Rank:
    """A model with its recording, of two layers."""

    def __init__(self, path, rank, ranks):
        torch.manual_seed(1)
        self.model = torch.nn.ModuleDict({"up": torch.nn.Linear(8, 8),
                                          "head": torch.nn.Linear(8, 5)})
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)
        self.rank = rank
        self.recorder = isoloss.record(self.model, self.optimizer, path, dump=[1, 2], rank=rank,
                                       ranks=ranks, gradients="replicated")

    def backward(self, step, part, factor):
        # Labels of ranks and parts are not equally many.
        draw = torch.Generator().manual_seed(100 * step + 10 * self.rank + part)
        x, labels = torch.randn(6, 8, generator=draw), torch.randint(5, (6,), generator=draw)
        labels[:1 + part + self.rank] = -100
        logits = self.model["head"](self.model["up"](x).tanh())
        loss = functional.cross_entropy(logits, labels, reduction="sum")
        self.recorder.observe("loss", "loss", logits=logits, labels=labels, loss=loss,
                              ignore_index=-100)
        (loss * factor).backward()
        return int((labels != -100).sum())


def labels_of(rank, part):
    return 6 - (1 + part + rank)


class Accumulation(Case):
    def train(self, name, ranks=1, mistake=None):
        """What the recording said, and merge of several ranks."""
        path = self.folder / f"{name}.h5"
        with contextlib.ExitStack() as stack, warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            every = [Rank(path, rank, ranks) for rank in range(ranks)]
            for one in every:
                stack.enter_context(one.recorder)
            total = sum(labels_of(rank, part) for rank in range(ranks) for part in range(PARTS))
            for step in (1, 2):
                for one in every:
                    if mistake != "kept":
                        one.optimizer.zero_grad()
                    for part in range(PARTS):
                        if mistake == "last" and part:
                            one.optimizer.zero_grad()
                        of_part = PARTS * labels_of(one.rank, part) * ranks
                        one.backward(step, part, {"means": 1 / of_part, "halved": 0.5 / total}.get(
                            mistake, 1 / total))
                self.reduce(every, mistake)
                for one in every:
                    parameters = list(one.model.parameters())
                    norm = torch.nn.utils.clip_grad_norm_(parameters, CLIP)
                    if mistake == "group":
                        one.model["up"].weight.grad *= 0.5
                    one.optimizer.step()
                    one.recorder.step(1.0, tokens=9, grad_norm=norm)
        if ranks == 1:
            return [str(warning.message) for warning in told]
        notes = []
        run_log.merge([run_log.read_rows(one.recorder.path) for one in every], notes)
        return notes

    @staticmethod
    def reduce(every, mistake):
        for parameters in zip(*(one.model.parameters() for one in every)):
            whole = sum(parameter.grad for parameter in parameters)
            if mistake == "alone" and parameters[0].shape == (8, 8):
                whole = parameters[0].grad.clone()
            for parameter in parameters:
                parameter.grad = whole.clone()

    def test_what_adds_up_is_no_matter(self):
        self.assertEqual(self.train("one"), [])
        self.assertEqual(self.train("two", ranks=2), [])

    def test_what_does_not_add_up_is_told(self):
        for mistake, ranks, pattern in (
                ("kept", 1, r"step 2: the gradient .* no multiple .*: up\.weight"),
                ("last", 1, "no multiple"), ("last", 2, "no multiple"),
                ("halved", 1, r"a label counts 0\.5 times .* over 9 labels"),
                ("halved", 2, r"a label counts 0\.5 times .* over 16 labels"),
                ("means", 1, r"a label counts 0\.\d+ to 1\.\d+ times"),
                ("group", 1, r"0\.667 times what others are|1\.33 times what others are"),
                ("alone", 2, r"that of rank 0 alone\. .*: up\.weight")):
            with self.subTest(mistake=mistake, ranks=ranks):
                self.assertRegex("\n".join(self.train(f"{mistake}-{ranks}", ranks, mistake)),
                                 pattern)

    def test_ranks_that_read_the_same_are_told(self):
        rows = []
        for rank in range(2):
            model = torch.nn.Linear(2, 2)
            optimizer = torch.optim.AdamW(model.parameters())
            with isoloss.record(model, optimizer, self.path, rank=rank, ranks=2,
                                weights=False) as recorder:
                recorder.step(1.0, tokens=4, lr=0.1, grad_norm=1.0, batch=[torch.arange(4)])
            rows.append(run_log.read_rows(recorder.path))
        notes = []
        run_log.merge(rows, notes)
        self.assertIn("step 1: ranks 0 and 1 read the same batch", "\n".join(notes))


if __name__ == "__main__":
    unittest.main()
