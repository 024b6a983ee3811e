"""Leading indicators of a stress study: recorded, and judged in hindsight."""

import json
import unittest
import xml.etree.ElementTree

from program import INCONCLUSIVE, INVALID, PASS, TINY, ProgramTest, in_one_line

SMALL = TINY.replace("[train]\n", "[train]\nlr = 3e-3\n")
# 30 times this rate, which rises until the last step, makes the tiny model diverge half-way.
FAST = TINY.replace("[train]\n", "[train]\nlr = 3e-2\nclip_norm = 1e9\nbeta2 = 0.5\n").replace(
    "steps = 20", "steps = 60").replace("warmup_steps = 4", "warmup_steps = 60")


def stress(name, *modes):
    """Arguments of a study that records every second step."""
    return ("stress", name, *(word for mode in modes for word in ("--mode", mode)),
            "--seeds", "2", "--indicators", "2")


class Indicators(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.write("small.toml", SMALL)
        cls.write("fast.toml", FAST)

    def judged(self, folder):
        result = self.run_isoloss("indicators", folder, "--json")
        self.assertIn(result.returncode, (PASS, INCONCLUSIVE), result.stderr)
        written = (self.folder / folder / "indicators.json").read_text()
        self.assertEqual(json.loads(result.stdout), json.loads(written))
        self.assert_documented("indicators.json", json.loads(written))
        return result.returncode, json.loads(written)

    def test_what_a_study_recorded_is_judged(self):
        self.run_isoloss(*stress("fast.toml", "plain", "lr_30"), "--out", "fast")

        code, found = self.judged("fast")

        # 6 arms, 2 seeds, 2 modes.
        self.assertEqual(len(found["runs"]), 24)
        by_rule = {rule["rule"]: rule for rule in found["rules"]}
        self.assertEqual(len(by_rule), 11)
        diverged = [run for run in found["runs"] if run["diverged_at_step"]]
        self.assertTrue(diverged, "the rate is too low for this test")
        judged = [run for run in diverged if run["judged"]]
        self.assertEqual(code, PASS if judged else INCONCLUSIVE)
        for rule in found["rules"]:
            shown = rule["announced"]["of"] + rule["false_alarms"]["of"] + rule["not_judged"]
            self.assertEqual(shown, 12, rule["rule"])
            for run in rule["runs"]:
                if run["level_doublings"] is None:
                    self.assertIsNone(run["first_alarm_step"])
        picture = xml.etree.ElementTree.parse(self.folder / "fast" / "indicators.svg")
        self.assertTrue(picture.getroot().tag.endswith("svg"))
        text = self.run_isoloss("indicators", "fast").stdout
        for rule in by_rule:
            self.assertIn(f"\n{rule} ", text)

    def test_a_study_without_divergence_announces_nothing(self):
        self.run_isoloss(*stress("small.toml", "plain"), "--out", "small")

        result = self.run_isoloss("indicators", "small")

        self.assertEqual(result.returncode, INCONCLUSIVE, result.stderr)
        self.assertIn("nothing can be said of announcements", in_one_line(result.stdout))
        runs = sorted(path.name for path in (self.folder / "small" / "indicators" / "plain").iterdir())
        self.assertEqual(len(runs), 12)
        self.assertIn("bf16-seed1.csv", runs)

    def test_damage_and_absence_are_told(self):
        self.write("empty/plan.toml", "")
        self.assert_refused(self.run_isoloss("indicators", "empty"), "empty",
                            "isoloss study stress EXPERIMENT --indicators 5")
        self.run_isoloss(*stress("small.toml", "plain"), "--out", "damaged")
        file = self.folder / "damaged" / "indicators" / "plain" / "bf16-seed1.csv"
        lines = file.read_text().splitlines()
        file.write_text("\n".join([*lines[:2], "x", ""]))
        self.assert_refused(self.run_isoloss("indicators", "damaged"), "bf16-seed1.csv", "line 3")
        # A step that the run does not have.
        file.write_text("\n".join([lines[0], "99" + lines[1][1:], ""]))
        self.assert_refused(self.run_isoloss("indicators", "damaged"), "bf16-seed1.csv", "step 99")

        file.unlink()
        self.assertIn("bf16-seed1 of plain has recorded nothing",
                      in_one_line(self.run_isoloss("indicators", "damaged").stdout))

    def test_a_study_goes_on_with_the_same_records_only(self):
        self.run_isoloss("stress", "small.toml", "--mode", "plain", "--seeds", "2", "--out", "plain")

        self.assert_refused(self.run_isoloss("indicators", "plain"), "plain")
        result = self.run_isoloss(*stress("small.toml", "plain"), "--out", "plain")
        self.assertEqual(result.returncode, INVALID)
        self.assertIn("indicators_every", result.stderr)


if __name__ == "__main__":
    unittest.main()
