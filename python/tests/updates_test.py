"""What is recorded of optimizers beside torch's plain AdamW."""

import pathlib
import sys
import tempfile
import types
import unittest
import warnings

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import isoloss  # noqa: E402
from isoloss import expectations, operations, taps, updates  # noqa: E402
from isoloss.passes import Places  # noqa: E402


def recorded(optimizer, steps=2, masters=None):
    """The last step's updates of an optimizer whose gradients are random, and reasons."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    copies = masters or {}
    for step in range(steps):
        torch.manual_seed(step)
        for parameter in parameters:
            parameter.grad = torch.randn(parameter.shape).to(parameter.dtype)
        update = updates.Update(optimizer, {id(p): "w" for p in parameters}, copies)
        update.before()
        optimizer.step()
        found = update.after(Places())
    return found, update.reasons


def parameter(*shape, dtype=torch.float32):
    torch.manual_seed(7)
    return torch.nn.Parameter(torch.randn(*shape).to(dtype))


class Custom(torch.optim.Optimizer):
    """With what the optimizers of other libraries keep."""

    def __init__(self, params, update, **defaults):
        super().__init__(params, {"lr": 0.1, **defaults})
        self._update = update

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                self._update(self.state[p], p)


ADAM = {"betas": (0.9, 0.99), "eps": 1e-8, "weight_decay": 0.0}


def named(name, **members):
    """A class of that name with a step() of its own."""
    return type(name, (Custom,), {"step": lambda self: Custom.step(self), **members})


class AdamTest(unittest.TestCase):
    def test_ways_to_compute_leave_the_same_operations(self):
        ways = [{}, {"foreach": True}, {"lr": torch.tensor(0.1)}]
        if torch.__version__ >= "2.4":
            ways.append({"fused": True})
        for way in ways:
            weight = parameter(4, 6)
            optimizer = torch.optim.AdamW([weight], **{"lr": 0.1, "weight_decay": 0.3, **way})
            (operation,), reasons = recorded(optimizer)
            self.assertEqual(reasons, {})
            self.assertEqual((operation.kind, operation.attributes["step"]), ("adamw", 2))
            self.assertAlmostEqual(operation.attributes["lr"], 0.1)
            self.assertTrue(torch.equal(operation.tensors["parameter_after"], weight))

    def test_a_decay_in_the_gradient_is_told(self):
        for optimizer, decay in ((torch.optim.Adam([parameter(4)], weight_decay=0.1), "l2"),
                                 (torch.optim.Adam([parameter(4)]), None),
                                 (torch.optim.AdamW([parameter(4)], weight_decay=0.1), None)):
            (operation,), _ = recorded(optimizer)
            self.assertEqual(operation.attributes.get("decay"), decay)

    def test_a_skipped_step_of_a_scaler_is_told(self):
        weight = parameter(4)
        optimizer = torch.optim.AdamW([weight], lr=0.1)
        recorded(optimizer)
        optimizer.found_inf = torch.ones(1)
        optimizer.step = lambda: None
        (operation,), _ = recorded(optimizer)
        self.assertEqual(operation.attributes["expected"], "skipped")

    def test_a_weight_that_ranks_gathered_in_fp8_is_the_optimizers(self):
        codes, scale = torch.tensor([[8, 9, 10]], dtype=torch.uint8), torch.tensor(4.0)
        weight = types.SimpleNamespace(_data=codes, _scale=scale, requires_grad=False,
                                       to_original_precision=lambda: codes.bfloat16() / scale)
        product = taps.Product("linear", "l", 1, torch.ones(2, 3), weight, weight_name="l.weight")
        update = operations.Operation("adamw", "l.weight")
        update.keep("parameter_before", torch.tensor([[2.0, 2.25, 2.003]]))
        updates.find_lost_weights([product.operation, update])
        found = product.operation.tensors
        self.assertEqual(found["weight"].tolist(), [[2.0, 2.25, 2.0]])
        self.assertEqual(found["fprop_w_scales"], 0.25)
        self.assertEqual(found["fprop_w_codes"].dtype, torch.uint8)

    def test_codes_of_moments_are_kept_with_their_scales(self):
        class Codes:  # as Transformer Engine's
            def __init__(self, shape):
                self._data = torch.zeros(shape, dtype=torch.uint8)
                self._scale_inv = torch.ones(2)
                self._fp8_dtype = "DType.kFloat8E4M3"

        def step(state, p):
            state.update(step=3, exp_avg=Codes(p.shape), exp_avg_sq=Codes(p.shape))

        def bytes_only(state, p):
            state["step"] = 3
            for name in ("exp_avg", "exp_avg_sq"):
                state[name] = torch.zeros(p.shape, dtype=torch.uint8)

        (operation,), _ = recorded(named("AdamW")([parameter(2, 256)], step, **ADAM))
        self.assertEqual(operation.formats["exp_avg_after"], "e4m3")
        self.assertEqual(operation.tensors["exp_avg_after_codes"].dtype, torch.uint8)
        self.assertEqual(operation.tensors["exp_avg_sq_after_scales"].shape, (2,))
        _, reasons = recorded(named("AdamW")([parameter(2, 256)], bytes_only, **ADAM))
        self.assertIn("keeps `exp_avg` in torch.uint8, whose codes", reasons["w"])

    def test_what_is_scaled_in_fp16_is_refused_and_random_rounding_is_told(self):
        weight = parameter(8, dtype=torch.bfloat16)

        def step(state, p):
            state.update(step=1, exp_avg=torch.zeros(p.shape, dtype=torch.float16),
                         exp_avg_sq=torch.zeros(p.shape))

        optimizer = named("FusedAdam")([weight], step, **ADAM)
        optimizer.bf16_stochastic_round = True
        (operation,), _ = recorded(optimizer)
        self.assertEqual(operation.attributes["rounding"], "stochastic")
        optimizer._scales = {weight: {"exp_avg": torch.ones(1)}}
        found, reasons = recorded(optimizer)
        self.assertEqual(found, [])
        self.assertIn("keeps `exp_avg` in FP16 with a scale", reasons["w"])

    def test_masters_are_the_parameters_of_an_update(self):
        def step(state, p):
            master = state.get("master_param", p.detach().float()) - 0.001
            state.update(step=1, master_param=master, exp_avg=torch.zeros(p.shape),
                         exp_avg_sq=torch.zeros(p.shape))
            p.copy_(master)

        def split(state, p):
            """As Transformer Engine, which keeps the lower half of a master's bits."""
            low = state.get("master_param", torch.zeros(p.shape, dtype=torch.int16))
            master = (p.float().view(torch.int32) + low.to(torch.int32)).view(torch.float32) - 0.001
            p.copy_(master)
            low = (master.view(torch.int32) - p.float().view(torch.int32)).to(torch.int16)
            state.update(step=1, master_param=low, exp_avg=torch.zeros(p.shape),
                         exp_avg_sq=torch.zeros(p.shape))

        for update in (step, split):
            for steps in (1, 3):
                weight = parameter(8, dtype=torch.bfloat16)
                first = weight.detach().float()
                optimizer = named("FusedAdam")([weight], update, bias_correction=True, **ADAM)
                found, _ = recorded(optimizer, steps)
                updates.keep_weights(found)
                tensors = found[0].tensors
                self.assertTrue(torch.allclose(tensors["parameter_before"],
                                               first - 0.001 * (steps - 1), atol=1e-6))
                self.assertTrue(torch.allclose(tensors["parameter_after"], first - 0.001 * steps,
                                               atol=1e-6))
                self.assertEqual(tensors["weight_after"].dtype, torch.bfloat16)
                self.assertTrue(torch.equal(tensors["weight_after"],
                                            tensors["parameter_after"].bfloat16()))

    def test_a_weight_is_kept_when_the_model_has_copied_its_master(self):
        weight = parameter(8, dtype=torch.bfloat16)
        master = torch.nn.Parameter(weight.detach().float())
        optimizer = torch.optim.AdamW([master], lr=0.1)
        found, _ = recorded(optimizer, masters={id(master): weight})
        weight.data.copy_(master)
        updates.keep_weights(found)
        self.assertTrue(torch.equal(found[0].tensors["weight_after"], weight))

    def test_reasons_of_masters_are_told_of_weights(self):
        layer = torch.nn.Linear(4, 4).bfloat16()
        for held in layer.parameters():
            held.main_param = held.detach().float()
        masters = [p.main_param for p in layer.parameters()]
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            optimizer = torch.optim.AdamW(masters, lr=0.1, amsgrad=True)
            with isoloss.record(layer, optimizer, f"{folder}/run.h5", dump=[1]) as recorder:
                layer(torch.randn(3, 4).bfloat16())
                for master in masters:
                    master.grad = torch.ones_like(master)
                optimizer.step()
                recorder.step(1.0, tokens=3)
        self.assertIn("2 trained parameters: weight, bias. AdamW with amsgrad is not the rule",
                      str(told[0].message))


