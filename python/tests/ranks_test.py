"""One log of the logs of several ranks."""

import contextlib
import fractions
import io
import math
import unittest
import warnings

import h5py
import numpy as np
import torch
from torch.nn import functional

import isoloss
from isoloss import __main__ as program
from isoloss import ranks, run_log
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
                self.assertEqual([n for n in b["tensors/names"].asstr()
                                  if not n.endswith("_wgrad")],
                                 list(a["tensors/names"].asstr()))

    @staticmethod
    def exact(log):
        """Columns of tensors that do not depend on the order of a sum."""
        return [i for i, name in enumerate(log["tensors/names"].asstr())
                if name == "0_activation" or name.endswith(("_weight", "_parameter", "_update"))]

    def test_squares_of_sharded_gradients_add_up_exactly(self):
        def rows(rank, squares):
            return [{"row": "header", "rank": rank, "ranks": 2, "name": "r", "seed": 0, "arm": "a",
                     "steps_planned": 1, "gradients": "sharded", "parameters": 3,
                     "parameter_names": []},
                    {"row": "step", "step": 1, "tokens": 3 - rank, "loss": 0.1 * (rank + 1),
                     "lr": 1,
                     "seconds": 1, "grad_norm": None, "grad_squares": squares, "experts": {},
                     "tensors": {}, "parameters": None}]
        tiny, large = 1, 9 << 298

        merged = run_log.merge([rows(1, large), rows(0, tiny)])

        self.assertEqual(merged[1]["grad_squares"], tiny + large)
        self.assertEqual(merged[1]["tokens"], 5)
        expected = (3 * fractions.Fraction(0.1) + 2 * fractions.Fraction(0.2)) / 5
        self.assertEqual(merged[1]["loss"], float(expected))

    def test_a_rank_without_tokens_has_no_loss(self):
        self.assertEqual(ranks.mean_loss([math.nan, 2.0, math.inf], [0, 8, 0]), 2.0)
        self.assertTrue(math.isnan(ranks.mean_loss([math.nan, 2.0], [1, 8])))
        self.assertTrue(math.isnan(ranks.mean_loss([2.0, 2.0], [0, 0])))

    def test_refuses_what_does_not_belong_together(self):
        part = self.record("run", 0, 2)
        with self.assertRaisesRegex(run_log.LogError, r"ranks \[0\].*the run has 2, "):
            run_log.merge([run_log.read_rows(part)])
        other = run_log.read_rows(part)
        other[0].update(rank=1, data_rank=1)
        next(row for row in other if row["row"] == "step")["grad_squares"] += 1
        with self.assertRaisesRegex(run_log.LogError, "sharded"):
            run_log.merge([run_log.read_rows(part), other])

    def ranks(self, name, gradients, of_rank, told=None, ranks=2, steps=1, **options):
        """Rows of ranks that have a dense weight and an expert."""
        rows = []
        for rank in range(ranks):
            model = torch.nn.ParameterDict({"dense": torch.nn.Parameter(torch.ones(4)),
                                            "expert": torch.nn.Parameter(torch.ones(4))})
            optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
            with isoloss.record(model, optimizer, self.folder / f"{name}.h5", rank=rank,
                                ranks=ranks, gradients=gradients, **options) as recorder:
                for step in range(steps(rank) if callable(steps) else steps):
                    model["dense"].grad, model["expert"].grad = of_rank(rank)
                    if step == 0 and name.endswith("late"):
                        model["dense"].grad = None
                    optimizer.step()
                    recorder.step(2.0, tokens=8, grad_norm=told)
            rows.append(run_log.read_rows(recorder.path))
        return rows

    def test_ranks_that_part_are_refused(self):
        with self.assertRaisesRegex(run_log.LogError,
                                    r"final weights, after step 1, is [0-9a-f]{16} "
                                    r"on rank 0 and [0-9a-f]{16} on rank 1"):
            run_log.merge(self.ranks("signs", "replicated", lambda rank: (
                torch.full((4,), [3.0, -3.0][rank]), torch.ones(4)), 5.0))
        with self.assertRaisesRegex(run_log.LogError,
                                    "step 1: norm of the gradients.*6.3.* on rank 0"):
            run_log.merge(self.ranks("clips", "replicated", lambda rank: (
                torch.full((4,), [3.0, 4.0][rank]), torch.ones(4)), 5.0))

    def test_norms_count_what_ranks_share_once(self):
        def of_rank(rank):
            return torch.full((4,), 1.5), torch.full((4,), [6.0, 2.0][rank])

        told = run_log.merge(self.ranks("told", ["expert"], of_rank))
        self.assertEqual(run_log.grad_norm(told[1]), 13.0)  # of 3, 12 and 4
        notes = []
        untold = run_log.merge(self.ranks("untold", "sharded", of_rank), notes)
        self.assertTrue(math.isnan(run_log.grad_norm(untold[1])))
        self.assertIn("the gradient of dense has the norm 3.0 both on rank 0 and on rank 1",
                      notes[0])
        with self.assertRaisesRegex(isoloss.RecorderError, "no parameter has that name"):
            self.ranks("typo", ["experts"], of_rank)

    def test_no_norm_is_told_if_any_two_ranks_share_a_gradient(self):
        experts = (6.0, 2.0, 6.0, 2.0)

        def of_rank(rank):
            return torch.full((4,), [1.5, 1.5, 2.5, 3.5][rank]), torch.full((4,), experts[rank])

        def dense(rank):
            return torch.full((4,), 1.5), of_rank(rank)[1]
        for name, gradients, gradient, ranks in (
                ("replicas of experts", ["expert"], dense, 4), ("some", "sharded", of_rank, 3),
                ("late", "sharded", dense, 2)):
            notes = []
            merged = run_log.merge(self.ranks(name, gradients, gradient, ranks=ranks, steps=2),
                                   notes)
            for row in merged[1:3]:
                self.assertTrue(math.isnan(run_log.grad_norm(row)), name)
            self.assertIn("Pass grad_norm=", notes[0], name)
        told = run_log.merge(self.ranks("told to all", ["expert"], dense, 13.0, ranks=4), notes)
        self.assertEqual((run_log.grad_norm(told[1]), len(notes)), (13.0, 1))
        # A norm of each is enough of experts that no two ranks share.
        own = run_log.merge(self.ranks("own", "sharded", lambda rank: (
            torch.full((4,), [1.5, 2.0][rank]), of_rank(rank)[1])), notes)
        self.assertEqual(run_log.grad_norm(own[1]), math.sqrt(9 + 16 + 144 + 16))
        self.assertEqual(len(notes), 1)

    def test_steps_that_ranks_lack_are_told(self):
        def of_rank(_):
            return torch.ones(4), torch.ones(4)
        paths = []
        for rank, rows in enumerate(self.ranks("run", "replicated", of_rank,
                                               steps=lambda rank: 3 - rank)):
            paths.append(str(self.folder / f"{rank}.h5"))
            run_log.write_log(paths[-1], rows)
        merged = self.folder / "merged.h5"
        self.assertEqual(main(["merge", str(merged), *paths]), 1)
        with h5py.File(merged) as log:
            self.assertEqual(list(log["steps/step"]), [1, 2])
            self.assertFalse(log.attrs["complete"])
        # A refused merge tells nothing of a log.
        merged.write_bytes(b"another file")
        with contextlib.redirect_stderr(io.StringIO()) as told:
            self.assertEqual(program.main(["merge", str(merged), *paths]), 3)
        self.assertIn("so it is not replaced", told.getvalue())
        self.assertNotIn("The merged log", told.getvalue())
        later = self.ranks("later", "replicated", of_rank)
        later[1][0]["first_step"] = 2
        with self.assertRaisesRegex(run_log.LogError, "first_step is 1 on rank 0 and 2 on rank 1"):
            run_log.merge(later)

    def test_weights_that_were_not_compared_are_told(self):
        def of_rank(_):
            return torch.ones(4), torch.ones(4)
        for name, weights, told in (("with", True, 0), ("without", False, 1)):
            notes = []
            run_log.merge(self.ranks(name, "replicated", of_rank, weights=weights), notes)
            self.assertEqual(len(notes), told)

    def test_what_no_operation_holds_is_told_once_for_all_ranks(self):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            rows = self.ranks("gaps", ["expert"], lambda rank: (
                torch.ones(4), None if rank else torch.ones(4)), 1.0, ranks=3,
                              weights=False, dump=[1])
        texts = [row["text"] for row in run_log.merge(rows) if row.get("event") == "unrecorded"]
        self.assertEqual(len(texts), 1)
        self.assertIn("1 trained parameter: expert. AdamW found no gradient", texts[0])

    def test_a_merged_log_is_no_rank(self):
        parts = [self.record("run", rank, 2) for rank in (0, 1)]
        merged = str(self.folder / "merged.h5")
        self.assertEqual(main(["merge", merged, *map(str, parts)]), 0)
        before = [path.read_bytes() for path in parts]
        with self.assertRaisesRegex(run_log.LogError, "holds all ranks already"):
            run_log.merge([run_log.read_rows(path) for path in (merged, parts[1])])
        # Neither a rank's log nor a merged one gives way to another.
        for arguments in (["merge", str(parts[0]), *map(str, parts)],
                          ["recover", str(parts[1]), str(parts[0])],
                          ["recover", str(parts[1]), merged]):
            self.assertEqual(main(arguments), 3, arguments)
        self.assertEqual([path.read_bytes() for path in parts], before)

    def test_norms_that_are_no_number_are_equal(self):
        rows = self.ranks("nan", "replicated",
                          lambda _: (torch.full((4,), math.nan), torch.ones(4)),
                        math.nan)
        self.assertTrue(math.isnan(run_log.grad_norm(run_log.merge(rows)[1])))
        rows[1][2]["grad_norm"] = 1.0
        with self.assertRaisesRegex(run_log.LogError,
                                    "grad_norm is nan on rank 0 and 1.0 on rank 1"):
            run_log.merge(rows)


