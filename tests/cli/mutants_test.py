"""Known bugs: what is listed, what a run with one leaves, what is refused."""

import json

from program import ProgramTest, INVALID, PASS, USAGE


class Mutants(ProgramTest):
    def run_arm(self, *options, arm="mxfp8"):
        return self.run_isoloss("run", self.tiny, "--out", self.folder / "out",
                                "--restart", "--arm", arm, *options)

    def shown(self):
        result = self.run_isoloss("show", self.folder / "out" / "mxfp8-seed1.h5",
                                  "--json")
        self.assertEqual(result.returncode, PASS, result.stderr)
        return json.loads(result.stdout)

    def test_list_names_what_each_models(self):
        result = self.run_isoloss("mutants", "list", "--json")

        self.assertEqual(result.returncode, PASS, result.stderr)
        mutants = {mutant["name"]: mutant for mutant in json.loads(result.stdout)["mutants"]}
        self.assertEqual(mutants["scale_floor"]["class"], "bug")
        self.assertEqual(mutants["scale_floor"]["group"], "scale")
        self.assertEqual(mutants["scale_floor"]["catalogue"], 1)
        self.assertTrue(mutants["amax_bf16"]["note"])
        text = self.run_isoloss("mutants", "list", "--group", "layout").stdout
        self.assertIn("requantised_transpose", text)
        self.assertNotIn("scale_floor", text)

    def test_a_run_with_a_mutant_says_so_and_differs(self):
        self.assertEqual(self.run_arm().returncode, PASS)
        plain = self.shown()

        result = self.run_arm("--mutant", "truncation")

        self.assertEqual(result.returncode, PASS, result.stderr)
        planted = self.shown()
        self.assertNotEqual(planted["loss_nats"], plain["loss_nats"])
        events = {event["kind"]: event["text"] for event in planted["events"]}
        self.assertIn("truncation (bug, element_cast)", events["mutant"])
        self.assertNotIn("mutant", [event["kind"] for event in plain["events"]])

    def test_a_mutant_of_the_log_edits_it(self):
        result = self.run_arm("--mutant", "loss_last_nan")

        self.assertEqual(result.returncode, PASS, result.stderr)
        self.assertEqual(self.shown()["loss_nats_text"], "nan")

    def test_what_cannot_be_planted_is_refused(self):
        self.assert_refused(self.run_arm("--mutant", "truncatoin"),
                            "Did you mean `truncation`?", code=INVALID)
        self.assert_refused(self.run_arm("--mutant", "truncation", arm="bf16"),
                            "arm bf16 quantises nothing", code=INVALID)
        for options in (("--mutant", "truncation"),
                        ("--mutant", "truncation", "--arm", "mxfp8", "--resume")):
            result = self.run_isoloss("run", self.tiny, *options)
            self.assertEqual(result.returncode, USAGE, result.stderr)
        self.assert_refused(self.run_isoloss("mutants", "list", "--group", "scales"),
                            "Did you mean `scale`?", code=INVALID)
