"""isoloss claim: one command from a claim to its verdict."""

import json
import unittest

from program import ProgramTest, TINY, FAIL, INCONCLUSIVE, INVALID, PASS, USAGE

CLAIM = """\
title = "A claim"
statement = "Four bits are worse."
[source]
paper = "A paper"
section = "1"
published = "large models"
here = "a tiny one"
[[contrasts]]
name = "worse"
says = "With four bits the loss is higher."
measure = "gap"
relation = "above"
bound = 0
arm = "mxfp4"
reference = "bf16"
"""

EXPERIMENT = TINY.replace("seeds = [1, 2]", "seeds = [1, 2, 3, 4]").replace(
    "eval_every = 7", "eval_every = 10") + """
[arms.mxfp4]
recipe = "mxfp4_floor"
"""


class Claim(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.write("worse/experiment.toml", EXPERIMENT)
        cls.write("worse/claim.toml", CLAIM)

    def claim(self, folder, *arguments):
        return self.run_isoloss("claim", folder, *arguments)

    def with_claim(self, name, *replacements):
        self.write(f"{name}/experiment.toml", EXPERIMENT)
        text = CLAIM
        for old, new in replacements:
            self.assertIn(old, text)
            text = text.replace(old, new)
        self.write(f"{name}/claim.toml", text)
        return name

    def test_trains_judges_and_writes(self):
        result = self.claim("worse")

        self.assertEqual(result.returncode, PASS, result.stderr)
        self.assertIn("4 seeds of bf16, mxfp4", result.stderr)
        self.assertIn("Verdict: reproduced", result.stdout)
        written = json.loads((self.folder / "runs/claim-worse/claim.json").read_text())
        self.assert_documented("claim.json", written)
        self.assertEqual(written["verdict"], "reproduced")
        contrast = written["contrasts"][0]
        self.assertLess(0, contrast["lower"])
        self.assertLess(contrast["lower"], contrast["estimate"])
        self.assertEqual(contrast["seeds"], 4)
        picture = (self.folder / "runs/claim-worse/claim.svg").read_text()
        self.assertIn("A claim: reproduced", picture)

        # Of fewer seeds than are there.
        fewer = self.claim("worse", "--no-train", "--json", "--seeds", "3")
        self.assertEqual(json.loads(fewer.stdout)["contrasts"][0]["seeds"], 3)

        # The runs are kept, and judged again to the same.
        again = self.claim("worse", "--no-train", "--json")
        self.assertEqual(json.loads(again.stdout), written)

    def test_the_exit_code_says_the_verdict(self):
        self.claim("worse", "--out", "shared")
        # The same runs, judged by other rules.
        for relation, verdict, code in (("below", "contradicted", FAIL),
                                        ("above", "not at this size", INCONCLUSIVE)):
            with self.subTest(relation=relation):
                contrast = json.loads((self.folder / "shared/claim.json").read_text())["contrasts"][0]
                bound = 0 if relation == "below" else contrast["estimate"]
                name = self.with_claim("worse", ('"above"', f'"{relation}"'),
                                       ("bound = 0", f"bound = {bound}"))
                result = self.claim(name, "--no-train", "--out", "shared")
                self.assertEqual(result.returncode, code, result.stderr)
                self.assertIn("Verdict: " + verdict, result.stdout)
        self.with_claim("worse")

    def test_a_dry_run_writes_nothing(self):
        result = self.claim("worse", "--dry-run", "--out", "dry")

        self.assertEqual(result.returncode, PASS, result.stderr)
        self.assertIn("minutes in all", result.stdout)
        self.assertFalse((self.folder / "dry").exists())

    def test_fewer_seeds_are_said_to_show_less(self):
        result = self.claim("worse", "--dry-run", "--seeds", "2")

        self.assertRegex(result.stdout, r"2 seeds instead of 4: intervals of gaps are about \d+\.\d times as wide")
        self.assertEqual(self.claim("worse", "--seeds", "1").returncode, USAGE)

    def test_wrong_files_are_refused(self):
        self.assert_refused(self.claim("nowhere"), "claim.toml", "Give a folder that holds a claim.toml")
        for old, new, words in (
                ("bound = 0", "bounds = 0", ("bound", "is missing")),
                ("bound = 0", "bound = 0\nat = 0.7", ("step 14 of 20", "every 10 steps")),
                ('"mxfp4"', '"mxfp5"', ("names arm mxfp5", "bf16, mxfp8, mxfp4")),
                ('"mxfp4"', '"mxfp4"\ncell = "none"', ("cell", "experiment"))):
            with self.subTest(new=new):
                self.assert_refused(self.claim(self.with_claim("wrong", (old, new))), *words)
        nothing = self.claim("worse", "--no-train", "--out", "empty")
        self.assertEqual(nothing.returncode, INVALID)
        self.assertIn("too few finished runs", nothing.stderr)

    def test_another_plan_is_refused(self):
        self.claim("worse", "--out", "plan")
        name = self.with_claim("changed")
        self.write("changed/experiment.toml", EXPERIMENT.replace("steps = 20", "steps = 30"))

        result = self.claim(name, "--out", "plan")

        self.assertEqual(result.returncode, INVALID)
        self.assertIn("another plan", result.stderr)


if __name__ == "__main__":
    unittest.main()
