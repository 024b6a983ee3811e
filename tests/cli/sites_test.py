"""isoloss study sites: a planted sensitive site, and what the command leaves."""

import json
import pathlib
import signal
import subprocess
import time

from program import BINARY, ProgramTest, FAIL, INTERRUPTED, INVALID, PASS, TINY, in_one_line

# Products of weight gradients alone, so that a design has 15 of them. The head's gets dy in FP4 without
# a scale: all of it becomes 0, and the head learns nothing.
PLANTED = TINY.replace('recipe = "mxfp8_rceil"', 'recipe = "planted"').replace(
    "steps = 20", "steps = 60").replace("eval_sequences = 4", "eval_sequences = 20").replace(
        "tokens = 4000", "tokens = 20000") + """\
[recipes.planted]
sites = "torchtitan_mxfp8"
[recipes.planted.operands.good]
element = "e4m3"
[recipes.planted.operands.bad]
element = "e2m1"
scale_format = "none"
[recipes.planted.wgrad]
dy = "good"
x = "good"
[[recipes.planted.overrides]]
sites = ["lm_head?"]
[recipes.planted.overrides.wgrad]
dy = "bad"
x = "good"
"""


class Sites(ProgramTest):
    def test_a_planted_site_is_first_and_the_recipe_does_without_it(self):
        self.write("planted.toml", PLANTED)
        command = ("sites", "planted.toml", "--seeds", 3, "--margin", 1, "--out", "planted")

        result = self.run_isoloss(*command)

        self.assertIn(result.returncode, (PASS, FAIL), result.stderr)
        self.assertIn("arms (the baseline, all products, each alone, all but each, 4 sets)",
                      in_one_line(result.stderr))
        found = json.loads((self.folder / "planted/sites.json").read_text())
        self.assert_documented("sites.json", found)
        self.assert_documented("gradient_errors.json", json.loads(
            (self.folder / "planted/gradient_errors.json").read_text()))
        first = found["products"][0]
        self.assertEqual((first["site"], first["role"]), ("lm_head", "wgrad"))
        self.assertLess(first["p_adjusted"], 0.05)
        self.assertGreater(first["harm_nats"]["lower"], 0)
        recipe = found["recipe"]
        self.assertNotIn("lm_head wgrad", recipe["products"])
        # Of 20 such studies one is outside by chance; these bits are the same everywhere.
        self.assertTrue(recipe["inside"], recipe)
        self.assertEqual(result.returncode, PASS)
        self.assertIn("0 is inside the interval", in_one_line(result.stdout))

        # The recipe's file is one that an experiment can name.
        named = PLANTED.replace('recipe = "planted"', 'recipe = "chosen_sites"')
        self.write("chosen.toml", named + '[recipes.chosen_sites]\nfile = "planted/recipe.toml"\n')
        result = self.run_isoloss("run", "chosen.toml", "--dry-run")
        self.assertEqual(result.returncode, PASS, result.stderr)

        # A second call trains nothing, and says the same.
        before = {path: path.stat().st_mtime_ns
                  for path in (self.folder / "planted/cells").rglob("*.h5")}
        again = self.run_isoloss(*command, "--json")
        self.assertEqual(again.returncode, PASS, again.stderr)
        self.assertEqual(json.loads(again.stdout), found)
        self.assertEqual(before, {path: path.stat().st_mtime_ns for path in
                                  (self.folder / "planted/cells").rglob("*.h5")})

    def test_an_interrupted_study_goes_on_to_the_same(self):
        self.write("planted.toml", PLANTED)
        command = ("sites", "planted.toml", "--seeds", "2", "--margin", "1", "--out")
        logs = lambda: list((self.folder / "cut/cells/design").glob("*seed*.h5"))
        with subprocess.Popen([BINARY, *command, "cut"], cwd=self.folder, stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE) as process:
            while process.poll() is None and len(logs()) < 20:
                time.sleep(0.001)
            process.send_signal(signal.SIGINT)
            _, message = process.communicate(timeout=60)
        self.assertEqual(process.returncode, INTERRUPTED, message)
        self.assertIn(b"the same command goes on", message)
        self.assertFalse((self.folder / "cut/sites.json").exists())
        trained = {log: log.stat().st_mtime_ns for log in logs() if ".partial" not in log.name}

        self.assertIn(" left of ", self.run_isoloss(*command, "cut", "--dry-run").stdout)
        cut = self.run_isoloss(*command, "cut", "--json")
        whole = self.run_isoloss(*command, "whole", "--json")

        self.assertEqual(cut.returncode, whole.returncode, cut.stderr)
        self.assertEqual(cut.stdout, whole.stdout)
        for file in ("sites.json", "sites.svg", "gradient_errors.json"):
            self.assertEqual((self.folder / "cut" / file).read_text(), (self.folder / "whole" / file).read_text())
        self.assertEqual({log: log.stat().st_mtime_ns for log in trained}, trained)

    def test_a_dry_run_says_the_cost_and_leaves_nothing(self):
        result = self.run_isoloss("sites", self.tiny, "--quick", "--dry-run", "--out", "dry")

        self.assertEqual(result.returncode, PASS, result.stderr)
        self.assertIn("x 3 seeds of 20 steps", in_one_line(result.stdout))
        self.assertRegex(in_one_line(result.stdout), r"runs: [\d.]+ (s|min)\. Gradients: [\d.]+ (s|min)\.")
        self.assert_no_files("dry")

    def test_without_runs_nothing_is_said(self):
        result = self.run_isoloss("sites", self.tiny, "--no-train", "--out", "none")

        self.assertEqual(result.returncode, INVALID, result.stderr)
        self.assertIn("too few finished runs", result.stderr)

    def test_a_baseline_that_quantises_is_refused(self):
        text = pathlib.Path(self.tiny).read_text().replace('recipe = "bf16"', 'recipe = "mxfp4_floor"')
        self.write("low.toml", text)

        self.assert_refused(self.run_isoloss("sites", "low.toml"), "the baseline bf16 has the recipe mxfp4_floor")

    def test_another_plan_in_the_folder_is_refused(self):
        self.write("other/plan.toml", 'study = "sites"\n')

        result = self.run_isoloss("sites", self.tiny, "--seeds", 2, "--out", "other")

        self.assertEqual(result.returncode, INVALID)
        self.assertIn("it holds a study of another plan", result.stderr)
