"""Faults under jobs of several processes in Slurm: no acknowledged step is lost, the job comes back by itself
where Slurm lets it, and the bits are those of one process that nothing disturbed.

Runs inside of `tools/dev/slurm`. ISOLOSS_SLURM_TIMES: a file for the seconds from each fault to the next new step.
"""

import atexit
import os
import pathlib
import re
import signal
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "cli"))
import cluster
from cluster import Job, STEP, call, send, wait_until
from program import BINARY, PASS, ProgramTest, same_bits

NAME = "mxfp8-seed1"
STEPS = 500
# Each process gets whole leaves of 32 tokens, with one, two or four of them.
EXPERIMENT = f"""\
name = "faults"
[model]
vocab_size = 23
dim = 32
n_layers = 2
n_dense_layers = 1
n_heads = 2
kv_lora_rank = 16
qk_nope_head_dim = 8
qk_rope_head_dim = 4
v_head_dim = 8
dense_hidden_dim = 40
moe_hidden_dim = 32
num_experts = 8
num_shared_experts = 1
top_k = 2
[data]
source = "synthetic"
sequence_length = 32
noise_levels = 4
tokens = 4000
[train]
steps = {STEPS}
sequences_per_batch = 32
seeds = [1]
warmup_steps = 2
lr = 0.01
[log]
eval_every = 100
eval_sequences = 8
checkpoint_every = 15
[parallel]
ranks = 8
ranks_per_node = 4
workers = 1
deadline_seconds = 5.0
[arms.mxfp8]
recipe = "mxfp8_rceil"
"""
PMI2, PMIX = "srun --mpi=pmi2", "srun --mpi=pmix"
OPENMPI, MPICH = "mpirun.openmpi", "mpirun.mpich"

TIMES = []


def print_times():
    lines = "".join(f"| {fault} | {launcher} | {seconds:.1f} |\n" for fault, launcher, seconds in TIMES)
    sys.stderr.write(lines)
    if "ISOLOSS_SLURM_TIMES" in os.environ:
        pathlib.Path(os.environ["ISOLOSS_SLURM_TIMES"]).write_text(lines)


atexit.register(print_times)


