"""--on: where models compute changes no bit, and a device that is not there is named."""

import unittest

import h5py

from program import PASS, ProgramTest, same_bits


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
