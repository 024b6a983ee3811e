"""`isoloss_qualification`: what is listed, measured, kept, and refused."""

import json
import os
import subprocess

from program import ENVIRONMENT, ProgramTest, TINY, INVALID, PASS, PLAIN_POLICY, USAGE


class Qualification(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.write("short.toml", TINY.replace("steps = 20", "steps = 6"))

    def ensemble(self, arm):
        name = f"{arm}.h5"
        result = self.run_isoloss("ensemble", "build", "short.toml", "--arm", arm,
                                  "--runs", 40, "--steps", 6, "--out", name)
        self.assertEqual(result.returncode, PASS, result.stderr)
        return name

    def qualification(self, *arguments):
        return subprocess.run([os.environ["ISOLOSS_QUALIFICATION"], *map(str, arguments)], cwd=self.folder,
                              capture_output=True, text=True, env=ENVIRONMENT, check=False)

    def measure(self, *options, out="matrix"):
        return self.qualification("run", "short.toml", "--out", out, "--seeds", 1,
                                  "--mutants", "truncation", *PLAIN_POLICY, *options)

    def test_list_names_what_each_models(self):
        result = self.qualification("list")

        self.assertEqual(result.returncode, PASS, result.stderr)
        self.assertRegex(result.stdout, r"(?m)^scale\n  scale_floor +bug +\w")

    def test_catches_a_bug_and_lets_a_benign_run_pass(self):
        options = ("--ensemble", self.ensemble("mxfp8"), "--benign", 1)

        result = self.measure(*options)

        self.assertEqual(result.returncode, PASS, result.stderr)
        self.assertIn("bugs caught: 1 of 1", result.stdout)
        self.assertIn("false alarms: 0 in 1 benign runs", result.stdout)
        folder = self.folder / "matrix"
        matrix = json.loads((folder / "kill_matrix.json").read_text())
        self.assertEqual([mutant["name"] for mutant in matrix["mutants"]], ["truncation"])
        self.assertEqual(matrix["mutants"][0]["cells"][0]["verdict"], "FAIL")
        # Finished cells are kept, and those of another plan refused.
        cell = folder / "cells" / "truncation-seed1.json"
        before = cell.stat().st_mtime_ns
        self.assertEqual(self.measure(*options).returncode, PASS)
        self.assertEqual(cell.stat().st_mtime_ns, before)
        result = self.measure()
        self.assertEqual(result.returncode, INVALID)
        self.assertIn("another plan", result.stderr)

    def test_an_ensemble_of_another_arm_is_no_evidence(self):
        # Bit-equal unchanged runs do not need it, so that only runs with bugs
        # would find it wrong, and those would count as caught.
        result = self.measure("--ensemble", self.ensemble("bf16"), out="other")

        self.assertEqual(result.returncode, INVALID, result.stderr)
        self.assertIn("recipe is 'bf16'", result.stderr)
        self.assertFalse((self.folder / "other" / "kill_matrix.json").exists())

    def test_benign_runs_need_an_ensemble_and_are_not_negative(self):
        result = self.measure("--benign", 1)
        self.assertEqual(result.returncode, INVALID)
        self.assertIn("--ensemble", result.stderr)
        self.assertEqual(self.measure("--benign", "-3").returncode, USAGE)
