"""python -m isoloss sick on cards that are healthy, lie, or add in another way."""

import argparse
import contextlib
import io
import json
import os
import pathlib
import subprocess
import sys
import unittest
from unittest import mock

import h5py
import torch

from isoloss import __main__ as program
from isoloss import adders, bit_patterns, cards, sick

SIZE = (256, 128, 64)
SILICON = pathlib.Path(__file__).parents[2] / "golden/vectors/hopper_silicon.h5"


class FakeCard:
    """Computes by the model, each product in 10 ms of its own clock.
    `lie(bits, product)` alters the FP32 bits."""

    name = "fake"
    device = torch.device("cpu")
    capability = (9, 0)

    def __init__(self, lie=None, adder=None, only_bf16=False, missing=None):
        self._lie, self._adder, self._only_bf16 = lie, adder, only_bf16
        self._missing = missing
        self.products = 0

    def place(self, tensor):
        return tensor.clone()

    def multiply(self, adder, left, right, output):
        if self._only_bf16 and output is torch.float32:
            raise TypeError("mm() got an unexpected keyword argument 'out_dtype'")
        if adder.name == self._missing:
            raise RuntimeError(
                "CUDA error: CUBLAS_STATUS_NOT_SUPPORTED when calling cublasLtMatmul")
        adder = self._adder or adder
        result = adders.products(adder, adders.values_of(adder.format, left),
                                 adders.values_of(adder.format, right))
        if self._lie is not None:
            self._lie(result.view(torch.int32), self.products)
        self.products += 1
        return result.to(output)

    def clock(self):
        return self.products / 100

    def synchronize(self):
        pass

    def sensors(self):
        return {"temperature_c": 61.0}


def report_of(card, *options):
    given = ["--json", "--seconds", "0.1", "--adder", "hopper_bf16", "--size",
             "x".join(map(str, SIZE)), *options]
    parser = argparse.ArgumentParser()
    sick.declare(parser)
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        code = sick.examine(card, parser.parse_args(given))
    report = json.loads(out.getvalue())
    assert report["exit_code"] == code
    return report


