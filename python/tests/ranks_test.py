"""One log of the logs of several ranks."""

import fractions
import math
import unittest

import h5py
import numpy as np
import torch
from torch.nn import functional

import isoloss
from isoloss import run_log
from recorder_test import Case, batch, main, make


class Merge(Case):
    """Two ranks that have half of a batch each, against one process."""

    def record(self, name, rank, ranks, **options):
        model, optimizer = make()
        twin, _ = make()
        path = self.folder / f"{name}.h5"
        with isoloss.record(model, optimizer, path, rank=rank, ranks=ranks, steps=3,
                            name="run", statistics=[2], digests=[2], **options) as recorder:
            for step in range(1, 4):
                x, y = batch(step, 64)
                twin.load_state_dict(model.state_dict())
                twin.zero_grad()
                functional.cross_entropy(twin(x), y).backward()
                optimizer.zero_grad()
                own = slice(rank * 64 // ranks, (rank + 1) * 64 // ranks)
                out = model(x[own])
                losses = functional.cross_entropy(out, y[own], reduction="none")
                losses.sum().backward()
                for p, whole in zip(model.parameters(), twin.parameters()):
                    p.grad = whole.grad.clone()  # as an all-reduce gives it
                ids = (x[own, :2] * 100).to(torch.int64).abs() % 4
                isoloss.observe("router", "moe", logits=torch.zeros(1, 4), expert_ids=ids)
                optimizer.step()
                # FP64 holds the sum exactly, and a power of two divides it so.
                loss = float(losses.detach().double().sum()) / len(losses)
                recorder.step(loss, tokens=len(losses))
        return recorder.path

    def test_equals_a_single_process(self):
        parts = [self.record("run", rank, 2) for rank in (0, 1)]
        self.assertEqual([part.name for part in parts], ["run.rank-0.h5", "run.rank-1.h5"])
        single = self.record("single", 0, 1)
        merged = self.folder / "merged.h5"

        for files in (parts, parts[::-1]):
            self.assertEqual(main(["merge", str(merged), *map(str, files)]), 0)
            self.show(merged)
            with h5py.File(merged) as a, h5py.File(single) as b:
                self.assertEqual(a.attrs["ranks"], 2)
                for group in ("steps", "moe", "tensors"):
                    for name in b[group]:
                        if name in ("step_seconds", "tokens_per_second"):
                            continue
                        found, expected = a[group][name][()], b[group][name][()]
                        if name == "loss_nats":
                            # Products of half of the rows may be summed in another order.
                            np.testing.assert_allclose(found, expected, rtol=2.0 ** -18)
                            continue
                        if group == "tensors" and name != "step":
                            found, expected = (values[..., self.exact(log)] for values, log in
                                               ((found, a), (expected, b)))
                        np.testing.assert_array_equal(found, expected, err_msg=f"{group}/{name}")
                # A rank's part of a weight gradient is left out.
                self.assertEqual([n for n in b["tensors/names"].asstr() if not n.endswith("_wgrad")],
                                 list(a["tensors/names"].asstr()))

    @staticmethod
    def exact(log):
        """Columns of tensors that do not depend on the order of a sum."""
        return [i for i, name in enumerate(log["tensors/names"].asstr()) if name == "0_activation" or
                name.endswith(("_weight", "_parameter", "_update"))]

    def test_squares_of_sharded_gradients_add_up_exactly(self):
        def rows(rank, squares):
            return [{"row": "header", "rank": rank, "ranks": 2, "name": "r", "seed": 0, "arm": "a",
                     "steps_planned": 1, "gradients": "sharded", "parameters": 3,
                     "parameter_names": []},
                    {"row": "step", "step": 1, "tokens": 3 - rank, "loss": 0.1 * (rank + 1), "lr": 1,
                     "seconds": 1, "grad_norm": None, "grad_squares": squares, "experts": {},
                     "tensors": {}, "parameters": None}]
        tiny, large = 1, 9 << 298

        merged = run_log.merge([rows(1, large), rows(0, tiny)])

        self.assertEqual(merged[1]["grad_squares"], tiny + large)
        self.assertEqual(merged[1]["tokens"], 5)
        expected = (3 * fractions.Fraction(0.1) + 2 * fractions.Fraction(0.2)) / 5
        self.assertEqual(merged[1]["loss"], float(expected))

    def test_refuses_what_does_not_belong_together(self):
        part = self.record("run", 0, 2)
        with self.assertRaisesRegex(run_log.LogError, r"ranks \[0\].*\[0, 1\]"):
            run_log.merge([run_log.read_rows(part)])
        other = run_log.read_rows(part)
        other[0]["rank"] = 1
        next(row for row in other if row["row"] == "step")["grad_squares"] += 1
        with self.assertRaisesRegex(run_log.LogError, "sharded"):
            run_log.merge([run_log.read_rows(part), other])

    def two(self, name, gradients, of_rank, told=None):
        """Logs of two ranks that have a dense weight and an expert."""
        paths = []
        for rank in (0, 1):
            model = torch.nn.ParameterDict({"dense": torch.nn.Parameter(torch.ones(4)),
                                            "expert": torch.nn.Parameter(torch.ones(4))})
            optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
            with isoloss.record(model, optimizer, self.folder / f"{name}.h5", rank=rank, ranks=2,
                                gradients=gradients) as recorder:
                model["dense"].grad, model["expert"].grad = of_rank(rank)
                optimizer.step()
                recorder.step(2.0, tokens=8, grad_norm=told)
            paths.append(run_log.read_rows(recorder.path))
        return paths

    def test_ranks_that_part_are_refused(self):
        with self.assertRaisesRegex(run_log.LogError, r"final weights, after step 1, is [0-9a-f]{16} "
                                    r"on rank 0 and [0-9a-f]{16} on rank 1"):
            run_log.merge(self.two("signs", "replicated", lambda rank: (
                torch.full((4,), [3.0, -3.0][rank]), torch.ones(4)), 5.0))
        with self.assertRaisesRegex(run_log.LogError, "step 1: norm of the gradients.*6.3.* on rank 0"):
            run_log.merge(self.two("clips", "replicated", lambda rank: (
                torch.full((4,), [3.0, 4.0][rank]), torch.ones(4)), 5.0))

    def test_norms_count_what_ranks_share_once(self):
        def of_rank(rank):
            return torch.full((4,), 1.5), torch.full((4,), [6.0, 2.0][rank])

        told = run_log.merge(self.two("told", ["expert"], of_rank))
        self.assertEqual(run_log.grad_norm(told[1]), 13.0)  # of 3, 12 and 4
        notes = []
        untold = run_log.merge(self.two("untold", "sharded", of_rank), notes)
        self.assertTrue(math.isnan(run_log.grad_norm(untold[1])))
        self.assertIn("the gradient of dense has one norm", notes[0])
        with self.assertRaisesRegex(isoloss.RecorderError, "no parameter has that name"):
            self.two("typo", ["experts"], of_rank)

    def test_norms_that_are_no_number_are_equal(self):
        rows = self.two("nan", "replicated", lambda _: (torch.full((4,), math.nan), torch.ones(4)),
                        math.nan)
        self.assertTrue(math.isnan(run_log.grad_norm(run_log.merge(rows)[1])))
        rows[1][2]["grad_norm"] = 1.0
        with self.assertRaisesRegex(run_log.LogError, "grad_norm is nan on rank 0 and 1.0 on rank 1"):
            run_log.merge(rows)


if __name__ == "__main__":
    unittest.main()
