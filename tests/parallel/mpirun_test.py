"""`isoloss` under mpirun: the bits of a single process, one set of results, and
an end with a reason.

Times are limits on hanging, not measurements.
"""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import time
import unittest

import h5py

from job import MESH, MPI, JobTest
from program import BINARY, INCONCLUSIVE, INVALID, PASS, same_bits

# What a launcher needs to clean up after a job that ended badly.
LAUNCHER_SECONDS = 30
DEADLINE_SECONDS = 3


class Bits(JobTest):
    def test_any_number_of_processes_gives_the_bits_of_one(self):
        expected = self.single(self.hierarchies, "single")
        self.assertEqual(len(expected), 6)
        # One process is below, and eight are in the matrix.
        for processes in (2, 4):
            with self.subTest(processes=processes):
                out = f"bits{processes}"
                job = self.job(processes, "run", self.hierarchies, out)

                self.assertEqual(job.returncode, PASS, job.stderr)
                self.assertEqual(len(job.stdout.splitlines()), 6, job.stdout)
                self.assert_same(out, expected, processes)

    def test_ranks_and_copies_of_experts_do_not_matter(self):
        expected = self.single(self.mesh, "cut", "parallel.ranks=1",
                               "parallel.dispatch_units=8")
        for processes, ranks, copies in ((2, 256, 1), (4, 64, 2)):
            with self.subTest(processes=processes, ranks=ranks, copies=copies):
                out = f"cut{processes}"
                job = self.job(processes, "run", self.mesh, out,
                               f"parallel.ranks={ranks}",
                               f"parallel.expert_data_parallel={copies}",
                               "parallel.dispatch_units=8",
                               "parallel.workers=2")

                self.assertEqual(job.returncode, PASS, job.stderr)
                self.assert_same(out, expected, processes, other_mesh=True)

    def test_a_job_of_one_process_may_have_several_workers(self):
        expected = self.single(self.mesh, "crew")
        job = self.job(1, "run", self.mesh, "crew1", "parallel.workers=3")

        self.assertEqual(job.returncode, PASS, job.stderr)
        self.assert_same("crew1", expected, 1)


class Results(JobTest):
    def test_verify_prints_one_report_and_ends_as_a_single_process_does(self):
        settings = ("train.seeds=[1, 2]", "parallel.ranks=8")
        # Of a job the oracle could not hold all ranks.
        alone = self.run_isoloss("verify", self.mesh, "--no-oracle", "--out", "alone",
                                 *(f"--set={setting}" for setting in settings))
        job = self.job(4, "verify", self.mesh, "verify", *settings)

        self.assertIn(alone.returncode, (PASS, INCONCLUSIVE), alone.stderr)
        self.assertEqual(job.returncode, alone.returncode, job.stderr)
        self.assertEqual(self.files("verify"), self.files("alone"))
        for title in ("  mxfp8 against bf16: ", "  mxfp8_hp against bf16: "):
            self.assertEqual(alone.stdout.count(title), 1, alone.stdout)
            self.assertEqual(job.stdout.count(title), 1, job.stdout)


class Refusals(JobTest):
    def job(self, *arguments, **options):
        """MPICH's launcher now and then drops all that processes said which end
        at once: then the job is tried again."""
        for _ in range(3):
            job = super().job(*arguments, **options)
            if job.stderr or job.returncode == PASS:
                break
        return job

    def assert_job_refused(self, job, out, *words):
        self.assertNotEqual(job.returncode, PASS)
        for word in words:
            self.assertIn(word, job.stderr)
        self.assertEqual([name for name in self.files(out)
                          if not name.startswith("abort-process")], [])
        self.assertEqual(job.stdout.count(".h5"), 0, job.stdout)

    def test_a_transport_of_one_process(self):
        for transport in ("loop", "threads", "shuffled"):
            for ranks in (1, 8):
                with self.subTest(transport=transport, ranks=ranks):
                    job = self.job(2, "run", self.mesh, "one",
                                   f"parallel.ranks={ranks}",
                                   transport=transport)

                    self.assert_job_refused(
                        job, "one", "started 2 processes",
                        "Use the transport `mpi`, or start one process.")
                    self.assertEqual(job.returncode, INVALID)

    def test_mpi_without_a_launcher(self):
        result = self.run_isoloss("run", self.mesh, "--out", "none",
                                  "--set=parallel.transport=mpi")

        self.assert_refused(result, "no MPI launcher started this process")
        self.assert_no_files("none")

    def test_ranks_that_do_not_divide(self):
        job = self.job(3, "run", self.mesh, "three")

        self.assert_job_refused(
            job, "three",
            "parallel.ranks gives 8 ranks to 3 processes, but each must get equally many")
        self.assertEqual(job.returncode, INVALID)

    def test_sequences_that_do_not_divide(self):
        job = self.job(2, "run", self.mesh, "uneven",
                       "train.sequences_per_batch=3")

        self.assert_job_refused(
            job, "uneven", "train.sequences_per_batch gives 3 sequences to 2 "
            "processes, but each must get a power of two")

    def test_an_experiment_that_is_not_there(self):
        job = self.job(2, "run", self.folder / "missing.toml", "missing")

        self.assert_job_refused(job, "missing", "missing.toml: cannot be read")
        self.assertEqual(job.returncode, INVALID)


