"""A run on many ranks beside the run on one: verdict, JSON, what is refused."""

import json
import os
import pathlib
import shutil
import subprocess

from program import BINARY, ProgramTest, INVALID, PASS, USAGE

# What several processes can share (see the messages of train::CheckProcesses).
SHAREABLE = ("parallel.ranks=4", "model.dim=32", "model.moe_hidden_dim=32",
             "data.sequence_length=32", "train.sequences_per_batch=4")


class Parity(ProgramTest):
    def parity(self, *settings, options=()):
        return self.run_isoloss("parity", self.tiny, *options,
                                *(f"--set={setting}" for setting in settings))

    def test_passes_on_meshes_of_any_transport(self):
        for transport in ("loop", "threads", "shuffled"):
            result = self.parity("parallel.ranks=4", f"parallel.transport={transport}")

            self.assertEqual(result.returncode, PASS, result.stderr)
            self.assertTrue(result.stdout.startswith(
                "PASS  parity          every bit of 2 steps is that of one rank\n"),
                result.stdout)
            for arm in ("bf16", "mxfp8"):
                self.assertIn(
                    f"arm {arm}, seed 1: 4 ranks in 1 expert-parallel group, "
                    f"transport {transport} over 1 process;", result.stdout)
        self.assertEqual([path.name for path in self.folder.iterdir()],
                         ["tiny.toml"], "it writes no files")

    def test_json_says_what_was_compared(self):
        result = self.parity(
            "parallel.ranks=4", "parallel.expert_data_parallel=2",
            "parallel.dispatch_units=2", "train.sequences_per_batch=2",
            options=("--json", "--arm", "mxfp8", "--steps", "3"))

        self.assertEqual(result.returncode, PASS, result.stderr)
        printed = json.loads(result.stdout)
        self.assertEqual((printed["outcome"], printed["exit_code"]), ("PASS", PASS))
        report, = printed["arms"]
        self.assertGreater(report.pop("gradients_per_step"), 20)
        self.assertEqual(report, {
            "outcome": "PASS", "arm": "mxfp8", "seed": 1, "ranks": 4,
            "expert_data_parallel": 2, "transport": "loop", "processes": 1,
            "steps": 3, "first_difference": None})

    def test_what_depends_on_the_ranks_by_design_is_refused(self):
        for exchange in ("rank", "node"):
            self.assert_refused(
                self.parity("parallel.ranks=4", f"parallel.exchange={exchange}"),
                "arm bf16", f'exchange = "{exchange}"', "by design", code=INVALID)

    def test_one_rank_is_refused(self):
        self.assert_refused(self.parity(), "parallel.ranks is 1",
                            "nothing to compare")

    def test_an_unknown_arm_is_named(self):
        self.assert_refused(self.parity("parallel.ranks=4", options=("--arm", "fp8")),
                            "Arms of this experiment: bf16, mxfp8.")

    def test_steps_must_be_positive(self):
        result = self.parity("parallel.ranks=4", options=("--steps", "0"))
        self.assertEqual(result.returncode, USAGE)

    def test_several_processes_give_one_verdict(self):
        if "ISOLOSS_NO_LAUNCHER" in os.environ:
            self.skipTest("this build does not run under launchers")
        modules = pathlib.Path(BINARY).parent.parent / "lib" / "isoloss"
        ran = []
        for mpi, options in (("openmpi", ["--oversubscribe"]), ("mpich", [])):
            launcher = shutil.which(f"mpirun.{mpi}")
            if launcher is None or not (modules / f"isoloss_mpi_{mpi}.so").exists():
                continue
            result = subprocess.run(
                [launcher, *options, "-n", "2", BINARY, "parity", self.tiny,
                 *(f"--set={setting}" for setting in
                   (*SHAREABLE, "parallel.transport=mpi"))],
                cwd=self.folder, stdin=subprocess.DEVNULL, capture_output=True,
                text=True, timeout=120,
                env={**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1",
                     "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                     "ASAN_OPTIONS": "detect_leaks=0"})

            self.assertEqual(result.returncode, PASS, result.stderr)
            self.assertEqual(result.stdout.count("PASS  parity"), 2, result.stdout)
            self.assertIn("transport mpi over 2 processes", result.stdout)
            ran.append(mpi)
        if not ran:
            self.skipTest("no MPI library that this build has a module for")
