"""An arm that changes its recipe in mid-run, from the file to the verdict."""

import json
import pathlib
import shutil

import h5py

from program import FAIL, INCONCLUSIVE, PASS, PLAIN_POLICY, TINY, ProgramTest
from sealed_log import edited_log

# round(0.7 * 20) = 14: the second recipe holds from step 15 on.
CHANGING = TINY.replace("[log]", """\
[[arms.mxfp8.then]]
from = 0.7
recipe = "bf16"
[log]""")


class Phases(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.write("changing.toml", CHANGING)
        cls.write("two_cases.toml",
                  'margin_percent = 0.25\nrequire_tuning = false\nprobe_cases = ["plain", "zero_block"]\n')
        cls.passed = cls.run_isoloss("verify", "changing.toml", "--out", "passed", "--policy", "two_cases.toml")
        cls.log = cls.folder / "passed" / "mxfp8-seed1.h5"

    def test_the_oracle_looks_at_both_recipes(self):
        self.assertEqual(self.passed.returncode, PASS, self.passed.stdout + self.passed.stderr)
        verdict = json.loads((self.folder / "passed/verdict.json").read_text())
        self.assertEqual(verdict["candidate"]["recipe"], "mxfp8_rceil then bf16")

    def test_a_recipe_that_no_case_looked_at_is_named(self):
        judged = self.run_isoloss("verify", "changing.toml", "--out", "plain", *PLAIN_POLICY)

        self.assertEqual(judged.returncode, INCONCLUSIVE, judged.stdout + judged.stderr)
        self.assertIn("recipe bf16, which holds from step 15 on, was not probed", " ".join(judged.stdout.split()))

    def test_the_log_has_both_recipes(self):
        with h5py.File(self.log) as file:
            counted = file["steps/quantized_gemms"][()].tolist()
            self.assertEqual(set(file["recipe_phases/first_step"][()]), {15})
            self.assertEqual(len(file["recipe_phases/site"]), len(file["recipe/site"]))
        self.assertEqual(counted, [counted[0]] * 14 + [0] * 6)
        self.assertGreater(counted[0], 0)

    def test_a_switch_that_came_a_step_late_fails(self):
        logs = []
        for log in sorted((self.folder / "passed").glob("*-seed*.h5")):
            logs.append(pathlib.Path(shutil.copy(log, self.folder)))
            if "mxfp8" not in log.name:
                continue
            with edited_log(logs[-1]) as file:
                file["steps/quantized_gemms"][14] = file["steps/quantized_gemms"][0]

        judged = self.run_isoloss("gate", *logs)

        self.assertEqual(judged.returncode, FAIL, judged.stdout + judged.stderr)
        self.assertIn("quantised GEMMs ran in step 15, but recipe mxfp8_rceil then bf16 asks for 0 from step 15 on",
                      " ".join(judged.stdout.split()))

    def test_both_recipes_are_shown(self):
        for arguments in (("verify", "changing.toml", "--dry-run"), ("show", self.log, "--recipe")):
            shown = self.run_isoloss(*arguments)

            self.assertEqual(shown.returncode, PASS, shown.stderr)
            self.assertIn("mxfp8_rceil then bf16", shown.stdout)
            self.assertIn("from step 15: bf16", shown.stdout)

    def test_a_study_of_sites_and_an_ensemble_need_one_recipe(self):
        for arguments in (("study", "sites", "changing.toml", "--arm", "mxfp8"),
                          ("lab", "ensemble", "build", "changing.toml", "--out", "e.h5", "--runs", "2")):
            refused = self.run_isoloss(*arguments)

            self.assertNotEqual(refused.returncode, PASS, arguments)
            self.assertIn("one recipe", refused.stderr)