def processor_seconds(pid):
    """What a process has used; the name in the line may hold blanks."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


INTERRUPTED = 130  # of the first process; the others end well


class LiveJobTest(JobTest):
    """Finds processes of a job that is still running."""

    def pids(self, out):
        """Of the job's processes, by index."""
        found = {}
        for entry in pathlib.Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                arguments = (entry / "cmdline").read_bytes().split(b"\0")
                variables = (entry / "environ").read_bytes().split(b"\0")
            except OSError:
                continue
            if (arguments[0] != bytes(BINARY) or
                    bytes(self.folder / out) not in arguments):
                continue
            for variable in variables:
                name, _, value = variable.partition(b"=")
                if name in (b"OMPI_COMM_WORLD_RANK", b"PMI_RANK"):
                    found[int(value)] = int(entry.name)
        return found


class Deaths(LiveJobTest):
    """What ends a job of four processes that would train for an hour."""

    def training_pids(self, job, out):
        """Once all four have worked longer than it takes to start."""
        end = time.monotonic() + 120
        while time.monotonic() < end:
            self.assertIsNone(job.poll(), "the job ended early")
            pids = self.pids(out)
            if len(pids) == 4 and all(processor_seconds(pid) > 1
                                      for pid in pids.values()):
                return pids
            time.sleep(0.1)
        self.fail("the job does not start")

    def end_job(self, out, interfere, **variables):
        """Calls interfere(job, pids) while the job trains, with variables in its
        environment; returns its exit code and what it said when it was over."""
        job = subprocess.Popen(
            self.command(4, "run", self.mesh, out, "train.steps=20000",
                         "log.eval_every=20000", "log.routing=false",
                         f"parallel.deadline_seconds={DEADLINE_SECONDS}"),
            env={**self.environment(), **variables}, cwd=self.folder,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            encoding="utf-8", start_new_session=True)
        try:
            pids = self.training_pids(job, out)
            interfere(job, pids)
            output, errors = job.communicate(
                timeout=DEADLINE_SECONDS + LAUNCHER_SECONDS)
        finally:
            for pid in self.pids(out).values():
                os.kill(pid, signal.SIGKILL)
            if job.poll() is None:
                os.killpg(job.pid, signal.SIGKILL)
                job.communicate()
        self.assertEqual([n for n in self.files(out) if n.endswith("seed1.h5")],
                         [], "no run was finished")
        return job.returncode, output + errors

    def reasons(self, out):
        return {path.name: path.read_text()
                for path in (self.folder / out).glob("abort-process*.txt")}

    def test_a_stopped_process_is_named_with_step_and_operation(self):
        code, text = self.end_job(
            "stopped", lambda _, pids: os.kill(pids[2], signal.SIGSTOP))

        self.assertNotEqual(code, PASS, text)
        reasons = self.reasons("stopped")
        self.assertTrue(reasons)
        self.assertTrue(any(re.search(r"step \d+, \w+.*process 2", reason)
                            for reason in reasons.values()), reasons)

    def test_a_reason_is_left_though_the_folder_is_gone(self):
        # As of a job that ends before its first step.
        def interfere(_, pids):
            os.kill(pids[2], signal.SIGSTOP)
            shutil.rmtree(self.folder / "gone")

        self.end_job("gone", interfere)

        self.assertTrue(self.reasons("gone"))

    def test_a_killed_process_ends_the_job(self):
        # The launcher, or the MPI library of a process that reads the dead one's
        # memory, may be faster than the deadline. Then it says why, and nobody is
        # left to write a reason.
        code, text = self.end_job(
            "killed", lambda _, pids: os.kill(pids[2], signal.SIGKILL))

        self.assertNotEqual(code, PASS, text)
        reasons = self.reasons("killed")
        self.assertNotIn("abort-process2.txt", reasons)
        for reason in reasons.values():
            self.assertRegex(reason, r"step \d+, \w+")
        if not reasons:
            self.assertRegex(text, r"(?i)signal 9|exit code: 9|no such process")

    def assert_interrupted(self, out, text):
        self.assertEqual(
            self.files(out),
            [f"bf16-seed1.{kind}"
             for kind in ("checkpoints", "journal", "partial.h5")], text)
        self.assertEqual(text.count("isoloss: interrupted"), 1, text)
        with h5py.File(self.folder / out / "bf16-seed1.partial.h5") as log:
            self.assertFalse(log.attrs["complete"])
            self.assertEqual(list(log["events/kind"].asstr()),
                             ["start", "checkpoint", "cost", "interrupt"])
            self.assertGreater(len(log["steps/step"]), 0)
        self.assertEqual(self.reasons(out), {})

    def test_a_signal_at_any_one_process_interrupts_the_job(self):
        # Processes vote after every step; the first one tells of it.
        # Below MPICH's launcher a job does not end after SIGHUP yet.
        for number in (signal.SIGTERM, signal.SIGHUP)[:1 if MPI == "mpich" else 2]:
            with self.subTest(signal=number.name):
                code, text = self.end_job(
                    number.name, lambda _, pids: os.kill(pids[3], number))

                self.assert_interrupted(number.name, text)
                self.assertEqual(code, INTERRUPTED, text)

    def test_sigterm_at_the_launcher_leaves_a_partial_log(self):
        # Exit codes of terminated jobs are the launcher's: MPICH's may be 0. Open
        # MPI's gives 1 s by default before it kills.
        _, text = self.end_job("mpirun", lambda job, _: job.terminate(),
                               OMPI_MCA_odls_base_sigkill_timeout="10")

        self.assert_interrupted("mpirun", text)