class Cards(unittest.TestCase):
    def pattern_of(self, lie):
        report = report_of(FakeCard(lie))
        self.assertEqual((report["verdict"], report["exit_code"]), ("FAIL", 1), report)
        return report["cases"][0]

    def test_healthy(self):
        report = report_of(FakeCard())

        self.assertEqual((report["verdict"], report["exit_code"]), ("PASS", 0), report)
        self.assertEqual(report["wrong"], 0)
        self.assertEqual(report["elements"], report["cases"][0]["products"] * SIZE[0] * SIZE[1])
        self.assertRegex(report["text"], "elements of 1 kind .* bits of hopper_bf16")

    def test_one_bit_of_one_element(self):
        def lie(bits, product):
            if product == 3:
                bits[17, 100] ^= 1 << 21

        case = self.pattern_of(lie)
        self.assertEqual(case["wrong"], 1)
        self.assertIn("in bit 21, in row 17, column 100, in 1 of", case["pattern"])
        found = case["deviations"][0]
        self.assertEqual((found["row"], found["column"], found["bits"]), (17, 100, [21]))
        self.assertEqual(int(found["expected"], 16) ^ int(found["found"], 16), 1 << 21)

    def test_the_first_product_counts(self):
        def lie(bits, product):
            if product == 0:
                bits[17, 100] ^= 1

        self.assertIn("in bit 0, in row 17, column 100, in 1 of", self.pattern_of(lie)["pattern"])

    def test_one_lane(self):
        def lie(bits, product):
            bits[3::8] ^= 1 << 13

        self.assertRegex(self.pattern_of(lie)["pattern"],
                         "all in bit 13, in row 3 of tiles of 8, in ([0-9]+) of \\1 products")

    def test_rows_of_tiles(self):
        def lie(bits, product):
            for row, column in ((8, 1), (77, 50), (143, 99)):
                bits[row, column] ^= 1 << 21

        self.assertIn("all in bit 21, in rows 8 to 15 of tiles of 64",
                      self.pattern_of(lie)["pattern"])

    def test_one_tile(self):
        def lie(bits, product):
            tile = bits[128:192, 64:128]
            tile ^= torch.randint(1, 1 << 30, tile.shape, dtype=torch.int32)

        self.assertIn("in bits 0 to 29, in the tile of rows 128 to 191 and columns 64 to 127",
                      self.pattern_of(lie)["pattern"])

    def test_one_tile_that_is_a_little_wrong_is_no_other_adder(self):
        def lie(bits, product):
            if len(bits) == 512:
                tile = bits[128:256, 128:256]
                tile += torch.randint(1, 1 << 6, tile.shape, generator=torch.manual_seed(1)).int()

        report = report_of(FakeCard(lie), "--size", "512x512x64", "--seconds", "0")
        self.assertEqual(report["verdict"], "FAIL", report)
        self.assertIn("in the tile of rows 128 to 255 and columns 128 to 255",
                      report["cases"][1]["pattern"])

    def test_one_bit_position(self):
        def lie(bits, product):
            bits |= 1 << 2

        self.assertIn("all in bit 2, in no pattern of rows and columns",
                      self.pattern_of(lie)["pattern"])

    def test_three_bits_that_stick(self):
        def lie(bits, product):
            bits |= 7

        self.assertIn("in bits 0 to 2, in no pattern", self.pattern_of(lie)["pattern"])

    def test_a_late_fault_of_all_is_no_other_adder(self):
        card = FakeCard()

        def lie(bits, product):
            if product > 2:
                bits += (torch.arange(bits.numel(), dtype=torch.int32) % 3 + 1).reshape(bits.shape)

        card._lie = lie
        self.assertEqual(report_of(card)["verdict"], "FAIL")

    def test_another_adder(self):
        for adder in (adders.ADDERS["ampere_bf16"],
                      adders.ADDERS["hopper_bf16"]._replace(promote=32)):  # as split sums
            report = report_of(FakeCard(adder=adder))
            self.assertEqual((report["verdict"], report["exit_code"]), ("INCONCLUSIVE", 4), report)
            self.assertIn("the products are not those of hopper_bf16",
                          report["cases"][0]["not_judged"])

    def test_half_of_all_rows_is_a_lane(self):
        def lie(bits, product):
            bits[::2] += (torch.arange(bits.shape[1], dtype=torch.int32) * 37 % 1000 + 1)

        self.assertIn("in row 0 of tiles of 2", self.pattern_of(lie)["pattern"])

    def test_another_adder_whose_results_are_rounded(self):
        report = report_of(FakeCard(adder=adders.ADDERS["ampere_bf16"]._replace(fraction_bits=20),
                                    only_bf16=True))
        self.assertEqual(report["verdict"], "INCONCLUSIVE", report)

    def test_rounded_results(self):
        def lie(bits, product):
            bits[40, 40] ^= 1 << 22

        healthy = report_of(FakeCard(only_bf16=True))
        self.assertEqual(healthy["verdict"], "PASS", healthy)
        self.assertIn("rounded to BF16", healthy["text"])
        self.assertEqual(report_of(FakeCard(lie, only_bf16=True))["verdict"], "FAIL")

    def test_a_card_that_compares_wrongly(self):
        class Blind(FakeCard):
            """Its memory lost the expected result, and holds the lie instead."""
            def place(self, tensor):
                if tensor.dtype is torch.float32 and tensor.dim() == 2:
                    tensor = tensor * 2
                return tensor.clone()

        def lie(bits, product):
            bits += 1 << 23
        report = report_of(Blind(lie))
        self.assertEqual(report["verdict"], "FAIL")
        self.assertIn("own comparison missed", report["cases"][0]["pattern"])
        report = report_of(Blind())
        self.assertEqual(report["verdict"], "FAIL")
        self.assertIn("its memory or its comparison is at fault", report["cases"][0]["pattern"])

    def test_a_card_that_does_not_write_its_result(self):
        class Forgetful(FakeCard):
            """Its sixth product leaves what its room held before."""
            rooms = []

            def multiply(self, *what):
                result = super().multiply(*what)
                self.rooms.append(result)
                return self.rooms[0] if len(self.rooms) == 6 else result

        case = report_of(Forgetful())["cases"][0]
        self.assertEqual((case["wrong"], case["deviations"][0]["found"]),
                         (SIZE[0] * SIZE[1], "ffffffff"))

    def test_a_card_that_breaks(self):
        def lie(bits, product):
            if product > 2:
                raise RuntimeError("CUDA error: an illegal instruction was encountered")

        report = report_of(FakeCard(lie))
        self.assertEqual(report["verdict"], "FAIL")
        self.assertIn("illegal instruction", report["text"])

    def test_all_adders(self):
        for name, adder in adders.ADDERS.items():
            report = report_of(FakeCard(), "--adder", name)
            self.assertEqual([case["adder"] for case in report["cases"]], ["hopper_bf16", name])
            self.assertEqual(report["verdict"], "PASS", report)

    def test_products_that_pytorch_does_not_offer(self):
        card = FakeCard(missing="hopper_f13")
        report = report_of(card, "--adder", "hopper_f13")
        self.assertEqual(report["verdict"], "PASS", report)
        self.assertRegex(report["text"], "of 1 kind .* have the bits of hopper_bf16\\.")
        self.assertIn("NOT_SUPPORTED", report["cases"][1]["not_judged"])

        self.assertEqual(report_of(FakeCard(missing="hopper_bf16"))["verdict"], "INCONCLUSIVE")

    def test_a_processor_that_knows_other_results(self):
        with mock.patch.object(adders, "known_digest", lambda adder, depth: "0"):
            report = report_of(FakeCard())

        self.assertEqual(report["verdict"], "INCONCLUSIVE")
        self.assertIn("Examine the processor first", report["cases"][0]["not_judged"])

    def test_a_card_of_no_known_adder(self):
        card = FakeCard()
        card.capability = (12, 0)
        options = argparse.Namespace(seconds=1, adder=None, size=[SIZE], json=False)
        with self.assertRaisesRegex(cards.CardError, "compute capability 12.0 is known"):
            sick.examine(card, options)

    def test_refusals(self):
        for options, text in ((["--size", "100x64x64"], "multiple of 16"),
                              (["--adder", "hoper"], "Pass one of hopper_bf16"),
                              (["--seconds", "nan"], "must lie from 0")):
            with self.assertRaisesRegex(cards.CardError, text):
                report_of(FakeCard(), *options)


