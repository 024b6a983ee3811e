"""check-tensors: recorded operations of any trainer against the oracle."""

import json
import struct

import h5py
import numpy

from layout_recorder import record
from program import FAIL, INCONCLUSIVE, INVALID, PASS, ProgramTest

MAPPING = """\
run = "mine"
step = 2
[[operations]]
type = "dispatch"
module = "layers.1.moe"
[operations.tensors]
tokens = "tokens.npy"
source = "source.npy"
rows = "{rows}.npy"
"""


def npy(kind, shape, data):
    header = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + data


def as_bf16(values):
    bits = numpy.asarray(values, numpy.float32).view(numpy.uint32)
    return (bits + 0x7FFF + (bits >> 16 & 1) & 0xFFFF0000).astype(numpy.uint32).view(numpy.float32)


def exponent(values):
    return numpy.maximum(numpy.frexp(values)[1] - 1, -126)


def hopper_bf16(a, b):
    """a b^T as an H100 adds it: 16 products at a time, all cut off toward zero."""
    a, b = a.astype(float), b.astype(float)
    total = numpy.zeros((len(a), len(b)))
    for k in range(0, a.shape[1], 16):
        x, y = a[:, None, k:k + 16], b[None, :, k:k + 16]
        largest = numpy.maximum((exponent(x) + exponent(y)).max(2), exponent(total))
        unit = 2.0 ** (largest - 25.0)
        total = (numpy.trunc(total / unit) + numpy.trunc(x * y / unit[..., None]).sum(2)) * unit
        last = 2.0 ** (exponent(total) - 23.0)
        total = numpy.trunc(total / last) * last
    return total.astype(numpy.float32)