class Resumption(LiveJobTest):
    """A job that goes on with other processes than it was begun with."""

    # Many: the partial log, by which progress is seen, follows at a distance.
    STEPS = 2000
    SETTINGS = (f"train.steps={STEPS}", "model.num_experts=16",
                "log.eval_every=250", "log.routing=false",
                "log.digests_every=250", "log.refresh_seconds=0")

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        # One run: its first arm only.
        cls.one = cls.write("one.toml", MESH.partition("[arms.mxfp8]")[0])

    @staticmethod
    def content(path):
        """All that a resumed run must repeat; /exchange tells of one mesh."""
        return {name: value for name, value in same_bits(path).items()
                if not name.startswith(("exchange", "ranks"))}

    def start(self, processes, *more):
        return subprocess.Popen(
            [*self.command(processes, "run", self.one, "job", *self.SETTINGS),
             *more],
            env=self.environment(), cwd=self.folder, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8",
            start_new_session=True)

    def recorded_steps(self):
        try:
            with h5py.File(self.folder / "job" / "bf16-seed1.partial.h5") as log:
                return len(log["steps/step"])
        except (OSError, KeyError):  # not yet
            return 0

    def interrupt(self, processes, after, *more):
        """Ends a job by SIGTERM at its last process once `after` steps are on
        disk; returns how many there are in the end."""
        job = self.start(processes, *more)
        try:
            end = time.monotonic() + 120
            while self.recorded_steps() < after:
                self.assertIsNone(job.poll(), "the job ended early")
                self.assertLess(time.monotonic(), end, "no steps appear")
                time.sleep(0.02)
            os.kill(self.pids("job")[processes - 1], signal.SIGTERM)
            output, errors = job.communicate(timeout=LAUNCHER_SECONDS)
        finally:
            for pid in self.pids("job").values():
                os.kill(pid, signal.SIGKILL)
            if job.poll() is None:
                os.killpg(job.pid, signal.SIGKILL)
                job.communicate()
        self.assertEqual(job.returncode, INTERRUPTED, output + errors)
        self.assertEqual(self.files("job"),
                         ["bf16-seed1.checkpoints", "bf16-seed1.journal",
                          "bf16-seed1.partial.h5"])
        return self.recorded_steps()

    def test_an_interrupted_job_goes_on_with_other_processes(self):
        whole = self.run_isoloss(
            "run", self.one, "--out", "whole", "--set=parallel.transport=loop",
            "--set=parallel.workers=1", *(f"--set={s}" for s in self.SETTINGS))
        self.assertEqual(whole.returncode, PASS, whole.stderr)

        first = self.interrupt(2, 5)
        second = self.interrupt(4, first + 5, "--resume")
        self.assertLess(second, self.STEPS)
        job = self.start(1, "--resume")
        _, errors = job.communicate(timeout=240)

        self.assertEqual(job.returncode, PASS, errors)
        self.assertEqual(self.files("job"), ["bf16-seed1.h5"])
        path = self.folder / "job" / "bf16-seed1.h5"
        with h5py.File(path) as log:
            self.assertEqual(log.attrs["processes"], 1)
            kinds = list(log["events/kind"].asstr())
        self.assertEqual([kind for kind in kinds if kind != "cost"],
                         ["start", *["checkpoint", "interrupt", "resume"] * 2,
                          "finish"])
        expected = self.content(self.folder / "whole" / "bf16-seed1.h5")
        found = self.content(path)
        self.assertEqual(found.keys(), expected.keys())
        for name, value in found.items():
            self.assertEqual(value, expected[name], name)


if __name__ == "__main__":
    unittest.main()