class MuonTest(unittest.TestCase):
    def muon(self, name, group, **members):
        def step(state, p):
            state["momentum_buffer"] = p.grad.clone()

        (operation,), reasons = recorded(named(name, **members)([parameter(4, 6)], step, **group))
        self.assertEqual(reasons, {})
        self.assertEqual(operation.kind, "muon")
        self.assertLessEqual({*operation.attributes, *operation.tensors},
                             {name for names in operations.TYPES["muon"] for name in names})
        self.assertEqual(operation.tensors["momentum_before"].shape, (4, 6))
        return operation

    def test_settings_are_those_of_the_libraries(self):
        jordan = self.muon("SingleDeviceMuon", {"momentum": 0.9})
        self.assertEqual(jordan.attributes, {
            "lr": 0.1, "momentum": 0.9, "ns_steps": 5, "weight_decay": 0.0, "eps": 1e-7,
            "nesterov": 1, "momentum_rule": "lerp", "scale_rule": "original",
            "ns_dtype": "bfloat16"})
        self.assertEqual(jordan.tensors["coefficients"].tolist(), [[3.4445, -4.7750, 2.0315]])
        moonshot = self.muon("Muon", {"momentum": 0.9, "wd": 0.2, "nesterov": True, "ns_steps": 4},
                             adjust_lr_for_muon=None)
        self.assertEqual({name: moonshot.attributes[name]
                          for name in ("weight_decay", "ns_steps", "momentum_rule", "scale_rule")},
                         {"weight_decay": 0.2, "ns_steps": 4, "momentum_rule": "sum",
                          "scale_rule": "match_rms_adamw"})
        engine = self.muon("MuonOptimizer", {
            "momentum": 0.9, "nesterov": False, "coefficient_type": "quintic", "num_ns_steps": 10,
            "scale_mode": "spectral", "extra_scale_factor": 0.2,
            "use_decoupled_weight_decay": False,
            "weight_decay": 0.1})
        self.assertEqual({name: engine.attributes[name]
                          for name in ("scale_rule", "scale", "decay")},
                         {"scale_rule": "spectral", "scale": 0.2, "decay": "l2"})
        self.assertEqual(engine.tensors["coefficients"].shape, (10, 3))
        self.assertAlmostEqual(float(engine.tensors["coefficients"][6, 0]), 3.9505)

    def test_what_no_class_says_is_left_out(self):
        found = self.muon("NewMuon", {"momentum": 0.9, "nesterov": True, "ns_steps": 5}).attributes
        self.assertTrue({"momentum_rule", "scale_rule", "ns_dtype"}.isdisjoint(found))

    def test_the_first_momentum_is_zero(self):
        def step(state, p):
            state["momentum_buffer"] = p.grad.clone()

        (operation,), _ = recorded(named("Muon")([parameter(4, 6)], step, momentum=0.9), steps=1)
        self.assertEqual(float(operation.tensors["momentum_before"].abs().sum()), 0)

    @unittest.skipUnless(hasattr(torch.optim, "Muon"), "torch has no Muon")
    def test_torch(self):
        weight = parameter(4, 6)
        (operation,), _ = recorded(torch.optim.Muon([weight], adjust_lr_fn="match_rms_adamw"))
        self.assertEqual(operation.attributes["scale_rule"], "match_rms_adamw")
        self.assertTrue(torch.equal(operation.tensors["parameter_after"], weight))

    def test_expected_settings_count_more(self):
        def step(state, p):
            state["momentum_buffer"] = p.grad.clone()

        found, _ = recorded(named("Muon")([parameter(4, 6)], step, momentum=0.9))
        (operation,) = found
        rows = [[2.0, -1.5, 0.5]]
        given = {"muon": {"nesterov": 0, "coefficients": {"w": rows}}}
        expectations.Expectations(given).apply(found)
        self.assertEqual(operation.attributes["nesterov"], 0)
        self.assertEqual(operation.tensors["coefficients"].tolist(), rows)


if __name__ == "__main__":
    unittest.main()
