"""check-tensors: recorded operations of any trainer against the oracle."""

import json
import struct

import h5py

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
            {"module": "layers.0.attention.wq", "quantized": False, "reason": "not included"},
            {"module": "layers.0.mlp.fc1", "quantized": True, "reason": "included by `fc1`"}])
        self.assertIn("--include `layers` matches 2 modules", both)
        self.assertNotIn("Not taken", both)

    def test_files_elsewhere_are_not_opened(self):
        self.write("outside.toml", MAPPING.format(rows="../right"))

        result = self.run_isoloss("check-tensors", str(self.folder / "outside.toml"), "--recipe",
                                  "mxfp8_rceil")

        self.assert_refused(result, "in the mapping's own folder", code=INVALID)
