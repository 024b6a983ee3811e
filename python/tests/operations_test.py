"""Operation files hold what autograd and the optimizer computed."""

import contextlib
import io
import math
import os
import pathlib
import subprocess
import sys
import unittest
import warnings

import h5py
import numpy as np
import torch
from torch.nn import functional

import isoloss
from operation_check import wrong_of
from recorder_test import BINARY, Case

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "examples"))
import moe_mxfp8  # noqa: E402

# What of an operation does not fit the others under each mistake.
FOUND = {
    "wrong_axis": ("fprop_x_scales",), "floor_for_rceil": ("fprop_x_scales", "dgrad_w_scales"),
    "block_64": ("fprop_x_scales", "wgrad_dy_scales"),
    "scale_power_off_by_one": ("fprop_x_scales", "wgrad_dy_scales"),
    "saturate_at_240": ("fprop_x_codes",), "ties_away_from_zero": ("fprop_w_codes",),
    "e5m2_gradients": ("dgrad_dy_format", "wgrad_dy_format"),
    "double_quantisation": ("wgrad_x_scales",), "wgrad_unquantised": ("wgrad_x_codes",),
    "dgrad_transposed_scale": ("grad_input",), "stale_weight": ("fprop_w_codes",),
    "stale_activation": ("wgrad_x_scales",), "dgrad_stale_weight": ("dgrad_w_codes",),
    "truncating_accumulator": ("output", "grad_input", "grad_weight"),
    "truncated_output": ("output",), "missing_expert": ("output",),
    "swapped_expert_weights": ("output",), "router_without_bias": ("expert_ids",),
    "router_top1": ("expert_ids",), "unnormalised_gates": ("weights",),
    "missing_route_scale": ("weights",), "biased_gates": ("weights",),
    "dispatch_shifted": ("rows",), "combine_bf16": ("output",),
    "combine_without_shared": ("output",), "loss_sum_over_ignored": ("loss",),
    "bias_correction_off_by_one": ("parameter_after",),
    "missing_weight_decay": ("parameter_after",),
    "coupled_weight_decay": ("exp_avg_after", "parameter_after"),
    "eps_inside_sqrt": ("parameter_after",), "swapped_betas": ("exp_avg_after",),
}


# One of each kind of operation, and of each product. Python.mistakes, of the matrix, plants all.
USUAL = ("stale_weight", "stale_activation", "dgrad_transposed_scale", "router_without_bias",
         "dispatch_shifted", "combine_without_shared", "loss_sum_over_ignored", "eps_inside_sqrt")