class CudaCard(unittest.TestCase):
    """What is asked of PyTorch and of nvidia-smi, which the test imitates."""

    def setUp(self):
        self.card = cards.Card.__new__(cards.Card)
        self.card._one = torch.ones(())

    def product(self, name):
        adder = adders.ADDERS[name]
        left, right = (codes[:16].to(adder.format.dtype)
                       for codes in adders.base_codes(adder.format, 64, 0))
        due = adders.products(adder, adders.values_of(adder.format, left),
                              adders.values_of(adder.format, right))
        return self.card.multiply(adder, left, right, torch.float32), due

    def test_bf16(self):
        def multiply(left, right, *, out_dtype):
            self.assertEqual((left.dtype, right.dtype), (torch.bfloat16, torch.bfloat16))
            return adders.products(adders.ADDERS["hopper_bf16"], left.double(),
                                   right.double().t().contiguous()).to(out_dtype)

        with mock.patch.object(torch, "mm", multiply):
            found, due = self.product("hopper_bf16")
        self.assertTrue(torch.equal(found, due))

    def test_fp8(self):
        def multiply(left, right, *, scale_a, scale_b, out_dtype, use_fast_accum):
            self.assertEqual(float(scale_a * scale_b), 1.0)
            adder = adders.ADDERS["hopper_f13" if use_fast_accum else "hopper_f13_promote128"]
            values = [adders.values_of(adders.E4M3, codes)
                      for codes in (left, right.t().contiguous())]
            result = adders.products(adder, *values).to(out_dtype)
            return result if use_fast_accum else (result, torch.ones(()))

        with (mock.patch.object(torch, "_scaled_mm", multiply, create=True),
              mock.patch.object(torch, "float8_e4m3fn", torch.uint8, create=True)):
            for name in ("hopper_f13", "hopper_f13_promote128"):
                found, due = self.product(name)
                self.assertTrue(torch.equal(found, due), name)

    def test_no_card(self):
        properties = argparse.Namespace(name="H100", major=9, minor=0)

        def code_of(version="13.0", reason=""):
            ones = mock.Mock(side_effect=RuntimeError(f"CUDA error: {reason}\nMore.") if reason
                             else None)
            matmul = argparse.Namespace()
            text = io.StringIO()
            with (mock.patch.multiple(torch.cuda, is_available=lambda: True, device_count=lambda: 1,
                                      get_device_properties=lambda device: properties),
                  mock.patch.object(torch.version, "cuda", version),
                  mock.patch.object(torch, "ones", ones),
                  mock.patch.object(torch.backends.cuda, "matmul", matmul),
                  mock.patch.object(sick, "examine", lambda card, options: 0),
                  contextlib.redirect_stderr(text)):
                return program.main(["sick"]), text.getvalue(), matmul

        code, text, matmul = code_of()
        self.assertEqual((code, text), (0, ""))
        self.assertFalse(matmul.allow_bf16_reduced_precision_reduction)
        code, text, _ = code_of(version=None)  # of ROCm
        self.assertEqual(code, 3, text)
        code, text, _ = code_of(reason="no kernel image is available")
        self.assertEqual(code, 3)
        self.assertIn("--device cuda:0: CUDA error: no kernel image is available. End", text)
        code, text, _ = code_of(reason="uncorrectable ECC error encountered")
        self.assertEqual(code, 1)
        self.assertIn("the card reported an error: --device cuda:0: CUDA error: uncorr", text)

    def test_sensors(self):
        self.card._properties = argparse.Namespace(uuid="12-34")
        asked = []

        def run(command, **_):
            asked.append(command)
            return argparse.Namespace(stdout="61, 412.5, [N/A], 0\n")

        with mock.patch.object(subprocess, "run", run):
            self.assertEqual(self.card.sensors(),
                             {"temperature_c": 61.0, "power_w": 412.5, "ecc_uncorrected": 0.0})
        self.assertEqual(asked[0][-2:], ["-i", "GPU-12-34"])
        with mock.patch.object(subprocess, "run", side_effect=FileNotFoundError):
            self.assertEqual(self.card.sensors(), {})