@unittest.skipUnless(cluster.FOLDER.exists(), "not inside of tools/dev/slurm")
class Faults(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.experiment = cls.write("faults.toml", EXPERIMENT)
        result = cls.run_isoloss("run", cls.experiment, "--out", "whole", "--print-steps")
        assert result.returncode == PASS, result.stderr
        cls.bits = cls.compared(cls.folder / "whole" / f"{NAME}.h5")
        cls.losses = dict(STEP.findall(result.stdout))
        assert len(cls.losses) == STEPS, result.stdout

    def setUp(self):
        cluster.restore()
        self.out = self.folder / self._testMethodName.removeprefix("test_")

    @staticmethod
    def compared(path):
        """All of a log but how ranks were cut, and what they sent to each other."""
        return {name: value for name, value in same_bits(path).items()
                if not name.startswith(("exchange", "rank", "expert_data"))}

    def submit(self, launcher, *options, tasks=2, arguments=(), **environment):
        command = [BINARY, "run", self.experiment, "--out", self.out, "--resume", "--print-steps",
                   "--set", "parallel.transport=mpi", *arguments]
        return Job(self.out, command, launcher, *options, tasks=tasks, **environment)

    def check(self, *jobs, restarts=1):
        """The last of the jobs, all in one folder, ends as if nothing had happened."""
        job = jobs[-1]
        self.assertEqual(job.wait_for_end(), "COMPLETED", job.text()[-5000:])
        text = job.text()
        if restarts is not None:
            self.assertEqual(job.shown()["Restarts"], str(restarts), text)
        # A printed step is on disk, whatever came then: the next attempt that goes on says what it found.
        attempts = re.split(r"(?m)^job \S+, attempt \d+: \d+ processes on .*$", text)
        printed = []
        for attempt in attempts:
            steps = [int(step) for step, _ in STEP.findall(attempt)]
            found = re.search(r"(\d+) steps were on disk|kept, as it is finished", attempt)
            if printed and (steps or attempt is attempts[-1]):
                self.assertIsNotNone(found, text)
                self.assertGreaterEqual(int(found[1] or STEPS), max(printed), text)
            printed += steps
        self.assertGreater(len(printed), 0)
        for step, loss in STEP.findall(text):
            self.assertEqual(loss, self.losses[step], step)
        self.assertEqual(self.compared(job.out / f"{NAME}.h5"), self.bits)
        for one in jobs:
            wait_until(lambda one=one: not one.left(), lambda one=one: f"processes are left: {one.left()}")

    def disturb(self, job, step, fault, what):
        """Waits for the step, lets `fault` happen, and for the first new step after it."""
        job.wait_for_step(step)
        size, begin = len(job.text()), time.monotonic()
        fault()
        job.wait_for_new_step(size)
        TIMES.append((what, job.launcher, time.monotonic() - begin))

    def signal_rank(self, launcher, rank, number, step):
        job = self.submit(launcher)
        job.wait_for_step(step)
        lost = job.node(rank)
        name = {signal.SIGKILL: "killed", signal.SIGSTOP: "stopped"}[number]
        self.disturb(job, step, lambda: send([job.rank(rank)], number), f"{name} process {rank}")
        self.check(job)
        self.assertIn(lost, job.shown()["ExcNodeList"])

    def test_01_killed_process_0_pmi2(self):
        self.signal_rank(PMI2, 0, signal.SIGKILL, 40)

    def test_02_killed_process_1_pmix(self):
        self.signal_rank(PMIX, 1, signal.SIGKILL, 1)

    def test_03_killed_process_0_openmpi(self):
        self.signal_rank(OPENMPI, 0, signal.SIGKILL, 100)

    def test_04_killed_process_1_mpich(self):
        self.signal_rank(MPICH, 1, signal.SIGKILL, 250)

    def test_05_stopped_process_1_pmi2(self):
        self.signal_rank(PMI2, 1, signal.SIGSTOP, 150)

    def test_06_stopped_process_0_pmix(self):
        self.signal_rank(PMIX, 0, signal.SIGSTOP, 60)

    def test_07_stopped_process_1_openmpi(self):
        self.signal_rank(OPENMPI, 1, signal.SIGSTOP, 200)

    def down(self, launcher, rank, step):
        job = self.submit(launcher)
        self.disturb(job, step, lambda: call("scontrol", "update", f"NodeName={job.node(rank)}", "State=DOWN",
                                             "Reason=test"), f"node of process {rank} set down")
        self.check(job)

    def test_08_node_down_pmi2(self):
        self.down(PMI2, 1, 120)

    def test_09_node_of_the_script_down_pmix(self):
        self.down(PMIX, 0, 30)

    def test_10_node_of_process_1_dies_pmi2(self):
        job = self.submit(PMI2)
        self.disturb(job, 80, lambda: send(cluster.on_node(job.node(1)), signal.SIGKILL),
                     "node of process 1 dies")
        # The script may be quicker than Slurm, or Slurm than it.
        self.check(job, restarts=None)

    def test_11_node_of_the_script_dies_pmix(self):
        job = self.submit(PMIX)
        self.disturb(job, 220, lambda: send(cluster.on_node(job.node(0)), signal.SIGKILL),
                     "node of the batch script dies")
        self.check(job)

    def test_12_slurmd_dies_but_not_its_processes_pmi2(self):
        job = self.submit(PMI2)
        with job.slowed():
            self.disturb(job, 10, lambda: send([cluster.daemon(job.node(0))], signal.SIGKILL),
                         "slurmd of the batch script dies")
        self.check(job)

    def preempted(self, launcher, step):
        job = self.submit(launcher)
        high = []
        self.disturb(job, step, lambda: high.append(
            call("sbatch", "--parsable", "--partition=high", "--nodes=3", "--exclusive", "--output=/dev/null",
                 "--wrap=sleep 1")), "preemption")
        self.check(job)

    def test_13_preemption_pmi2(self):
        self.preempted(PMI2, 90)

    def test_14_preemption_openmpi(self):
        self.preempted(OPENMPI, 170)

    def test_15_time_limit_pmix(self):
        job = self.submit(PMIX, "--time=1", "--signal=B:USR1@50")
        with job.slowed():
            job.wait_for_step(5)
            # Slurm looks each 30 s only. The fault is that the processes are told.
            wait_until(lambda: "interrupted" in job.text(), lambda: job.text()[-3000:])
            size, begin = len(job.text()), time.monotonic()
        # The limit holds for each attempt; the next one needs no second time.
        job.wait_for_new_step(size)
        TIMES.append(("time limit (from the checkpoint on)", PMIX, time.monotonic() - begin))
        self.check(job)

    def test_16_cancelled_and_submitted_again_with_one_process(self):
        first = self.submit(PMI2)
        first.wait_for_step(130)
        begin = time.monotonic()
        call("scancel", first.id)
        self.assertEqual(first.wait_for_end(), "CANCELLED")
        size = len(first.text())
        job = self.submit(PMI2, tasks=1)
        job.wait_for_new_step(size)
        TIMES.append(("scancel and submission with one process", PMI2, time.monotonic() - begin))
        self.check(first, job, restarts=0)
        self.assertIn("attempt 1: 1 processes", job.text())

    def test_17_killed_script_and_submitted_again_with_four_processes(self):
        first = self.submit(PMIX)
        first.wait_for_step(70)
        begin = time.monotonic()
        send([pid for pid, name in first.left() if name == "slurm_script"], signal.SIGKILL)
        # Slurm requeues no job whose script died by a signal.
        self.assertEqual(first.wait_for_end(), "FAILED")
        size = len(first.text())
        job = self.submit(PMIX, tasks=4)
        job.wait_for_new_step(size)
        TIMES.append(("killed script and submission with four processes", PMIX, time.monotonic() - begin))
        self.check(first, job, restarts=0)
        self.assertIn("attempt 1: 4 processes", job.text())

    def test_18_full_disk_pmi2(self):
        with cluster.small_disk(self.out, 64):
            job = self.submit(PMI2)
            job.wait_for_step(50)
            ballast = self.out / "ballast"
            with self.assertRaisesRegex(OSError, "No space left"), ballast.open("wb") as file:
                while True:
                    file.write(bytes(1 << 16))
                    file.flush()
            wait_until(lambda: job.shown().get("Reason") == "job_requeued_in_held_state",
                       lambda: f"{job.shown()} {job.text()[-3000:]}")
            self.assertIn(f"free some of it, then: scontrol release {job.id}",
                          call("scontrol", "show", "job", job.id))
            ballast.unlink()
            size, begin = len(job.text()), time.monotonic()
            call("scontrol", "release", job.id)
            job.wait_for_new_step(size)
            TIMES.append(("full disk (from the release on)", PMI2, time.monotonic() - begin))
            self.check(job)

    def test_19_stopped_srun_pmi2(self):
        job = self.submit(PMI2)
        job.wait_for_step(180)
        send(job.launchers(), signal.SIGSTOP)
        self.assertGreater(len(job.launchers()), 0)
        # Its processes may go on to the end without it; then nothing is left to be done again.
        self.check(job, restarts=None)
        self.assertIn("the launcher hangs, so it is killed", job.text())

    def test_20_mpirun_hangs_when_a_process_dies_openmpi(self):
        job = self.submit(OPENMPI)

        def hang():
            send(job.launchers(), signal.SIGSTOP)
            send([job.rank(1)], signal.SIGKILL)
        self.disturb(job, 20, hang, "stopped launcher, killed process 1")
        self.check(job)
        self.assertIn("the launcher hangs, so it is killed", job.text())

    def test_21_slurmctld_restarted_while_a_process_is_killed_mpich(self):
        job = self.submit(MPICH)

        def restarted():
            cluster.stop_controller()
            send([job.rank(1)], signal.SIGKILL)
            time.sleep(3)
            cluster.start_controller()
        self.disturb(job, 110, restarted, "slurmctld restarted, process 1 killed meanwhile")
        self.check(job)

    def test_22_one_element_of_an_array_pmi2(self):
        script = self.write("array.sh", f"""\
#!/bin/bash
export OUT={self.out}-$SLURM_ARRAY_TASK_ID
source {cluster.SCRIPT} "$@" --out "$OUT"
""")
        command = [BINARY, "run", self.experiment, "--resume", "--print-steps", "--set", "parallel.transport=mpi"]
        array = Job(self.out, command, PMI2, "--array=0-1", "--ntasks=2", "--nodes=1-2", "--spread-job",
                    "--open-mode=append", f"--output={self.out}-%a.txt", script=script)
        wait_until(lambda: call("squeue", "--noheader", "--states=RUNNING", "--format=%i").count("\n") == 1,
                   "both elements run")
        struck, other = array.element(1), array.element(0)
        self.disturb(struck, 140, lambda: send([struck.rank(0)], signal.SIGKILL), "killed process 0 of an element")
        self.check(struck)
        self.check(other, restarts=0)

    def test_23_a_sick_node_is_left_before_the_first_step_pmix(self):
        # A processor or a compiler that rounds wrongly, on one node.
        wrong = os.environ["ISOLOSS_WRONG_ROUNDING"]
        check = self.write("check.sh", f"""\
[ "$SLURMD_NODENAME" != n1 ] || export LD_PRELOAD={wrong}
exec {BINARY} doctor --job {self.experiment} --out {self.out} --set parallel.transport=mpi "$@"
""")
        job = self.submit(PMIX, CHECK=f"bash {check}")
        self.check(job)
        self.assertIn("sick: n1", job.text())
        self.assertEqual(job.shown()["ExcNodeList"], "n1")
        self.assertNotIn("step:", job.text().partition("attempt 2")[0])

    def test_24_too_many_faults_pmi2(self):
        job = self.submit(PMI2, FAULTS_ALLOWED="0")
        job.wait_for_step(20)
        send([job.rank(1)], signal.SIGKILL)
        self.assertEqual(job.wait_for_end(), "FAILED")
        self.assertEqual(job.shown()["ExitCode"], "70:0", job.text())
        self.assertIn("Submitting it again goes on.", job.text())
        self.check(self.submit(PMI2), restarts=0)

    def test_25_a_mistake_is_not_repeated_pmix(self):
        job = self.submit(PMIX, arguments=["--set", "train.steps=0"])
        self.assertEqual(job.wait_for_end(), "FAILED")
        self.assertEqual(job.shown()["ExitCode"], "3:0", job.text())
        self.assertEqual(job.shown()["Restarts"], "0")
        self.assertIn("train.steps", job.text())


if __name__ == "__main__":
    unittest.main()