def rank_rows(rank, ranks, place, step, **header):
    """Rows of a rank with one step, as a layout has it."""
    return [{"row": "header", "rank": rank, "ranks": ranks, "name": "r", "seed": 0, "arm": "a",
             "steps_planned": 1, "gradients": "replicated", "parameters": 3, "parameter_names": [],
             "weights": 5, "coordinate": place, **header},
            {"row": "step", "step": 1, "tokens": 4, "loss": 1.0, "lr": 1, "seconds": 1,
             "grad_norm": None, "grad_squares": 7, "experts": {}, "tensors": {}, "parameters": None,
             "batch": 3, **step}]


class Meshes(unittest.TestCase):
    """Ranks that hold parts, or have the same tokens."""

    def of_groups(self, squares):
        """Of two groups of two ranks, which have halves of all gradients each."""
        return [rank_rows(rank, 4, {"replicate": rank // 2, "shard": rank % 2},
                          {"squares": {"replicate shard*": squares[rank]}}) for rank in range(4)]

    def test_parts_add_up_and_wholes_are_equal(self):
        rows = self.of_groups((9 << 298, 16 << 298, 9 << 298, 16 << 298))
        for order in (rows, rows[::-1]):
            self.assertEqual(run_log.grad_norm(run_log.merge(order)[1]), 5.0)
        # Groups that clip by norms of their own.
        with self.assertRaisesRegex(run_log.LogError, r"step 1: norm of the gradients.* on mesh "
                                    r"`replicate shard\*` is 5.0 on rank 0 and 4.2.* on rank 2"):
            run_log.merge(self.of_groups((9 << 298, 16 << 298, 9 << 298, 9 << 298)))
        # Three ranks share one whole.
        three = [rank_rows(rank, 3, {"shard": rank}, {"squares": {"shard*": 3 << 298}})
                 for rank in range(3)]
        self.assertEqual(run_log.grad_norm(run_log.merge(three)[1]), 3.0)
        three[1][1]["squares"]["shard*"] = -1
        self.assertTrue(math.isnan(run_log.grad_norm(run_log.merge(three)[1])))

    def test_each_parameter_has_the_norm_of_its_parts(self):
        rows = [rank_rows(rank, 2, {"shard": rank},
                          {"squares": {"shard*": 1, "": 2}, "parameters": [3.0 + rank, 2.0]},
                          keys=["shard*", ""], parameter_names=["a", "b"]) for rank in range(2)]
        self.assertEqual(run_log.merge(rows)[1]["parameters"], [5.0, 2.0])
        rows[1][1]["parameters"][1] = 2.5
        with self.assertRaisesRegex(run_log.LogError,
                                    "parameter b is 2.0 on rank 0 and 2.5 on rank 1"):
            run_log.merge(rows)

    def of_pairs(self, **changed):
        """Of two pairs of ranks that share tokens; `changed` of rank 1."""
        rows = [rank_rows(rank, 4, {}, {
            "loss": [1.0, 3.0][rank // 2], "experts": {"r": [4, 4]}, "slots": [2], "dropped": [0],
            "routed": 4, "tensors": {"t": {"of": "tokens", "digest": 10 + rank // 2}}},
            data_rank=rank // 2, data_ranks=2) for rank in range(4)]
        rows[1][1].update(changed)
        return rows

    def test_ranks_that_share_tokens_count_once(self):
        merged = run_log.merge(self.of_pairs())[1]
        self.assertEqual([merged[key] for key in ("tokens", "loss", "batch", "routed")],
                         [8, 2.0, 6, 8])
        self.assertEqual(merged["experts"], {"r": [8, 8]})
        self.assertEqual(merged["tensors"]["t"]["digest"], 21)
        for key, value in (("loss", 1.5), ("tokens", 5)):
            with self.assertRaisesRegex(run_log.LogError,
                                        f"step 1: {key} of ranks that share tokens "):
                run_log.merge(self.of_pairs(**{key: value}))
        # One of them may have the tensors of both.
        self.assertEqual(run_log.merge(self.of_pairs(tensors={}))[1]["tensors"], merged["tensors"])
        lost = self.of_pairs(tensors={})
        lost[0][1]["tensors"] = {}
        with self.assertRaisesRegex(run_log.LogError, "t is of rank 2, but not of rank 0"):
            run_log.merge(lost)
        lost[0][0]["data_rank"] = lost[1][0]["data_rank"] = 1
        with self.assertRaisesRegex(run_log.LogError,
                                    r"the parts \[1\] of the data, but there are 2"):
            run_log.merge(lost)

    def test_tokens_that_ranks_split_add_up(self):
        rows = self.of_pairs()
        for rank, counts in enumerate(([1, 3], [3, 1], [2, 2], [4, 0])):
            rows[rank][1].update(experts={"r": counts}, routed=2)
        notes = []
        merged = run_log.merge(rows, notes)[1]
        self.assertEqual((merged["experts"], merged["routed"], notes), ({"r": [10, 6]}, 8, []))
        rows[3][1]["experts"] = {"r": [3, 0]}
        run_log.merge(rows, notes)
        self.assertIn("router r of all ranks add up to 15, but 8 tokens with 2 slots each have 16",
                      notes[0])

    def test_stages_have_parts_of_the_model(self):
        rows = [rank_rows(rank, 2, {}, {
            "loss": [None, 2.0][rank], "grad_squares": [9, 16][rank] << 298,
            "tensors": {f"layer{rank}": {"of": "tokens", "digest": rank + 1}}},
            data_rank=0, data_ranks=1, stage=rank, weights=5 + rank, parameters=2 + rank)
            for rank in range(2)]
        header, merged = run_log.merge(rows)[:2]
        self.assertEqual((header["weights"], header["parameters"]), (11, 5))
        self.assertEqual((merged["loss"], merged["tokens"], run_log.grad_norm(merged)),
                         (2.0, 4, 5.0))
        self.assertEqual(list(merged["tensors"]), ["layer0", "layer1"])
        rows[1][1]["loss"] = None
        with self.assertRaisesRegex(run_log.LogError, r"none of the ranks \[0, 1\] tells a loss"):
            run_log.merge(rows)

    def test_experts_of_ranks_are_one_tensor(self):
        def entry(first):
            return {"of": "experts", "first": first, "digest": 3 + first}
        rows = [rank_rows(rank, 4, {}, {"tensors": {"e_weight": entry(rank % 2 * 4)}})
                for rank in range(4)]
        self.assertEqual(run_log.merge(rows)[1]["tensors"]["e_weight"]["digest"], 10)
        rows[2][1]["tensors"]["e_weight"]["digest"] += 1
        with self.assertRaisesRegex(run_log.LogError,
                                    "digest of e_weight is .*3 on rank 0 and .*4 on rank 2"):
            run_log.merge(rows)


if __name__ == "__main__":
    unittest.main()