class Adders(unittest.TestCase):
    def test_real_products_of_an_h100(self):
        def values(codes, mantissa_bits, bias, sign_bit):
            codes = torch.from_numpy(codes[:].astype("int64"))
            magnitude = codes & ((1 << sign_bit) - 1)
            field, mantissa = magnitude >> mantissa_bits, magnitude & ((1 << mantissa_bits) - 1)
            normal = (field > 0).to(torch.float64)
            value = torch.ldexp(normal + mantissa / 2.0 ** mantissa_bits, field.clamp(min=1) - bias)
            return torch.where((codes >> sign_bit & 1) == 1, -value, value)

        layouts = {"bf16": (7, 127, 15), "e4m3": (3, 7, 7), "e5m2": (2, 15, 7)}
        adder_of = {"d": "hopper_bf16", "d_fast": "hopper_f13", "d_slow": "hopper_f13_promote128"}
        elements = 0
        with h5py.File(SILICON) as file:
            for formats, depths in file.items():
                left, right = (layouts[name] for name in (formats.split("_") * 2)[:2])
                for group in (kind for depth in depths.values() for kind in depth.values()):
                    a, b = values(group["a"], *left), values(group["b"], *right)
                    for name in set(group) & set(adder_of):
                        found = adders.products(adders.ADDERS[adder_of[name]], a, b)
                        due = torch.from_numpy(group[name][:])
                        self.assertTrue(torch.equal(found.view(torch.int32), due.view(torch.int32)),
                                        group[name].name)
                        elements += due.numel()
        self.assertGreater(elements, 100_000)

    def test_known_digests(self):
        for name, adder in adders.ADDERS.items():
            values = [adders.values_of(adder.format, codes)
                      for codes in adders.base_codes(adder.format, 512, 0)]
            self.assertEqual(adders.digest(adders.products(adder, *values)),
                             adders.known_digest(adder, 512), name)


class Command(unittest.TestCase):
    def test_no_gpu(self):
        if torch.cuda.is_available():
            self.skipTest("there is a GPU")
        error = io.StringIO()
        with contextlib.redirect_stderr(error):
            self.assertEqual(program.main(["sick"]), 3)
        self.assertIn("sees no CUDA GPU", error.getvalue())

    def test_no_pytorch(self):
        hidden = ("import sys;"
                  "sys.modules.update(dict.fromkeys(('torch', 'h5py', 'numpy', 'xxhash')));"
                  "from isoloss.__main__ import main; sys.exit(main(['sick']))")
        found = subprocess.run([sys.executable, "-c", hidden], capture_output=True, text=True,
                               env=os.environ, check=False)
        self.assertEqual(found.returncode, 3, found.stderr)
        self.assertIn("needs PyTorch", found.stderr)


class Patterns(unittest.TestCase):
    def test_few_elements_at_random_have_none(self):
        self.assertEqual(bit_patterns.describe([5, 1000], [9, 3000], [1, 4], (4096, 4096)),
                         "one bit each, in bits 0 to 2, in no pattern of rows and columns")

    def test_one_column(self):
        self.assertEqual(bit_patterns.describe([5, 90, 1001], [9, 9, 9], [3, 3, 3], (4096, 4096)),
                         "in bits 0 to 1, in column 9")


if __name__ == "__main__":
    unittest.main()