class Operations(Case):
    def train(self, model, optimizer, step, steps, dump, **options):
        """What it was warned of."""
        self.fresh()
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            with isoloss.record(model, optimizer, self.path, dump=dump, **options) as recorder:
                for number in range(1, steps + 1):
                    optimizer.zero_grad()
                    loss = step(number)
                    loss.backward()
                    optimizer.step()
                    recorder.step(loss, tokens=1)
        told = [str(warning.message) for warning in told]
        with h5py.File(self.path) as log:
            events = zip(log["events/kind"].asstr(), log["events/text"].asstr())
            self.assertEqual([text for kind, text in events if kind == "unrecorded"], told)
        return told

    def record(self, model, optimizer, step, steps=2, dump=(2,), told=(), **options):
        """Operations of the last step, as dictionaries. `told` are patterns of what
        no operation holds."""
        found = self.train(model, optimizer, step, steps, dump, **options)
        self.assertEqual(len(found), len(told), found)
        for text, pattern in zip(found, told):
            self.assertRegex(text, pattern)
        path = self.path.with_name(f"run.rank-0.operations-{steps:06d}.h5")
        self.assertEqual(wrong_of(path), set())
        found = []
        with h5py.File(path) as file:
            self.assertEqual({key: file.attrs[key] for key in
                              ("operations_version", "run", "step", "rank", "ranks", "tokens")},
                             {"operations_version": 1, "run": "run", "step": steps, "rank": 0,
                              "ranks": 1, "tokens": 1})
            with h5py.File(self.path) as log:
                for name in ("loss_nats", "grad_norm"):
                    self.assertEqual(file.attrs[name], log[f"steps/{name}"][steps - 1])
            for name in sorted(file["operations"]):
                group = file["operations"][name]
                values = {key: dataset[()] for key, dataset in group.items()}
                types = {key: dataset.attrs.get("dtype") for key, dataset in group.items()}
                found.append({**group.attrs, **values, "types": types})
        return found

    def test_linear_layers_hold_what_autograd_gave_each_call(self):
        torch.manual_seed(5)
        layer = torch.nn.Linear(8, 8)
        model = torch.nn.ModuleDict({"twice": layer})
        kept = {}

        def step(_):
            x = torch.randn(2, 3, 8, requires_grad=True)
            first = layer(x)
            second = layer(first.tanh())
            for name, tensor in (("x", x), ("first", first), ("second", second)):
                tensor.retain_grad()
                kept[name] = tensor
            return second.square().sum() + x.sum()

        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        found = self.record(model, optimizer, step)

        calls = [op for op in found if op["type"] == "linear"]
        self.assertEqual([op["module"] for op in calls], ["twice", "twice"])
        for op, name in zip(calls, ("first", "second")):
            np.testing.assert_array_equal(op["output"], kept[name].detach().reshape(-1, 8))
            np.testing.assert_array_equal(op["grad_output"], kept[name].grad.reshape(-1, 8))
        # x is used once more, and its gradient is that of both uses together.
        np.testing.assert_allclose(calls[0]["grad_input"], kept["x"].grad.reshape(-1, 8) - 1,
                                   rtol=0, atol=2.0 ** -20 * float(kept["x"].grad.abs().max()))
        updates = {op["module"]: op for op in found if op["type"] == "adamw"}
        whole = calls[0]["grad_weight"].astype(float) + calls[1]["grad_weight"]
        np.testing.assert_allclose(whole, updates["twice.weight"]["gradient"], rtol=2.0 ** -18,
                                   atol=2.0 ** -20 * np.abs(whole).max())
        self.assertEqual(calls[0]["types"]["weight"], "float32")
        self.assertEqual(updates["twice.bias"]["step"], 2)
        self.assertNotIn("weight", layer.__dict__)

    def test_a_weight_of_several_calls_has_one_gradient(self):
        torch.manual_seed(8)
        model = torch.nn.ModuleDict({"twice": torch.nn.Linear(8, 8, bias=False)})
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        with isoloss.record(model, optimizer, self.path, statistics=[1]) as recorder:
            for _ in range(2):
                model["twice"](torch.randn(4, 8)).square().sum().backward()
            optimizer.step()
            recorder.step(1.0, tokens=8)

        with h5py.File(self.path) as log:
            at = list(log["tensors/names"].asstr()).index("twice_wgrad")
            self.assertEqual(log["tensors/numel"][0, at], 64)
            norm = float(model["twice"].weight.grad.double().norm())
            self.assertAlmostEqual(log["tensors/l2_norm"][0, at], norm, delta=2.0 ** -20 * norm)

    def test_a_trainer_may_write_into_what_was_seen(self):
        torch.manual_seed(9)
        model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(inplace=True),
                                    torch.nn.Linear(8, 8))

        def step(_):
            return model(torch.randn(4, 8)).mul_(2).square().sum()

        found = self.record(model, torch.optim.AdamW(model.parameters(), lr=0.1), step)

        calls = [op for op in found if op["type"] == "linear"]
        self.assertLess(calls[0]["output"].min(), 0)
        np.testing.assert_array_equal(calls[1]["x"], np.maximum(calls[0]["output"], 0))

    def test_under_autocast_they_hold_what_the_product_read(self):
        torch.manual_seed(6)
        model = torch.nn.Sequential(torch.nn.Linear(32, 8, bias=False))
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)

        def step(_):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                return model(torch.randn(4, 32)).float().square().sum()

        with isoloss.record(model, optimizer, self.path, dump=[1]) as recorder:
            loss = step(1)
            loss.backward()
            optimizer.step()
            recorder.step(loss, tokens=1)

        with h5py.File(self.folder / "run.rank-0.operations-000001.h5") as file:
            group = file["operations/000000"]
            for name in ("x", "weight", "output", "grad_output", "grad_weight"):
                self.assertEqual(group[name].attrs["dtype"], "bfloat16", name)
            self.assertNotIn("grad_input", group)

    def test_updates_are_those_of_the_optimizers_of_torch(self):
        for make in (lambda p: torch.optim.AdamW(p, lr=0.1, weight_decay=0.3, betas=(0.8, 0.9)),
                     lambda p: torch.optim.Adam(p, lr=0.1)):
            torch.manual_seed(7)
            model = torch.nn.Linear(4, 4)
            optimizer = make(model.parameters())
            found = self.record(model, optimizer, lambda _: model(torch.randn(5, 4)).square().sum(),
                                steps=3, dump=(3,))
            updates = [op for op in found if op["type"] == "adamw"]
            self.assertEqual([op["module"] for op in updates], ["weight", "bias"])
            np.testing.assert_array_equal(updates[0]["parameter_after"], model.weight.detach())
            np.testing.assert_array_equal(updates[0]["exp_avg_sq_after"],
                                          optimizer.state[model.weight]["exp_avg_sq"])
            self.assertEqual(updates[0]["step"], 3)

    def test_an_update_of_another_rule_is_left_out_and_told(self):
        class Nesterov(torch.optim.AdamW):
            def step(self, closure=None):
                return super().step(closure)

        class Scheduled(torch.optim.AdamW):
            pass

        class Claimed(Nesterov):
            isoloss_type = "adamw"

        class AdamW(torch.optim.Optimizer):  # with states of other names
            def __init__(self, p):
                super().__init__(p, {"lr": 0.1, "betas": (0.9, 0.9), "eps": 1e-8,
                                     "weight_decay": 0})

            def step(self):
                pass

        optim = torch.optim
        for make, told in (
                (optim.NAdam,
                 "NAdam is not the rule of torch.optim.AdamW or Muon, .* isoloss_type = "),
                (optim.RAdam, "RAdam is not"), (optim.Adamax, "Adamax is not"),
                (optim.SGD, "SGD is not"), (Nesterov, "Nesterov is not"),
                (lambda p, lr: optim.AdamW(p, lr, amsgrad=True), "AdamW with amsgrad is not"),
                (lambda p, lr: optim.Adam(p, lr, maximize=True), "Adam with maximize is not"),
                (lambda p, lr: AdamW(p), "AdamW keeps no `exp_avg`"),
                (optim.Adam, None), (Scheduled, None), (Claimed, None)):
            model = torch.nn.Linear(4, 4)
            found = self.record(
                model, make(model.parameters(), lr=0.1),
                lambda _, model=model: model(torch.randn(5, 4)).square().sum(),
                told=() if told is None else (
                    r"step 2: no operation holds the update of 2 trained parameters: "
                    r"weight, bias\. " + told,))
            kinds = ["linear"] if told else ["linear", "adamw", "adamw"]
            self.assertEqual([op["type"] for op in found], kinds, told)
            with h5py.File(self.path.with_name("run.rank-0.operations-000002.h5")) as file:
                self.assertRegex(file.attrs.get("unrecorded", "None"), str(told))

    def test_parameters_that_were_not_updated_are_told(self):
        torch.manual_seed(3)
        model = torch.nn.ModuleDict({"used": torch.nn.Linear(4, 4), "frozen": torch.nn.Linear(4, 4),
                                     "late": torch.nn.Linear(4, 4, bias=False),
                                     "other": torch.nn.Linear(4, 4, bias=False)})
        model["frozen"].requires_grad_(False)
        optimizer = torch.optim.AdamW([*model["used"].parameters(), *model["frozen"].parameters(),
                                       model["late"].weight], lr=0.1)

        def step(number):
            x = model["other"](model["frozen"](model["used"](torch.randn(5, 4))))
            late = model["late"](x)
            return (late if number in (1, 4) else x + 0 * late.detach()).square().sum()

        for parameter in model.parameters():
            parameter.grad = None
        zero_grad = optimizer.zero_grad
        optimizer.zero_grad = lambda: zero_grad(set_to_none=True)
        told = self.train(model, optimizer, step, 5, range(1, 6))

        self.assertEqual([text.split(".weight. ")[0] for text in told], [
            "step 1: no operation holds the update of 1 trained parameter: other",
            "step 2: no operation holds the update of 1 trained parameter: late",
            "step 5: no operation holds the update of 1 trained parameter: late"])
        self.assertIn("record() was given no optimizer for that.", told[0])
        self.assertIn("AdamW found no gradient and changed nothing.", told[1])
        # A file tells its own step, also of what is not new.
        for number, lines in ((1, 1), (2, 2), (3, 2), (4, 1), (5, 2)):
            with h5py.File(self.path.with_name(f"run.rank-0.operations-{number:06d}.h5")) as file:
                self.assertEqual(len(file.attrs["unrecorded"].splitlines()), lines)

    def test_a_step_without_the_optimizers_is_told(self):
        model = torch.nn.Linear(4, 4)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        with isoloss.record(model, optimizer, self.path, dump=[1]) as recorder:
            model(torch.randn(5, 4)).sum().backward()
            with self.assertWarnsRegex(UserWarning,
                                       r"weight, bias\. optimizer\.step\(\) was not called"):
                recorder.step(1.0, tokens=1, lr=0.1)

    def test_an_update_that_a_scaler_skips_stays_where_it_was(self):
        model = torch.nn.Linear(4, 4)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        with isoloss.record(model, optimizer, self.path, dump=[1, 3]) as recorder:
            for scale in (math.inf, 1.0, math.inf):
                optimizer.zero_grad()
                model(torch.randn(5, 4)).mean().mul(scale).backward()
                if math.isfinite(scale):
                    optimizer.step()
                recorder.step(1.0, tokens=1)
        with h5py.File(self.path) as log:
            self.assertEqual(list(log["steps/lr"]), [0.1] * 3)
            self.assertEqual(np.isnan(log["steps/grad_norm"]).tolist(), [True, False, True])
        paths = [self.path.with_name(f"run.rank-0.operations-{step:06d}.h5") for step in (1, 3)]
        for path in paths:
            with h5py.File(path) as file:
                self.assertNotIn("unrecorded", file.attrs)
                updates = [op for op in file["operations"].values() if op.attrs["type"] == "adamw"]
                self.assertEqual([op.attrs["expected"] for op in updates], ["skipped"] * 2)
                for op in updates:
                    self.assertEqual(op.attrs["step"], 1)
                    np.testing.assert_array_equal(op["parameter_after"], op["parameter_before"])
        done = subprocess.run([BINARY, "check-tensors", *paths, "--recipe", "fp32"], check=False,
                              capture_output=True, text=True)
        # The products of infinite gradients are not finite, which is no pass.
        self.assertIn(done.returncode, (0, 4), done.stdout)

    def test_weights_that_no_operation_reads_are_told(self):
        class Model(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.table = torch.nn.Embedding(6, 4)
                self.first, self.second = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
                self.raw = torch.nn.Parameter(torch.randn(4, 4))
                self.scaled = torch.nn.Parameter(torch.randn(4, 4))
                self.head = torch.nn.Linear(4, 6, bias=False)
                self.head.weight = self.table.weight

            def forward(self, ids):
                x = self.first(self.table(ids))
                x = functional.linear(x, self.second.weight, self.second.bias) @ self.raw
                x = isoloss.linear("scaled", functional.linear, x, 2 * self.scaled)
                return functional.linear(x, self.table.weight)

        model = Model()
        self.record(model, torch.optim.AdamW(model.parameters(), lr=0.1),
                    lambda _: model(torch.tensor([1, 2, 5])).square().sum(),
                    told=[r"step 2: no operation reads 3 weights: raw, second\.weight, "
                          r"head\.weight\. Only calls of linear layers .* isoloss\.linear\(\)"])

    def test_an_update_reads_what_its_closure_made(self):
        torch.manual_seed(2)
        model = torch.nn.Linear(4, 4)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)

        def closure():
            optimizer.zero_grad()
            loss = model(torch.randn(5, 4)).square().sum()
            loss.backward()
            return loss

        with isoloss.record(model, optimizer, self.path, dump=[1, 2]) as recorder:
            for number, options in ((1, {}), (2, {"closure": closure})):
                recorder.step(optimizer.step(**options) if options else optimizer.step(closure),
                              tokens=1)
                path = self.folder / f"run.rank-0.operations-{number:06d}.h5"
                self.assertEqual(wrong_of(path), set())
                with h5py.File(path) as file:
                    np.testing.assert_array_equal(file["operations/000001/gradient"],
                                                  model.weight.grad)

    def test_updates_tell_their_types(self):
        torch.manual_seed(1)
        model = torch.nn.Linear(4, 4, bias=False).to(torch.bfloat16)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        self.train(model, optimizer, lambda _: model(torch.randn(5, 4, dtype=torch.bfloat16)).sum(),
                   1, [1])
        with h5py.File(self.path.with_name("run.rank-0.operations-000001.h5")) as file:
            update = file["operations/000001"]
            self.assertEqual({data.attrs["dtype"] for data in update.values()}, {"bfloat16"})

    def test_experts_by_a_function_and_operations_that_are_told(self):
        torch.manual_seed(8)
        weight = torch.nn.Parameter(torch.randn(2, 3, 4))
        model = torch.nn.ParameterDict({"w": weight})
        ends = torch.tensor([0, 5])

        def product(x, w, group_ends):
            return torch.cat([x[:group_ends[0]] @ w[0].T, x[group_ends[0]:] @ w[1].T])

        def step(_):
            x = torch.randn(5, 4, requires_grad=True)
            y = isoloss.grouped_linear("experts.w", product, x, weight, ends)
            source = torch.tensor([0, 1, 1, 2, 0])
            out = torch.zeros(3, 3).index_add(0, source, y)
            isoloss.observe("combine", "moe", rows=y, source=source, weights=torch.ones(5),
                            addend=torch.zeros(3, 3), output=out)
            labels = torch.tensor([1, -100, 2])
            loss = functional.cross_entropy(out, labels)
            isoloss.observe("loss", "loss", logits=out, labels=labels, loss=loss, ignore_index=-100)
            return loss

        found = self.record(model, torch.optim.AdamW(model.parameters(), lr=0.1), step)

        self.assertEqual([op["type"] for op in found],
                         ["grouped_linear", "combine", "loss", "adamw"])
        np.testing.assert_array_equal(found[0]["grad_weight"], found[3]["gradient"])
        self.assertEqual(found[0]["group_ends"].tolist(), [0, 5])
        self.assertEqual(found[2]["loss"].shape, (1,))

    def test_a_weight_with_two_uses_and_a_residual_connection(self):
        torch.manual_seed(4)
        table = torch.nn.Embedding(6, 8)
        model = torch.nn.ModuleDict({"table": table})

        def step(_):
            x = table(torch.tensor([[1, 2, 5]]))
            y = x.tanh()
            z = x + y
            isoloss.observe("combine", "residual", rows=y.flatten(0, 1), addend=x.flatten(0, 1),
                            output=z.flatten(0, 1))
            return isoloss.linear("head", functional.linear, z, table.weight).square().sum()

        found = self.record(model, torch.optim.AdamW(model.parameters(), lr=0.1), step)

        self.assertEqual([(op["type"], op["module"]) for op in found],
                         [("combine", "residual"), ("linear", "head"), ("adamw", "table.weight")])
        self.assertEqual(found[0]["source"].tolist(), [0, 1, 2])
        self.assertEqual(found[1]["grad_weight"].shape, (6, 8))
        # The embedding's use is not part of the head's gradient.
        self.assertFalse(np.array_equal(found[1]["grad_weight"], found[2]["gradient"]))

    def test_what_is_configured_counts_more_than_what_modules_say(self):
        model = torch.nn.Linear(4, 4)

        def step(_):
            scores = model(torch.randn(3, 4)).sigmoid()
            chosen = scores.topk(1)
            isoloss.observe("router", "r", scores=scores, expert_ids=chosen.indices, top_k=1)
            return scores.sum()

        with isoloss.record(model, torch.optim.AdamW(model.parameters(), lr=0.1), self.path,
                            dump=[1], expected={"router": {"top_k": 2},
                                                "linear": {"largest_block_scale": 256},
                                                "adamw": {"weight_decay": 0.5}}) as recorder:
            loss = step(1)
            loss.backward()
            recorder._optimizers[0].step()
            recorder.step(loss, tokens=3)
        with h5py.File(self.folder / "run.rank-0.operations-000001.h5") as file:
            found = {group.attrs["type"]: dict(group.attrs)
                     for group in file["operations"].values()}
        self.assertEqual(found["router"]["top_k"], 2)
        self.assertEqual(found["linear"]["largest_block_scale"], 256)
        self.assertEqual(found["adamw"]["weight_decay"], 0.5)
        with self.assertRaisesRegex(Exception, "got `topk`, but has"):
            isoloss.record(model, torch.optim.AdamW(model.parameters()), self.path,
                           expected={"router": {"topk": 2}})

    def test_without_a_recording_nothing_is_in_the_way(self):
        x, w = torch.randn(3, 4), torch.randn(1, 2, 4)
        self.assertIsNone(isoloss.observe("loss", "loss"))
        self.assertTrue(torch.equal(isoloss.linear("w", functional.linear, x, w[0]), x @ w[0].T))
        self.assertTrue(torch.equal(
            isoloss.grouped_linear("w", lambda x, w, _: x @ w[0].T, x, w, torch.tensor([3])),
            x @ w[0].T))


