"""isoloss study claim: one command from a claim to its verdict."""

import json
import signal
import subprocess
import time
import unittest

from program import BINARY, ProgramTest, TINY, FAIL, INCONCLUSIVE, INTERRUPTED, INVALID, PASS, USAGE

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
published_size = 0.001
size_source = "ours"
arm = "mxfp4"
reference = "bf16"
"""

EXPERIMENT = TINY.replace("seeds = [1, 2]", "seeds = [1, 2, 3, 4]").replace(
    "eval_every = 7", "eval_every = 10") + """
[arms.mxfp4]
recipe = "mxfp4_floor"
"""


# A cell of an experiment, and one of students.
BOTH = CLAIM.replace("[[contrasts]]", """\
[[cells]]
name = "model"
[[cells]]
name = "student"
[cells.student]
width = 32
hidden = 128
depth = 2
batch = 64
steps = 200
seeds = 4
[[contrasts]]""") + """\
[[contrasts]]
name = "student"
says = "With four bits the student's loss is higher."
measure = "gap"
relation = "above"
bound = 0
published_size = 0.001
size_source = "ours"
arm = "exempt"
reference = "fp32"
cell = "student"
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
        self.assertIn("published: 0.001 % (ours); 4 seeds see it with chance", result.stdout)
        written = json.loads((self.folder / "runs/claim-worse/claim.json").read_text())
        self.assert_documented("claim.json", written)
        self.assertEqual(written["verdict"], "reproduced")
        contrast = written["contrasts"][0]
        self.assertLess(0, contrast["lower"])
        self.assertLess(contrast["lower"], contrast["estimate"])
        self.assertEqual(contrast["seeds"], 4)
        self.assertEqual(contrast["published_size"], 0.001)
        self.assertGreater(contrast["spread"], 0)
        self.assertLess(0, contrast["power"])
        picture = (self.folder / "runs/claim-worse/claim.svg").read_text()
        self.assertIn("A claim: reproduced", picture)

        # Of fewer seeds than are there.
        fewer = self.claim("worse", "--no-train", "--json", "--seeds", "3")
        pilot = json.loads(fewer.stdout)
        self.assertEqual(pilot["contrasts"][0]["seeds"], 3)
        self.assertEqual((pilot["verdict"], fewer.returncode), ("undecided", INCONCLUSIVE))
        self.assertEqual(pilot["contrasts"][0]["verdict"], "undecided")
        self.assertIn("2 of its runs are missing", pilot["contrasts"][0]["note"])
        self.assertGreater(pilot["contrasts"][0]["spread"], 0)

        # The runs are kept, and judged again to the same.
        again = self.claim("worse", "--no-train", "--json")
        self.assertEqual(json.loads(again.stdout), written)

    def test_the_exit_code_says_the_verdict(self):
        self.claim("worse", "--out", "shared")
        contrast = json.loads((self.folder / "shared/claim.json").read_text())["contrasts"][0]
        middle, upper = contrast["estimate"], contrast["upper"]
        # The same runs, judged by other rules.
        for relation, bound, size, verdict, code in (
                ("below", 0, -1, "contradicted", FAIL),
                ("above", middle, upper + 1, "absent here", INCONCLUSIVE),
                ("above", middle, (middle + upper) / 2, "undecided (", INCONCLUSIVE),
                ("above", 0, upper + 1, "too small here", INCONCLUSIVE)):
            with self.subTest(verdict=verdict):
                name = self.with_claim("worse", ('"above"', f'"{relation}"'), ("bound = 0", f"bound = {bound}"),
                                       ("size = 0.001", f"size = {size}"))
                result = self.claim(name, "--no-train", "--out", "shared")
                self.assertEqual(result.returncode, code, result.stderr)
                self.assertIn("Verdict: " + verdict, result.stdout)
        self.with_claim("worse")

    def test_a_bound_takes_a_control(self):
        within = (('"above"', '"within"'), ("bound = 0", "bound = 1000"))
        blind = self.claim(self.with_claim("blind", *within), "--out", "blind_runs")

        self.assertEqual(blind.returncode, INCONCLUSIVE, blind.stderr)
        self.assertIn("Not reproduced: no control shows that these runs would have seen a bad recipe.",
                      blind.stdout)
        written = json.loads((self.folder / "blind_runs/claim.json").read_text())
        self.assertIn("no control", written["note"])
        self.assertIn("no control", (self.folder / "blind_runs/claim.svg").read_text())
        # Runs that see no such thing.
        control = CLAIM[CLAIM.index("[[contrasts]]"):].replace('"worse"', '"bad"').replace(
            "bound = 0", 'bound = 1000\nrole = "control"').replace('published_size = 0.001\nsize_source = "ours"\n', "")
        unseen = self.claim(self.with_claim("blind", *within, ("[[contrasts]]", control + "[[contrasts]]")),
                            "--out", "blind_runs", "--no-train")
        self.assertEqual(unseen.returncode, INCONCLUSIVE, unseen.stderr)
        self.assertIn("(control bad does not lie above 1000 %)", unseen.stdout)
        self.assertIn("expected above 1000 %", unseen.stdout)

    def test_looks_share_the_error(self):
        self.claim("worse", "--out", "looks")
        once = json.loads((self.folder / "looks/claim.json").read_text())
        self.with_claim("worse", ("[source]", "looks = 2\n[source]"))
        text = self.claim("worse", "--no-train", "--out", "looks").stdout
        twice = json.loads((self.folder / "looks/claim.json").read_text())
        self.with_claim("worse")

        self.assertEqual((once["looks"], once["confidence"]), (1, 0.95))
        self.assertEqual((twice["looks"], twice["confidence"]), (2, 0.975))
        self.assertLess(twice["contrasts"][0]["lower"], once["contrasts"][0]["lower"])
        self.assertIn("over 2 looks", text)

    def interrupt(self, out, finished):
        """Ends the command as soon as a file of a pattern is there."""
        with subprocess.Popen([BINARY, "claim", "both", "--out", out], cwd=self.folder,
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
            while process.poll() is None and not list((self.folder / out).glob(finished)):
                time.sleep(0.001)
            process.send_signal(signal.SIGINT)
            _, message = process.communicate(timeout=60)
        self.assertEqual(process.returncode, INTERRUPTED, message)
        self.assertIn(b"--no-train", message)

    def test_in_pieces_it_ends_as_it_does_in_one(self):
        self.write("both/experiment.toml", EXPERIMENT.replace("steps = 20", "steps = 400"))
        self.write("both/claim.toml", BOTH)
        whole = self.claim("both", "--out", "whole")
        self.assertIn("student", whole.stderr)
        self.assertIn(whole.returncode, (PASS, INCONCLUSIVE), whole.stderr)

        self.interrupt("cut", "cells/model/*.h5")
        self.assertEqual(list((self.folder / "cut/cells/student").iterdir()), [])
        self.interrupt("cut", "cells/student/*.json")
        runs = list((self.folder / "cut/cells/student").iterdir())
        self.assertLess(len(runs), 8)
        kept = {run: run.stat().st_mtime_ns for run in runs}
        self.claim("both", "--out", "cut")
        self.assertEqual({run: run.stat().st_mtime_ns for run in runs}, kept)
        for part in ("2/2", "1/2"):
            result = self.claim("both", "--out", "parts", "--part", part)
            self.assertEqual(result.returncode, PASS, result.stderr)
        self.assertEqual(len(list((self.folder / "parts/cells/student").iterdir())), 8)
        self.claim("both", "--out", "parts", "--no-train")

        for name in ("claim.json", "claim.svg"):
            expected = (self.folder / "whole" / name).read_bytes()
            for out in ("cut", "parts"):
                self.assertEqual((self.folder / out / name).read_bytes(), expected, (out, name))
        # Files of students are no more trusted than logs.
        run = min((self.folder / "parts/cells/student").iterdir())
        content = json.loads(run.read_text())
        for change, words in (({"seed": 9}, "it is of seed 9"),
                              ({"losses": 2 * content["losses"]}, "it has 20 losses")):
            run.write_text(json.dumps({**content, **change}))
            self.assert_refused(self.claim("both", "--out", "parts", "--no-train"), run.name, words)

    def test_a_hostile_claim_is_planned_at_once(self):
        # The most that a claim may ask for.
        student = """[[cells]]
name = "{0}"
[cells.student]
width = 512
hidden = 2048
depth = 4
batch = 512
steps = 2000
seeds = 1000
[[contrasts]]
name = "{0}"
says = "It is so."
measure = "gap"
relation = "above"
bound = 0
published_size = 0.001
size_source = "ours"
arm = "quantised"
reference = "fp32"
cell = "{0}"
"""
        head = CLAIM[:CLAIM.index("[[contrasts]]")]
        self.write("hostile/claim.toml", head + "".join(student.format(f"s{i}") for i in range(16)))

        result = self.claim("hostile", "--dry-run")

        self.assertEqual(result.returncode, PASS, result.stderr)
        # The plan comes from operations: to measure a step of each would take minutes.
        self.assertIn("In all: ", result.stdout)

    def test_a_dry_run_writes_nothing(self):
        result = self.claim("worse", "--dry-run", "--out", "dry")

        self.assertEqual(result.returncode, PASS, result.stderr)
        self.assertIn("In all: ", result.stdout)
        self.assertFalse((self.folder / "dry").exists())

    def test_the_plan_says_its_power(self):
        result = self.claim("worse", "--dry-run")

        self.assertIn("Train a pilot with --seeds 4", result.stdout.replace("\n", " "))
        known = self.claim(self.with_claim("known", ("[[contrasts]]", "[[contrasts]]\nspread = 0.01")), "--dry-run",
                           "--seeds", "2")
        self.assertRegex(known.stdout.replace("\n", " "), r"2 seeds see it with chance 0\.\d\d, .*: too few, \d+ would do")
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
