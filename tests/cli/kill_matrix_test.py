"""`isoloss lab mutants run`: what is measured, kept, and refused."""

import json

from program import ProgramTest, TINY, INVALID, PASS, PLAIN_POLICY, USAGE


class KillMatrix(ProgramTest):
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

    def measure(self, *options):
        return self.run_isoloss("mutants", "run", "short.toml", "--out", "matrix",
                                "--seeds", 1, "--mutants", "truncation", *PLAIN_POLICY,
                                *options)

    def test_catches_a_bug_and_lets_a_benign_run_pass(self):
        options = ("--ensemble", self.ensemble("mxfp8"), "--benign", 1, "--json")

        result = self.measure(*options)

        self.assertEqual(result.returncode, PASS, result.stderr)
        matrix = json.loads(result.stdout)
        self.assertEqual((matrix["score"]["count"], matrix["score"]["of"]), (1, 1))
        self.assertEqual((matrix["false_alarms"]["count"], matrix["false_alarms"]["of"]),
                         (0, 1))
        self.assertEqual([mutant["name"] for mutant in matrix["mutants"]], ["truncation"])
        self.assertEqual(matrix["mutants"][0]["cells"][0]["verdict"], "FAIL")
        folder = self.folder / "matrix"
        self.assertTrue((folder / "kill_matrix.svg").exists())
        # Finished cells are kept, and those of another plan refused.
        cell = folder / "cells" / "truncation-seed1.json"
        before = cell.stat().st_mtime_ns
        self.assertEqual(self.measure(*options).returncode, PASS)
        self.assertEqual(cell.stat().st_mtime_ns, before)
        self.assert_refused(self.measure(), "another plan", code=INVALID)

    def test_an_ensemble_of_another_arm_is_no_evidence(self):
        # Bit-equal unchanged runs do not need it, so that only runs with bugs
        # would find it wrong, and those would count as caught.
        result = self.run_isoloss("mutants", "run", "short.toml", "--out", "other",
                                  "--seeds", 1, "--mutants", "truncation", *PLAIN_POLICY,
                                  "--ensemble", self.ensemble("bf16"))

        self.assertEqual(result.returncode, INVALID, result.stderr)
        self.assertIn("recipe is 'bf16'", result.stderr)
        self.assertIn("isoloss lab ensemble build", result.stderr)
        self.assertFalse((self.folder / "other" / "kill_matrix.json").exists())

    def test_benign_runs_need_an_ensemble_and_are_not_negative(self):
        self.assert_refused(self.measure("--benign", 1), "--ensemble", code=INVALID)
        result = self.measure("--benign", "-3")
        self.assertEqual(result.returncode, USAGE)
        self.assertLess(len(result.stderr), 160)
