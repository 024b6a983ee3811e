"""--on: where models compute changes no bit, and a device that is not there is named."""

import json
import unittest

import h5py

from claim_test import BOTH, EXPERIMENT
from program import INCONCLUSIVE, PASS, ProgramTest, in_one_line, same_bits

# Two steps of four sequences, whose batches can be cut in two.
SHORT = tuple(f"--set={setting}" for setting in (
    "parallel.dispatch_units=4", "data.sequence_length=32", "train.sequences_per_batch=4", "train.steps=2",
    "train.warmup_steps=1", "train.seeds=[1]", "log.eval_sequences=1"))


class On(ProgramTest):
    def run_on(self, device, out, *options):
        result = self.run_isoloss("run", self.tiny, "--out", out, "--on", device, *options)
        self.assertEqual(result.returncode, PASS, result.stderr)
        return {path.stem: path for path in (self.folder / out).glob("*.h5")}

    def has_gpu(self):
        return "without CUDA" not in self.run_isoloss("run", self.tiny, "--on", "gpu", "--dry-run").stderr

    def test_the_emulation_leaves_the_logs_of_the_cpu_also_in_micro_batches(self):
        settings = ("parallel.ranks=2", "parallel.dispatch_units=4", "data.sequence_length=32",
                    "train.sequences_per_batch=4", "train.steps=2", "train.warmup_steps=1", "train.seeds=[1]",
                    "log.eval_sequences=1", "log.digests_every=1")
        logs = self.make_logs("cpu", *settings)
        emulated = self.run_on("emulation", "emulated", "--set", "parallel.micro_batches=2",
                               *(word for setting in settings for word in ("--set", setting)))
        self.assertEqual(emulated.keys(), logs.keys())
        for name, path in emulated.items():
            self.assertEqual(same_bits(path), same_bits(logs[name]))
            with h5py.File(path) as log:
                self.assertIn("emulation of a GPU", log.attrs["cpu_target"])

    def test_what_looks_at_tensors_takes_whole_batches_and_says_so(self):
        probed = {}
        for device, shares in (("cpu", 1), ("emulation", 2)):
            result = self.run_isoloss("probe", self.tiny, *SHORT, f"--set=parallel.micro_batches={shares}", "--arm",
                                      "mxfp8", "--case", "plain", "--steps", "1", "--out", f"probes-{shares}",
                                      "--on", device)
            self.assertEqual(result.returncode, PASS, result.stderr)
            self.assertEqual("parallel.micro_batches is 2, but each step is computed in one share" in result.stderr,
                             shares == 2, result.stderr)
            probed[shares] = same_bits(self.folder / f"probes-{shares}" / "mxfp8-seed1.probe.h5")
        self.assertEqual(probed[1], probed[2])

    def test_a_study_goes_on_elsewhere(self):
        study = ("stress", self.tiny, *SHORT, "--set=train.steps=1", "--set=train.warmup_steps=0", "--mode", "plain",
                 "--seeds", "2", "--indicators", "1", "--out", "stress")
        result = self.run_isoloss(*study)
        self.assertEqual(result.returncode, INCONCLUSIVE, result.stderr)
        elsewhere = self.run_isoloss(*study, "--on", "emulation", "--set=parallel.micro_batches=2", "--no-train")
        self.assertEqual(elsewhere.returncode, INCONCLUSIVE, elsewhere.stderr)
        self.assertIn("parallel.micro_batches is 2, but", in_one_line(elsewhere.stdout))

    def test_students_of_a_claim_compute_on_the_cpu_and_the_plan_says_so(self):
        self.write("both/experiment.toml", EXPERIMENT)
        self.write("both/claim.toml", BOTH)
        result = self.run_isoloss("claim", "both", "--on", "emulation", "--dry-run")
        self.assertEqual(result.returncode, PASS, result.stderr)
        self.assertIn("Models compute on emulation, but the students of student on the CPU.",
                      in_one_line(result.stdout))
        listed = self.run_isoloss("claim", "both", "--on", "emulation", "--dry-run", "--list-runs", "runs.json")
        self.assertEqual(listed.returncode, PASS, listed.stderr)
        self.assertEqual(json.loads((self.folder / "runs.json").read_text())["on"], "emulation")

        model, student = BOTH.index('[[cells]]\nname = "model"'), BOTH.index('[[cells]]\nname = "student"')
        first, second = BOTH.index("[[contrasts]]"), BOTH.rindex("[[contrasts]]")
        self.write("students/claim.toml", BOTH[:model] + BOTH[student:first] + BOTH[second:])
        self.assert_refused(self.run_isoloss("claim", "students", "--on", "emulation", "--dry-run"),
                            "--on is emulation, but all cells train students", "Leave it out.")

    def test_the_experiment_says_it_too(self):
        result = self.run_isoloss("run", self.tiny, "--dry-run", "--set", "parallel.on='emulation'")
        self.assertEqual(result.returncode, PASS, result.stderr)
        self.assertIn('on = "emulation"', result.stdout)

    def test_other_transports_are_refused(self):
        for command in (("run",), ("verify",), ("parity",)):
            self.assert_refused(
                self.run_isoloss(*command, self.tiny, "--on", "emulation", "--set", "parallel.ranks=2",
                                 "--set", "parallel.transport='threads'"),
                "parallel.on is `emulation` with transport `threads`", 'transport = "loop"')

    def test_the_host_makes_ensembles_alone(self):
        self.assert_refused(
            self.run_isoloss("ensemble", "build", self.tiny, "--out", "e.h5", "--on", "emulation"),
            "members are made on the host", "Use --on cpu.")

    def test_a_gpu_that_is_not_there_is_named(self):
        if self.has_gpu():
            self.skipTest("this build has CUDA")
        for command in (("run",), ("verify",), ("probe",), ("run", "--dry-run"), ("parity",)):
            self.assert_refused(self.run_isoloss(command[0], self.tiny, *command[1:], "--on", "gpu"),
                                "gpu", "-DISOLOSS_CUDA=ON")

    def test_slurm_gives_each_job_a_gpu(self):
        result = self.run_isoloss("submit", self.tiny, "--engine", "slurm", "--minutes", "5", "--dry-run", "--",
                                  "--on", "gpu")
        self.assertEqual(result.returncode, PASS, result.stderr)
        self.assertIn("#SBATCH --gres=gpu:1", result.stdout)
        self.assertIn("parallel.on=gpu", result.stdout)
        if not self.has_gpu():
            self.assert_refused(
                self.run_isoloss("submit", self.tiny, "--engine", "slurm", "--dry-run", "--", "--on", "gpu"),
                "Give --minutes.")
        self.assert_refused(
            self.run_isoloss("submit", self.tiny, "--engine", "slurm", "--minutes", "5", "--processes", "2",
                             "--dry-run", "--", "--on", "gpu"),
            "--processes is 2", "one process")


if __name__ == "__main__":
    unittest.main()