class Example(Case):
    def run_it(self, *options, told="error"):
        self.fresh()
        with contextlib.redirect_stdout(io.StringIO()) as out, warnings.catch_warnings():
            warnings.simplefilter(told, UserWarning)
            moe_mxfp8.main([*options, "--steps", "3", "--out", str(self.path)])
        return out.getvalue()

    def test_prints_and_logs_the_same_and_all_operations_fit(self):
        for recipe in ("bf16", "mxfp8_rceil"):
            text = self.run_it("--recipe", recipe, "--dump", "1,2,3", "--statistics", "2")
            shown = self.show(self.path)
            with h5py.File(self.path) as log:
                lines = [f"step: {s:2}  loss: {loss:8.5f}  grad_norm: {norm:7.4f}\n"
                         for s, loss, norm
                         in zip(*(log[f"steps/{n}"] for n in ("step", "loss_nats", "grad_norm")))]
                self.assertEqual(log["moe/tokens_per_expert"].shape, (3, 2, 4))
                self.assertTrue((log["moe/tokens_per_expert"][()].sum(2) == 2 * 160).all())
            self.assertEqual(text, "".join(lines))
            self.assertEqual(shown["provenance"]["recipe"], recipe)
            for step in (1, 2, 3):
                self.assertEqual(
                    wrong_of(self.path.with_name(f"run.rank-0.operations-{step:06d}.h5")), set())

    def test_a_mistake_stands_where_it_was_planted(self):
        for name in moe_mxfp8.MISTAKES if "ISOLOSS_ALL_MISTAKES" in os.environ else USUAL:
            self.run_it("--dump", "3", "--mistake", name, told="ignore")
            found = {what for _, what in
                     wrong_of(self.path.with_name("run.rank-0.operations-000003.h5"))}
            self.assertLessEqual(set(FOUND[name]), found, name)

    def test_every_mistake_is_expected_somewhere(self):
        self.assertEqual(set(FOUND), set(moe_mxfp8.MISTAKES))
        self.assertGreaterEqual(len(FOUND), 20)

    def test_a_mistake_of_one_layer_is_in_it_alone(self):
        self.run_it("--dump", "3", "--mistake", "floor_for_rceil", "--site",
                    "layers.1.moe.experts.w2")
        found = wrong_of(self.path.with_name("run.rank-0.operations-000003.h5"))
        self.assertEqual({kind for kind, _ in found}, {"grouped_linear"})


if __name__ == "__main__":
    unittest.main()
