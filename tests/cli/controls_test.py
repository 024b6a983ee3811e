"""Graded controls: parts of a bad recipe are trained, chosen and written into the experiment."""

import json
import tomllib
import unittest
import xml.etree.ElementTree

from program import FAIL, INCONCLUSIVE, PASS, ProgramTest, TINY, in_one_line

# Coarse enough that the harm of the whole control stands out after 20 steps.
CONTROL = TINY + '[arms.bad]\nrecipe = "mxfp4_floor"\n# Of the gate.\n[gate]\ncontrol = "bad"  # kept\n'


class Controls(ProgramTest):
    def grade(self, file, *options):
        return self.run_isoloss("study", "controls", file, *options)

    def test_parts_are_measured_chosen_written_and_judged(self):
        self.write("first.toml", CONTROL)
        first = self.grade("first.toml", "--out", "parts", "--json")
        self.assertIn(first.returncode, (PASS, INCONCLUSIVE), first.stderr)
        found = json.loads(first.stdout)
        self.assert_documented("controls.json", found)
        xml.etree.ElementTree.parse(self.folder / "parts" / "controls.svg")
        self.assertEqual(found["seeds"], [1001, 1002])
        fit = [part["fit_percent"] for part in found["parts"]]
        self.assertEqual(fit, sorted(fit))
        sites = [int(part["name"].removeprefix("sites-")) for part in found["parts"]]
        self.assertEqual(sites, sorted(set(sites)))
        # A margin of which the first part that harms does 0.5; the runs do not depend on it.
        mild = next(i for i, harm in enumerate(fit[:-1]) if harm > 0)
        margin = 2 * fit[mild]

        self.write("graded.toml", CONTROL + f"margin_percent = {margin}\n[arms.after]\nrecipe = \"bf16\"\n")
        result = self.grade("graded.toml", "--out", "parts", "--no-train", "--write")

        self.assertIn(result.returncode, (PASS, INCONCLUSIVE), result.stderr)
        shown = in_one_line(result.stdout)
        self.assertIn(f"bad_half: sites-{sites[mild]}, which harms by 0.5 margins.", shown)
        self.assertIn("No verdict rests on it", shown)
        text = (self.folder / "graded.toml").read_text()
        self.assertIn("# Of the gate.\n", text)
        self.assertIn("  # kept\n", text)
        written = tomllib.loads(text)
        self.assertEqual(written["arms"]["bad_half"], {"recipe": "mxfp4_floor",
                                                       "include": found["parts"][mild]["include"]})
        self.assertEqual(written["gate"]["control"][0], "bad_half")
        self.assertEqual(written["gate"]["control"][-1], "bad")
        self.assertEqual(list(written["arms"])[:4], ["bf16", "mxfp8", "bad", "after"])
        # The parts of an earlier call are no controls to be graded, and are replaced.
        again = self.grade("graded.toml", "--out", "parts", "--no-train", "--write")
        self.assertEqual(again.stdout, result.stdout)
        self.assertEqual((self.folder / "graded.toml").read_text(), text)

        verdict = self.run_isoloss("verify", "graded.toml", "--no-oracle", "--out", "verdict")
        self.assertIn(verdict.returncode, (PASS, FAIL, INCONCLUSIVE), verdict.stderr)
        logs = {path.name for path in (self.folder / "verdict").glob("bad_half-*.h5")}
        self.assertEqual(logs, {"bad_half-seed1.h5", "bad_half-seed2.h5"})

    def test_margins_that_no_part_is_near_are_named(self):
        for margin, words in ((90, ["all sites do by", "Name a worse recipe"]),
                              (1e-5, ["the mildest does by", "include = ["])):
            self.write("far.toml", CONTROL + f"margin_percent = {margin}\n")
            before = (self.folder / "far.toml").read_text()
            result = self.grade("far.toml", "--out", "far", "--write")

            self.assertEqual(result.returncode, INCONCLUSIVE, result.stderr)
            for word in words:
                self.assertIn(word, in_one_line(result.stdout))
            self.assertEqual((self.folder / "far.toml").read_text(), before)

    def test_what_cannot_be_graded_is_refused(self):
        self.assert_refused(self.grade("tiny.toml"), "gate.control names no arm")
        self.write("dotted.toml", 'gate.control = "bad"\n' + CONTROL.partition("# Of the gate")[0])
        self.assert_refused(self.grade("dotted.toml", "--write", "--set", "train.lr=0.1"), "--write", "leave out --set")
        self.assert_refused(self.grade("dotted.toml", "--no-train", "--out", "none"), "without --no-train")
        self.write("tokens.toml", "margin_tokens_percent = 5\n")
        self.assert_refused(self.grade("dotted.toml", "--set", "gate.policy=tokens.toml"), "margin_percent")
        self.assertIn(self.grade("dotted.toml", "--out", "dotted").returncode, (PASS, INCONCLUSIVE))
        self.write("dotted.toml", (self.folder / "dotted.toml").read_text() + "[arms.bad_half]\nrecipe = \"bf16\"\n")
        self.assert_refused(self.grade("dotted.toml", "--out", "dotted", "--no-train"), "arm bad_half is no control")


if __name__ == "__main__":
    unittest.main()
