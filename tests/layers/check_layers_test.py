#!/usr/bin/env python3
"""check_layers.py accepts a clean tree and rejects each kind of violation."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

CHECKER = pathlib.Path(__file__).resolve().parents[2] / "tools" / "dev" / "check_layers.py"
LAYERS = "base :\nlow  :\nhigh : low\n"


class CheckLayers(unittest.TestCase):
    def check(self, layers=LAYERS, public=None, **files):
        """Of a tree with a header x.h in each module of `files`, and in each of `public`."""
        with tempfile.TemporaryDirectory() as root:
            lib = pathlib.Path(root) / "lib" / "isoloss"
            include = pathlib.Path(root) / "include" / "isoloss"
            for tree, headers in ((lib, files), (include, public or {})):
                for module, text in headers.items():
                    (tree / module).mkdir(parents=True)
                    (tree / module / "x.h").write_text(text)
            lib.mkdir(parents=True, exist_ok=True)
            (lib / "LAYERS").write_text(layers)
            done = subprocess.run([sys.executable, CHECKER, root], capture_output=True, text=True)
            return done.returncode, done.stdout

    def test_accepts_includes_of_modules_on_the_line(self):
        code, _ = self.check(base="", low='#include "isoloss/base/x.h"\n',
                             high='#include "isoloss/low/x.h"\n')
        self.assertEqual(code, 0)

    def test_rejects_an_upward_include_and_names_its_line(self):
        code, text = self.check(low='\n#include "isoloss/high/x.h"\n', high="")
        self.assertEqual(code, 1)
        self.assertIn("x.h:2: low includes isoloss/high/x.h", text)

    def test_rejects_a_line_that_names_a_later_module(self):
        code, text = self.check(layers="base :\nlow : high\nhigh :\n", low="")
        self.assertEqual(code, 1)
        self.assertIn("not on a line above", text)

    def test_rejects_a_module_without_a_line(self):
        code, text = self.check(stray="")
        self.assertEqual(code, 1)
        self.assertIn("module stray has no line", text)

    def test_rejects_a_public_header_that_includes_an_internal_one(self):
        low = '#include "isoloss/base/x.h"\n'
        self.assertEqual(self.check(public={"base": "", "low": low})[0], 0)

        code, text = self.check(base="", public={"low": low})

        self.assertEqual(code, 1)
        self.assertIn("x.h:1: a public header includes isoloss/base/x.h, an internal one", text)

    def test_rejects_an_upward_include_of_a_public_header(self):
        code, text = self.check(public={"low": '#include "isoloss/high/x.h"\n', "high": ""})
        self.assertEqual(code, 1)
        self.assertIn("x.h:1: low includes isoloss/high/x.h", text)

    def test_rejects_an_include_of_tests(self):
        code, _ = self.check(low='#include "tests/x.h"\n')
        self.assertEqual(code, 1)

    def test_rejects_an_empty_tree(self):
        code, _ = self.check()
        self.assertEqual(code, 1)


if __name__ == "__main__":
    unittest.main()
