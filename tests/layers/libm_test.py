#!/usr/bin/env python3
"""What reaches a log is computed without libm, whose last bits depend on the
processor and on its version (base/portable_math.h): libraries that a run is
made with link no function of it but those that have one right result."""

import os
import pathlib
import subprocess
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIBRARIES = pathlib.Path(os.environ["LIBRARIES"])

# Judges of logs, which write verdicts and reports.
JUDGES = {"document", "stats", "estimators", "foreign", "compare", "gate",
          "report"}

# IEEE 754 defines their results to the last bit.
EXACT = {name + suffix for suffix in ("", "f") for name in (
    "ceil", "copysign", "fabs", "floor", "fma", "fmax", "fmin", "fmod", "frexp",
    "ilogb", "ldexp", "llrint", "llround", "logb", "lrint", "lround", "modf",
    "nearbyint", "nextafter", "remainder", "rint", "round", "scalbn", "sqrt",
    "trunc")} | {"fegetround"}


def symbols(*arguments):
    """Names that nm prints, without versions."""
    listing = subprocess.run(["nm", *arguments], capture_output=True,
                             encoding="utf-8", check=True).stdout
    return {words[-1].split("@")[0] for words in map(str.split, listing.splitlines())
            if len(words) > 1 and not words[-1].endswith(":")}


def of_libm():
    found = subprocess.run(
        [os.environ["COMPILER"], "-print-file-name=libm.so.6"],
        capture_output=True, encoding="utf-8", check=True).stdout.strip()
    names = symbols("-D", "--defined-only", found)
    assert {"log2", "exp", "fma", "sincosf"} <= names, found
    return names


class Libm(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.libm = of_libm()

    def inexact(self, module):
        library = LIBRARIES / module / f"libisoloss_{module}.a"
        return (symbols("--undefined-only", library) & self.libm) - EXACT

    def test_no_library_that_a_run_is_made_with_calls_it(self):
        layers = (ROOT / "lib" / "isoloss" / "LAYERS").read_text()
        modules = {line.split(":")[0].strip() for line in layers.splitlines()
                   if ":" in line}
        self.assertTrue(JUDGES < modules, modules)
        for module in sorted(modules - JUDGES):
            with self.subTest(module=module):
                self.assertEqual(
                    self.inexact(module), set(),
                    "use base/portable_math.h or kernels/elementary.h")

    def test_a_call_would_be_found(self):
        self.assertLess({"exp", "log"}, self.inexact("stats"))


if __name__ == "__main__":
    unittest.main()