class CheckTensors(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        tokens = [float(i) for i in range(8)]
        rows = {"right": (2, 0, 1), "shifted": (0, 1, 2)}
        (cls.folder / "tokens.npy").write_bytes(npy("<f4", (4, 2), struct.pack("<8f", *tokens)))
        (cls.folder / "source.npy").write_bytes(npy("<i8", (3,), struct.pack("<3q", 2, 0, 1)))
        for name, places in rows.items():
            values = [tokens[2 * place + i] for place in places for i in range(2)]
            (cls.folder / f"{name}.npy").write_bytes(
                npy("<f4", (3, 2), struct.pack("<6f", *values)))
            cls.write(f"{name}.toml", MAPPING.format(rows=name))

    def check(self, name, *arguments, code):
        result = self.run_isoloss("check-tensors", str(self.folder / name), "--recipe",
                                  "mxfp8_rceil", *arguments)
        self.assertEqual(result.returncode, code, result.stdout + result.stderr)
        return result.stdout

    def test_right_rows_pass(self):
        text = self.check("right.toml", code=PASS)

        self.assertIn("PASS: 0 of 1 tensors", text)

    def test_a_mistake_is_named_in_a_sentence(self):
        text = self.check("shifted.toml", code=FAIL)

        self.assertIn("Each row is that of the place after it.", text)
        self.assertTrue(all(len(line) <= 80 for line in text.splitlines()), text)

    def test_tensors_without_others_are_listed_on_demand(self):
        self.write("both.toml", MAPPING.format(rows="right")
                   + MAPPING.format(rows="shifted").partition("step = 2\n")[2].replace(".1.", ".2."))

        text = self.check("both.toml", code=FAIL)
        everything = self.check("both.toml", "--all", code=FAIL)

        self.assertNotIn("layers.1.moe (dispatch)", text)
        self.assertIn("Without others: 1 of 2 tensors. --all lists them.", text)
        self.assertLess(everything.index("layers.2.moe"), everything.index("layers.1.moe"))
        self.assertIn("flips: another order of FP32 sums", everything)
        self.assertNotIn("--all", everything)

    def recorded(self, name, spoil=lambda output: output):
        """A BF16 layer of an H100, with FP32 results."""
        random = numpy.random.default_rng(3)
        x, weight = (as_bf16(random.standard_normal((64, 256))) for _ in range(2))
        with h5py.File(self.folder / name, "w") as file:
            for key, value in (("operations_version", 1), ("step", 1), ("rank", 0), ("ranks", 1)):
                file.attrs[key] = numpy.int64(value)
            file.attrs["run"] = "h100"
            layer = file.create_group("operations/000000")
            layer.attrs["type"], layer.attrs["module"] = "linear", "layers.0.wq"
            for tensor, values, kind in (("x", x, "bfloat16"), ("weight", weight, "bfloat16"),
                                         ("output", spoil(hopper_bf16(x, weight)), "float32")):
                layer.create_dataset(tensor, data=values).attrs["dtype"] = kind
        return str(self.folder / name)

    def test_a_cards_tensor_cores_are_told_and_judged_by(self):
        def flip(output):
            output.view(numpy.uint32)[5::16, 7] ^= 1 << 21
            return output

        right = self.run_isoloss("check-tensors", self.recorded("right.h5"), "--recipe", "bf16")
        sick = self.run_isoloss("check-tensors", self.recorded("sick.h5", flip), "--recipe", "bf16")
        demanded = self.run_isoloss("check-tensors", self.recorded("right.h5"), "--recipe", "bf16",
                                    "--sums", "fp32", "--json")

        self.assertEqual((right.returncode, sick.returncode, demanded.returncode),
                         (PASS, FAIL, PASS), right.stdout + sick.stdout)
        self.assertTrue(" ".join(right.stdout.split()).startswith(
            "Products: Hopper and Blackwell BF16 tensor cores, one chain: 4,096 of 4,096 elements "
            "to the bit."), right.stdout)
        self.assertIn("4 elements of 4,096 differ from the predicted bits, all in bit 21",
                      " ".join(sick.stdout.split()))
        self.assertIn("suspect the processor", " ".join(sick.stdout.split()))
        self.assertEqual(json.loads(demanded.stdout)["findings"][0]["sums"], "")

    def test_sums_over_ranks_may_have_rounded_parts(self):
        files = record(self.folder / "ranks", tensor=2).glob("*.h5")
        checked = ["check-tensors", *map(str, files), "--recipe", "bf16"]

        result = self.run_isoloss(*checked)
        self.assertEqual(result.returncode, PASS, result.stdout)
        self.assertIn("sum of 2 rounded parts: layers.0.w1 dgrad, layers.0.w2 fprop",
                      " ".join(result.stdout.split()))
        shown = json.loads(self.run_isoloss(*checked, "--json").stdout)
        self.assertEqual({(found["module"], found["part"]) for found in shown["findings"]
                          if found["rounded_parts"] == 2},
                         {(f"layers.{i}.{name}", part)
                          for i in range(2) for name, part in (("w1", "dgrad"), ("w2", "fprop"))})

        with h5py.File(checked[1], "a") as file:
            file.attrs["mesh"] = "dp=1 tp=-2"
        refused = self.run_isoloss(*checked)
        self.assertEqual(refused.returncode, INVALID)
        self.assertIn("attribute mesh is `dp=1 tp=-2`", refused.stderr)

    def test_what_explains_a_part_is_not_told_as_the_cause(self):
        values = [0, 1, 2, 3, 4, 9]
        (self.folder / "nearly.npy").write_bytes(npy("<f4", (3, 2), struct.pack("<6f", *values)))
        self.write("nearly.toml", MAPPING.format(rows="nearly"))

        text = " ".join(self.check("nearly.toml", code=FAIL).split())

        self.assertIn("No known mistake explains all. The nearest one explains 5 of 6 elements, "
                      "which may be by chance: each row is that of the place after it", text)

    def update(self, name, gradient, after, extra=""):
        """One step of AdamW of one element, by a gradient, from 1, 0 and 0."""
        tensors = {"parameter_before": 1, "exp_avg_before": 0, "exp_avg_sq_before": 0,
                   "gradient": gradient, "parameter_after": after, "exp_avg_after": after,
                   "exp_avg_sq_after": after}
        for tensor, value in tensors.items():
            (self.folder / f"{name}_{tensor}.npy").write_bytes(
                npy("<f4", (1, 1), struct.pack("<f", value)))
        self.write(f"{name}.toml", 'step = 1\n[[operations]]\ntype = "adamw"\nmodule = "w"\n'
                   "lr = 0.1\nbeta1 = 0.9\nbeta2 = 0.95\neps = 1e-8\nweight_decay = 0\n"
                   f"step = 1\n{extra}[operations.tensors]\n" + "".join(
                       f'{tensor} = "{name}_{tensor}.npy"\n' for tensor in tensors))

    def test_what_is_not_finite_does_not_pass(self):
        nan = float("nan")
        self.update("through", nan, nan)
        self.update("hidden", nan, 0.5)

        through = self.check("through.toml", code=FAIL)
        hidden = " ".join(self.check("hidden.toml", code=FAIL).split())

        self.assertIn("FAIL: 4 tensors hold elements that are not finite.", through)
        self.assertIn("1 of 1 elements of parameter_after are not finite.", " ".join(through.split()))
        self.assertIn("it is 0.5, but its inputs make it nan.", hidden)
        self.assertIn("1 tensor holds elements that are not finite.", hidden)

    def test_a_step_that_was_to_be_skipped_passes(self):
        self.update("skipped", float("inf"), 0, 'expected = "skipped"\n')
        (self.folder / "skipped_parameter_after.npy").write_bytes(
            npy("<f4", (1, 1), struct.pack("<f", 1)))

        text = " ".join(self.check("skipped.toml", code=PASS).split())

        self.assertIn("gradient are not finite, and the step was to be skipped.", text)

    def test_what_was_not_checked_does_not_pass(self):
        self.update("finite", 0.5, 0, 'expected = "skipped"\n')
        (self.folder / "finite_parameter_after.npy").write_bytes(
            npy("<f4", (1, 1), struct.pack("<f", 1)))

        text = " ".join(self.check("finite.toml", code=INCONCLUSIVE).split())
        shown = json.loads(self.check("finite.toml", "--json", code=INCONCLUSIVE))

        self.assertIn("Open, step 1, rank 0: the step was to be skipped, but every recorded "
                      "gradient is finite: w.", text)
        self.assertIn("INCONCLUSIVE: 1 point is open. 3 checked results are what their inputs "
                      "give", text)
        point, = shown["open"]
        self.assertEqual((point["step"], point["rank"], point["module"], point["forbids_pass"]),
                         (1, 0, "w", True))

    def test_no_element_is_no_pass(self):
        (self.folder / "none.npy").write_bytes(npy("<f4", (0, 2), b""))
        (self.folder / "nowhere.npy").write_bytes(npy("<i8", (0,), b""))
        self.write("none.toml", MAPPING.format(rows="none").replace("source.npy", "nowhere.npy"))

        text = self.check("none.toml", code=INCONCLUSIVE)

        self.assertIn("INCONCLUSIVE: there is no result to check.", text)

    def test_json_has_the_counts_and_the_explanation(self):
        shown = json.loads(self.check("shifted.toml", "--json", code=FAIL))

        self.assertEqual(shown["outcome"], "FAIL")
        finding, = shown["findings"]
        self.assertEqual(finding["tensor"], "layers.1.moe_rows")
        self.assertEqual((finding["elements"], finding["other"]), (6, 6))
        self.assertEqual(finding["explanation"]["name"], "rows_shifted")

    def test_the_probe_log_can_be_shown(self):
        out = self.folder / "probe.h5"

        self.check("shifted.toml", "--out", str(out), "--arm", "mine", "--seed", "3", code=FAIL)

        shown = self.run_isoloss("show", str(out))
        self.assertIn("mine, recipe mxfp8_rceil, seed 3", shown.stdout)
        with h5py.File(out) as log:
            self.assertEqual(list(log["oracle/other"]), [6])

    def test_nothing_to_check_is_no_pass(self):
        self.write("empty.toml", "step = 1\n")

        self.check("empty.toml", code=INCONCLUSIVE)

    def test_modules_that_the_recipe_does_not_reach_are_listed(self):
        ones = npy("<f4", (1, 32), struct.pack("<32f", *[1.0] * 32))
        (self.folder / "ones.npy").write_bytes(ones)
        (self.folder / "sum.npy").write_bytes(npy("<f4", (1, 1), struct.pack("<f", 32.0)))
        self.write("modules.toml", "step = 1\n" + "".join(
            f'[[operations]]\ntype = "linear"\nmodule = "{module}"\n[operations.tensors]\n'
            'x = "ones.npy"\nweight = "ones.npy"\noutput = "sum.npy"\n'
            for module in ("layers.0.attention.wq", "layers.0.mlp.fc1")))

        text = self.check("modules.toml", code=PASS)
        shown = json.loads(self.check("modules.toml", "--include", "fc1", "--json", code=PASS))
        both = self.check("modules.toml", "--include", "layers", code=PASS)

        self.assertIn("Not taken as quantised (not included; 1 of 2 linear modules):", text)
        self.assertIn("1 of 2 linear modules were not taken as", text)
        self.assertEqual(shown["modules"], [
            {"module": "layers.0.attention.wq", "quantized": False, "is_named": False,
             "reason": "not included"},
            {"module": "layers.0.mlp.fc1", "quantized": True, "is_named": True,
             "reason": "included by `fc1`"}])
        self.assertIn("--include `layers` matches 2 modules", both)
        self.assertNotIn("Not taken", both)

        audited = self.check("modules.toml", "--audit", code=PASS)
        self.assertIn("quantised, grid", audited)
        unnamed = self.check("modules.toml", "--expect", "recipe", code=FAIL)
        self.assertIn("layers.0.mlp.fc1: no pattern names this module", " ".join(unnamed.split()))
        self.check("modules.toml", "--expect", "recipe", "--exclude", "fc1", code=PASS)

    def test_files_elsewhere_are_not_opened(self):
        self.write("outside.toml", MAPPING.format(rows="../right"))

        result = self.run_isoloss("check-tensors", str(self.folder / "outside.toml"), "--recipe",
                                  "mxfp8_rceil")

        self.assert_refused(result, "in the mapping's own folder", code=INVALID)
