"""python -m isoloss sick on cards that are healthy, lie, or add in another way."""

import argparse
import contextlib
import io
import json
import os
import subprocess
import sys
import unittest

import torch

from isoloss import __main__ as program
from isoloss import adders, bit_patterns, cards, sick

SIZE = (256, 128, 64)


class FakeCard:
    """Computes by the model, each product in 10 ms of its own clock.
    `lie(bits, product)` alters the FP32 bits."""

    name = "fake"
    device = torch.device("cpu")
    capability = (9, 0)

    def __init__(self, lie=None, adder=None, only_bf16=False):
        self._lie, self._adder, self._only_bf16 = lie, adder, only_bf16
        self.products = 0

    def place(self, tensor):
        return tensor.clone()

    def multiply(self, adder, left, right, output):
        if self._only_bf16 and output is torch.float32:
            raise TypeError("mm() got an unexpected keyword argument 'out_dtype'")
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

    def test_one_lane(self):
        def lie(bits, product):
            bits[3::8] ^= 1 << 13

        self.assertRegex(self.pattern_of(lie)["pattern"],
                         "all in bit 13, in row 3 of tiles of 8, in ([0-9]+) of \\1 products")

    def test_rows_of_tiles(self):
        def lie(bits, product):
            for row, column in ((8, 1), (77, 50), (143, 99)):
                bits[row, column] ^= 1 << 21

        self.assertIn("all in bit 21, in rows 8 to 15 of tiles of 64", self.pattern_of(lie)["pattern"])

    def test_one_tile(self):
        def lie(bits, product):
            tile = bits[128:192, 64:128]
            tile ^= torch.randint(1, 1 << 30, tile.shape, dtype=torch.int32)

        self.assertIn("in bits 0 to 29, in the tile of rows 128 to 191 and columns 64 to 127",
                      self.pattern_of(lie)["pattern"])

    def test_one_bit_position(self):
        def lie(bits, product):
            bits |= 1 << 2

        self.assertIn("all in bit 2, in no pattern of rows and columns", self.pattern_of(lie)["pattern"])

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
            self.assertIn("the products are not those of hopper_bf16", report["cases"][0]["not_judged"])

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
                if tensor.dtype is torch.float32:
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

    def test_refusals(self):
        for options, text in ((["--size", "100x64x64"], "multiple of 16"),
                              (["--adder", "hoper"], "Pass one of hopper_bf16"),
                              (["--seconds", "nan"], "must lie from 0")):
            with self.assertRaisesRegex(cards.CardError, text):
                report_of(FakeCard(), *options)


class Command(unittest.TestCase):
    def test_no_gpu(self):
        if torch.cuda.is_available():
            self.skipTest("there is a GPU")
        error = io.StringIO()
        with contextlib.redirect_stderr(error):
            self.assertEqual(program.main(["sick"]), 3)
        self.assertIn("sees no CUDA GPU", error.getvalue())

    def test_no_pytorch(self):
        hidden = ("import sys; sys.modules.update(dict.fromkeys(('torch', 'h5py', 'numpy', 'xxhash')));"
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
