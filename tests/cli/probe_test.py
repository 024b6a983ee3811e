"""The oracle probe: its log, its table, what is refused."""

import json

import h5py

from program import ProgramTest, FAIL, INVALID, PASS, USAGE

HOT = """name = "hot"
[model]
preset = "dsv3-nano"
vocab_size = 97
dim = 32
dense_hidden_dim = 64
moe_hidden_dim = 44
[data]
source = "synthetic"
order = 1
noise_levels = 8
tokens = 100_000
seed = 900015
sequence_length = 96
[train]
steps = 4
sequences_per_batch = 2
warmup_steps = 1
lr = 0.00697
seeds = [900015]
[parallel]
ranks = 4
ranks_per_node = 2
exchange = "node"
[arms.fp32]
recipe = "fp32"
"""


class Probe(ProgramTest):
    def probe(self, *options):
        return self.run_isoloss("probe", self.tiny, "--case", "plain", "--steps", "2",
                                *options)

    def test_writes_a_log_and_says_what_it_found(self):
        result = self.probe("--arm", "mxfp8", "--out", "probes")

        self.assertEqual(result.returncode, PASS, result.stderr)
        header, plain, seen, routing, path, verdict = result.stdout.splitlines()
        self.assertEqual(header.split()[:7], ["case", "steps", "tensors", "elements",
                                              "flips", "expected", "other"])
        self.assertEqual(plain.split()[:2], ["plain", "2"])
        self.assertEqual(plain.split()[6], "0", "a correct arm has no others")
        self.assertNotIn("oracle", plain, "nothing is worst where nothing is wrong")
        self.assertTrue(verdict.startswith("PASS: arm mxfp8, seed 1: "), verdict)
        self.assertTrue(verdict.endswith("(exit code 0)"), verdict)
        self.assertRegex(seen, r"^seen         all [0-9]+ elements$")
        self.assertEqual(routing, "routing      114 tokens, 0 flips, 0 other")
        self.assertTrue(path.startswith("probes/mxfp8-seed1.probe.h5 ("), path)
        with h5py.File(self.folder / "probes/mxfp8-seed1.probe.h5", "r") as log:
            self.assertEqual(log.attrs["arm"], "mxfp8")

    def test_takes_seed_and_reference(self):
        result = self.probe("--arm", "mxfp8", "--seed", "7", "--reference", "bf16",
                            "--reference-steps", "1,2", "--out", "more")

        self.assertEqual(result.returncode, PASS, result.stderr)
        self.assertEqual([path.name for path in (self.folder / "more").iterdir()],
                         ["mxfp8-seed7.probe.h5"])

    def test_probes_all_arms_into_a_folder_of_their_own(self):
        result = self.probe("--json", "--set=name='all'")

        self.assertEqual(result.returncode, PASS, result.stderr)
        printed = json.loads(result.stdout)
        self.assertEqual((printed["outcome"], printed["exit_code"]), ("PASS", PASS))
        self.assertEqual([probe["arm"] for probe in printed["probes"]],
                         ["bf16", "mxfp8"])
        for probe in printed["probes"]:
            self.assertEqual(probe["outcome"], "PASS")
            self.assertEqual(probe["total"]["other"], 0)
            self.assertIsNone(probe["total"]["worst"])
            self.assertEqual(probe["file"],
                             f"runs/all/probes/{probe['arm']}-seed1.probe.h5")
            self.assertTrue((self.folder / probe["file"]).is_file())

    def test_uncertain_probabilities_are_no_noise(self):
        # A hot row makes scores of 10^6, whose rounding moves probabilities by more than their size.
        self.write("hot.toml", HOT)
        result = self.run_isoloss("probe", "hot.toml", "--case", "hot_row", "--steps", "1", "--out", "hot")

        self.assertEqual(result.returncode, PASS, result.stderr)
        with h5py.File(self.folder / "hot/fp32-seed900015.probe.h5", "r") as log:
            ratios = log["oracle/row_noise_ratio"][()]
            self.assertLess(max(ratios[ratios == ratios]), 1)

    def test_names_what_it_does_not_know(self):
        self.assert_refused(self.probe("--arm", "fp8"),
                            "Arms of this experiment: bf16, mxfp8.")
        self.assert_refused(self.run_isoloss("probe", self.tiny, "--case", "plane"),
                            "there is no case `plane`", "plain", "tails")
        self.assert_refused(self.run_isoloss("probe", self.tiny, "--case", "tails",
                                             "--case", "tails"),
                            "case tails is given more than once")
        self.assert_refused(self.probe("--arm", "bf16", "--reference", "mxfp8"), "mxfp8",
                            code=INVALID)

    def test_a_reference_that_quantises_is_refused_before_anything_is_trained(
            self):
        # Steps of which the first would take longer than this test.
        result = self.run_isoloss(
            "probe", "tiny.toml", "--arm", "bf16", "--reference", "mxfp8",
            "--set", "train.sequences_per_batch=4096", "--out", "nothing")

        self.assert_refused(result, "`mxfp8`", "quantises", "Name a BF16 arm.")
        self.assert_no_files("nothing")

    def test_steps_must_be_positive(self):
        for option in ("--steps", "--reference-steps"):
            result = self.run_isoloss("probe", self.tiny, option, "0")
            self.assertEqual(result.returncode, USAGE)
            self.assertLess(len(result.stderr), 160)

    def test_steps_must_be_those_of_the_experiment(self):
        self.assert_refused(self.run_isoloss("probe", self.tiny, "--steps", "1000"),
                            "--steps names step 1000", "has 20")
        self.assert_refused(self.probe("--reference", "bf16", "--reference-steps", "1,21"),
                            "--reference-steps names step 21", "has 20")
        # What nobody asked for is no reason to refuse.
        short = self.run_isoloss("probe", self.tiny, "--case", "plain", "--set", "train.steps=2",
                                 "--set", "train.warmup_steps=1", "--out", "short")
        self.assertEqual(short.returncode, PASS, short.stderr)

    def test_what_rounding_does_not_explain_is_a_failure(self):
        # Overflows within a few steps.
        settings = ("train.lr=1", "train.clip_norm=1e9", "train.warmup_steps=0",
                    "train.beta2=0", "model.route_scale=1e9", "train.weight_decay=0")

        result = self.run_isoloss("probe", self.tiny, "--arm", "mxfp8", "--case", "plain",
                                  "--steps", "6", "--out", "overflow",
                                  *(f"--set={setting}" for setting in settings))

        self.assertEqual(result.returncode, FAIL, result.stderr)
        _, plain, _, _, _, verdict = result.stdout.splitlines()
        self.assertGreater(int(plain.split()[6]), 0)
        self.assertIn(", oracle ", plain)
        self.assertTrue(verdict.startswith("FAIL: arm mxfp8, seed 1: "), verdict)
        self.assertTrue(verdict.endswith("(exit code 1)"), verdict)
        self.assertTrue((self.folder / "overflow/mxfp8-seed1.probe.h5").is_file())
        self.assertIn("exit code 1", " ".join(self.run_isoloss("probe", "--help").stdout.split()))
