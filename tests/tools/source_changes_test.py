"""The patches of tests/source_changes, and the parts of tools/dev/source_changes that build nothing."""

import contextlib
import importlib.machinery
import importlib.util
import io
import pathlib
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools/dev"))

import source_change_tables as tables  # noqa: E402  where the line above looks


def script():
    path = str(ROOT / "tools/dev/source_changes")
    loader = importlib.machinery.SourceFileLoader("source_changes", path)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    sys.modules[loader.name] = module  # dataclasses look it up
    loader.exec_module(module)
    return module


DIFF = """diff --git a/lib/isoloss/LAYERS b/lib/isoloss/LAYERS
--- a/lib/isoloss/LAYERS
+++ b/lib/isoloss/LAYERS
@@ -1,3 +1,3 @@
{}
"""


class Patches(unittest.TestCase):
    def test_of_this_tree_have_headers_and_apply(self):
        done = subprocess.run([ROOT / "tools/dev/source_changes", "--check"], text=True,
                              capture_output=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)

    def refused(self, text, name="one.patch"):
        """What --check says of the only patch, a bug."""
        module = script()
        with tempfile.TemporaryDirectory(dir=ROOT / "build", prefix="patches-") as folder, \
                mock.patch.object(module, "PATCHES", pathlib.Path(folder)), \
                mock.patch.object(sys, "argv", ["source_changes", "--check"]), \
                contextlib.redirect_stderr(io.StringIO()) as errors:
            path = pathlib.Path(folder) / "bugs" / name
            path.parent.mkdir()
            path.write_text(text, encoding="utf-8")
            self.assertEqual(module.main(), 1)
        return errors.getvalue()

    def patch_of_layers(self, header="What: a.\nEffect: b.\n", change="+new"):
        lines = (ROOT / "lib/isoloss/LAYERS").read_text(encoding="utf-8").splitlines()[:3]
        return header + DIFF.format("\n".join([f" {lines[0]}", f"-{lines[1]}", change,
                                               f" {lines[2]}"]))

    def test_without_a_header_are_refused(self):
        self.assertIn("has no line `Effect: ...`", self.refused(self.patch_of_layers("What: a.\n")))
        self.assertIn("has no line `What: ...`", self.refused(self.patch_of_layers("Effect: b.\n")))

    def test_that_do_not_apply_are_refused(self):
        text = self.patch_of_layers().replace("\n-", "\n-another ")
        self.assertIn("does not apply", self.refused(text))

    def test_of_other_files_are_refused(self):
        text = self.patch_of_layers().replace("lib/isoloss/LAYERS", "golden/power.json")
        self.assertIn("changes golden/power.json", self.refused(text))

    def test_headers_go_on_over_lines(self):
        text = "What: a\n  b.\nDrawn: 3\nWhy: c\nd.\n\ndiff --git a/x b/x\nWhy: e\n"
        self.assertEqual(script().header_of(text, "rewrites"), ["a b.", "c d."])


class Limits(unittest.TestCase):
    def test_of_shares_solve_their_equations(self):
        # Without a success the upper limit solves (1 - p)^n = alpha / 2, with successes only the
        # lower one p^n = alpha / 2.
        for of in (1, 22, 62):
            lower, upper = tables.share_limits(0, of)
            self.assertEqual(lower, 0)
            self.assertAlmostEqual((1 - upper) ** of, 0.025, places=12)
            lower, upper = tables.share_limits(of, of)
            self.assertEqual(upper, 1)
            self.assertAlmostEqual(lower ** of, 0.025, places=12)
        # Successes and failures change places where half succeed.
        lower, upper = tables.share_limits(5, 10)
        self.assertAlmostEqual(lower + upper, 1, places=12)
        # In between each limit leaves alpha / 2 in its tail: 10 or more, 10 or fewer.
        lower, upper = tables.share_limits(10, 62)
        self.assertAlmostEqual(tables.binomial_tail(10, 62, lower), 0.025, places=12)
        self.assertAlmostEqual(1 - tables.binomial_tail(11, 62, upper), 0.025, places=12)


class Tables(unittest.TestCase):
    def test_count_a_rewrite_once_and_name_what_passed(self):
        bad = {"where": "golden/curves/a", "outcome": "fail", "found": ["x"], "drift": True}
        good = {"where": "golden/curves/b", "outcome": "pass", "found": [], "drift": True}
        rewrites = "\n".join(tables.rewrite_lines([
            {"kind": "rewrites", "name": "r", "outcome": "alarm", "looks": [bad, bad]}]))
        bugs = "\n".join(tables.bug_lines([
            {"kind": "bugs", "name": "caught", "outcome": "caught", "looks": [good, bad]},
            {"kind": "bugs", "name": "missed", "outcome": "drift", "looks": [good]}],
            {"missed": "what it is"}))
        self.assertIn("rewrites with an alarm | 1 of 1", rewrites)
        self.assertIn("caught by the tolerance gate | 1 of 2", bugs)
        self.assertIn("`caught` | caught | a: fail; x", bugs)
        self.assertIn("`missed` | drift | what it is", bugs)


if __name__ == "__main__":
    unittest.main()
