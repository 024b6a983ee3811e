"""Sweeps of the learning rate: they find the best one, write it down, and verdicts rest on it."""

import json
import math
import re
import tomllib
import unittest
import xml.etree.ElementTree

from program import FAIL, INCONCLUSIVE, INVALID, PASS, ProgramTest, TINY, in_one_line


UNTUNED = re.sub(r"\[tuning\]\n(.+\n)*?(?=\[log\])", "", TINY)


class Rates(ProgramTest):
    def sweep(self, *options, file="tiny.toml"):
        return self.run_isoloss("study", "rates", file, *options)

    def check_of(self, folder, name):
        verdict = json.loads((self.folder / folder / "verdict.json").read_text())
        found = [check for check in verdict["checks"] if check["name"] == name]
        return found[0] if found else None

    def verdict_on(self, folder, *settings):
        """The check of the rate, where nothing else is asked of the oracle."""
        options = [option for setting in settings for option in ("--set", setting)]
        result = self.run_isoloss("verify", "swept.toml", "--no-oracle", "--out", folder, *options)
        self.assertIn(result.returncode, (PASS, FAIL, INCONCLUSIVE), result.stderr)
        return self.check_of(folder, "tuning")

    def test_a_sweep_is_found_written_and_judged_by(self):
        # A margin that no difference of two recipes exceeds, so that the rate alone is in doubt.
        text = UNTUNED.replace("warmup_steps = 4", "warmup_steps = 4  # kept\nlr = 0.02")
        text += "[gate]\nmargin_percent = 50\n"
        self.write("swept.toml", text + "[tuning]\nrates = [0.5]\nheld_out = [1]\nconfiguration = \"old\"\n")

        result = self.sweep("--write", "--out", "sweep", file="swept.toml")

        self.assertEqual(result.returncode, PASS, result.stderr)
        self.assertIn("The optimum lies near", in_one_line(result.stdout))
        xml.etree.ElementTree.parse(self.folder / "sweep" / "rates.svg")
        found = json.loads((self.folder / "sweep" / "rates.json").read_text())
        self.assert_documented("rates.json", found)
        self.assertTrue(found["bracketed"])
        self.assertEqual(found["seeds"], [1001, 1002])
        rates = [row["rate"] for row in found["rates"]]
        self.assertGreaterEqual(len(rates), 5)
        for lower, upper in zip(rates, rates[1:]):
            self.assertAlmostEqual(upper / lower, 2)
        best = min(found["rates"], key=lambda row: row["held_out_nats"] or 99)["rate"]
        self.assertEqual(found["best_rate"], best)

        written = (self.folder / "swept.toml").read_text()
        self.assertTrue(written.startswith(text.rstrip()), written)  # comments stay
        tuning = tomllib.loads(written)["tuning"]
        self.assertEqual(tuning["rates"], rates)
        self.assertEqual(tuning["seeds"], [1001, 1002])
        self.assertEqual(tuning["configuration"], found["configuration"])

        near = self.verdict_on("near", f"train.lr={best}")
        self.assertEqual(near["outcome"], "PASS", near)
        far = self.verdict_on("far", f"train.lr={best / 4}")
        self.assertEqual(far["outcome"], "INCONCLUSIVE")
        self.assertIn("rate x 4 is", far["quantity"])
        other = self.verdict_on("other", f"train.lr={best}", "train.steps=21")
        self.assertIn("was of another model, schedule", other["quantity"])

        # Runs that were trained before there was a sweep rest on the one of today.
        self.write("swept.toml", text)
        none = self.verdict_on("late", f"train.lr={best}")
        self.assertIn("no sweep of learning rates is known", none["quantity"])
        self.write("swept.toml", written)
        self.assertEqual(self.verdict_on("late", f"train.lr={best}")["outcome"], "PASS")

    def test_a_sweep_goes_on_beyond_an_edge_and_is_kept(self):
        result = self.sweep("--set", "train.lr=0.002", "--out", "edge", "--json")

        self.assertEqual(result.returncode, PASS, result.stderr)
        found = json.loads(result.stdout)
        self.assertGreater(len(found["rates"]), 5)
        again = self.sweep("--set", "train.lr=0.002", "--out", "edge", "--json", "--no-train")
        self.assertEqual(again.stdout, result.stdout)

    def test_two_sizes_give_the_power_of_the_ladders_rates(self):
        file = self.write("sizes.toml", TINY)
        ladder = ("study", "ladder", "sizes.toml", "--parameters", "0.008", "0.03", "--tokens-per-parameter", "0.2",
                  "--seeds", "2")
        dry = in_one_line(self.run_isoloss(*ladder, "--dry-run").stdout)
        self.assertIn("power -0.5 of the width, since the experiment has no [tuning.scaled]", dry)
        command = re.search(r"`isoloss (study rates sizes\.toml --parameters [\d.]+ --write)`", dry)[1]

        swept = self.run_isoloss(*command.split(), "--out", "scaled", "--json")

        self.assertEqual(swept.returncode, PASS, swept.stderr)
        found = json.loads(swept.stdout)
        self.assert_documented("rates.json", found)
        tuning = tomllib.loads(file.read_text())["tuning"]
        scaled = tuning.pop("scaled")
        self.assertEqual(tuning, tomllib.loads(TINY)["tuning"])
        self.assertEqual(scaled["configuration"], found["configuration"])
        self.assertEqual(scaled["rates"], [row["rate"] for row in found["rates"]])
        self.assertEqual(len(scaled["seed_optima"]), 2)
        self.assertAlmostEqual(scaled["parameters"] / found["parameters"], 1, delta=0.2)

        # Losses are made up, so that the power is known: 0.8 times the rate at 40/24 of the width.
        own = TINY.replace("seeds = [7, 8]", "seeds = [7, 8]\nseed_optima = [0.001, 0.001]")
        file.write_text(own + f"""[tuning.scaled]
parameters = {scaled["parameters"]}
rates = [0.0004, 0.0008, 0.0016]
held_out = [2, 1, 2]
seeds = [1001, 1002]
configuration = "{scaled["configuration"]}"
seed_optima = [0.0008, 0.0008]
""")
        power = math.log(0.8) / math.log(40 / 24)
        dry = self.run_isoloss(*ladder, "--dry-run").stdout
        self.assertNotIn("assumed", dry)
        self.assertIn(f"{0.001 * (32 / 24) ** power:.2g}", re.search(r"\n30K-0.2 .*", dry)[0])
        result = self.run_isoloss(*ladder, "--out", "ladder")
        self.assertIn("power -0.44 of the width (measured;", in_one_line(result.stdout))
        self.assertNotIn("assumed", result.stdout)
        found = json.loads((self.folder / "ladder" / "ladder.json").read_text())
        self.assertAlmostEqual(found["rate_exponent"]["estimate"], power)
        self.assertTrue(found["rate_exponent_measured"])

        other = self.run_isoloss(*ladder, "--out", "otherwise", "--set", "train.sequences_per_batch=4")
        self.assertEqual(other.returncode, INCONCLUSIVE, other.stderr)
        self.assertIn("Not safe: The sizes' learning rates are assumed to grow with the power -0.5 of the width, since "
                      "[tuning] is of another model", in_one_line(other.stdout))

    def test_a_limit_is_named(self):
        text = TINY.replace("warmup_steps = 4", "warmup_steps = 4\nlr = 1e-9")
        file = self.write("limit.toml", text)

        result = self.sweep("--write", "--out", "limit", file="limit.toml")

        self.assertEqual(result.returncode, INCONCLUSIVE, result.stderr)
        self.assertIn("is the outermost one of 11 that were tried", in_one_line(result.stdout))
        self.assertIn("The experiment file stays as it is.", result.stdout)
        self.assertEqual(file.read_text(), text)

    def test_what_cannot_be_swept_is_refused(self):
        self.assert_refused(self.sweep("--write", "--set", "train.lr=0.1"), "--write", "leave out --set")
        self.assert_refused(self.sweep("--no-train", "--out", "none"), "without --no-train")
        self.write("inline.toml", "tuning = { rates = [0.5], held_out = [1], configuration = \"old\" }\n" + UNTUNED)
        self.assert_refused(self.sweep("--write", "--out", "inline", file="inline.toml"), "inline.toml", "--write")
        self.assertFalse((self.folder / "inline").exists())
        self.assert_refused(self.sweep("--parameters", "0.016"), "width 24", "factor 1.4")
        self.assert_refused(self.sweep("--parameters", "1e-5"), "--parameters", "fifth")

    def test_a_policy_may_ask_for_no_tuning_and_the_verdict_says_so(self):
        self.write("any.toml", "require_tuning = false\nmargin_percent = 50\nprobe_cases = [\"plain\"]\n")

        result = self.run_isoloss("verify", "tiny.toml", "--policy", "any.toml", "--out", "any")

        self.assertEqual(result.returncode, PASS, result.stdout)
        self.assertIn("Its learning rate was not judged.", in_one_line(result.stdout))
        self.assertIsNone(self.check_of("any", "tuning"))


if __name__ == "__main__":
    unittest.main()
