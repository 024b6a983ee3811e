"""The transport `mpi` under the launcher that the environment variable MPI names.

Times are limits on hanging, not measurements.
"""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import time
import unittest
import unittest.mock

MPI = os.environ["MPI"]
PROGRAM = os.environ["PROGRAM"]
MODULE = pathlib.Path(os.environ["MODULES"]) / f"isoloss_mpi_{MPI}.so"
LAUNCHER = shutil.which(f"mpirun.{MPI}")

# What a launcher needs to clean up after a job that ended badly.
LAUNCHER_SECONDS = 60
# What processes may add to the deadline that end by themselves: some 3 s, and a busy machine. Far below the
# 60 s that MPI_Finalize may take.
PROCESS_SECONDS = 30


def command(processes, *arguments):
    options = ["--oversubscribe"] if MPI == "openmpi" else []
    return [LAUNCHER, *options, "-n", str(processes), PROGRAM, *map(str, arguments)]


def environment(**more):
    allowed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return {**os.environ, **allowed, **more}


def runs(pid):
    """The state of a process that has not ended; a zombie has."""
    try:
        state = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return None
    return None if state in "ZX" else state


@unittest.skipUnless(LAUNCHER, f"mpirun.{MPI} is not installed")
@unittest.skipUnless(MODULE.exists(), f"this build has no module for {MPI}")
class MpiTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def run_job(self, processes, what, deadline=60, **more):
        return subprocess.run(command(processes, what, deadline, self.folder),
                              env=environment(**more), capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, timeout=120)

    def reasons(self):
        return {path.name: path.read_text() for path in self.folder.glob("abort-process*.txt")}

    def test_any_number_of_processes_has_the_same_digest(self):
        outputs = set()
        for processes in (1, 2, 4):
            job = self.run_job(processes, "digest")
            self.assertEqual(job.returncode, 0, job.stderr)
            self.assertRegex(job.stdout, r"^digest [0-9a-f]{16}\n$")
            outputs.add(job.stdout)
        self.assertEqual(len(outputs), 1, outputs)
        self.assertEqual(self.reasons(), {})

    def test_ranks_that_do_not_divide_evenly_are_refused(self):
        job = self.run_job(3, "digest")
        self.assertNotEqual(job.returncode, 0)
        self.assertIn("8 ranks do not divide evenly among 3 processes", job.stderr)

    def test_a_transport_of_one_process_refuses_several(self):
        job = self.run_job(2, "unequal")
        self.assertNotEqual(job.returncode, 0)
        self.assertIn("started 2 processes", job.stderr)

    def test_the_wrong_library_is_noticed(self):
        other = "mpich" if MPI == "openmpi" else "openmpi"
        if not MODULE.with_name(f"isoloss_mpi_{other}.so").exists():
            self.skipTest(f"this build has no module for {other}")
        job = self.run_job(2, "digest", ISOLOSS_MPI=other)
        self.assertNotEqual(job.returncode, 0)
        self.assertNotIn("digest", job.stdout)

    def test_a_skipped_operation_is_named_in_the_reason_files(self):
        job = self.run_job(2, "mismatch")
        self.assertNotEqual(job.returncode, 0)
        reasons = self.reasons()
        self.assertTrue(reasons, job.stderr)
        for reason in reasons.values():
            self.assertIn("step 3, dispatch, MoE layer 1", reason)
            self.assertIn("step 3, combine, MoE layer 1", reason)

    def ended_without_its_launcher(self, what, interrupt, deadline=3, prefix=()):
        """Starts two processes, then calls `interrupt(job)`. Both must end though nobody ends them.

        Returns the seconds until they have.
        """
        job = subprocess.Popen([*prefix, *command(2, what, deadline, self.folder)], env=environment(),
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.DEVNULL, text=True, start_new_session=True)
        pids = []
        try:
            while len(pids) < 2:
                line = job.stdout.readline()
                self.assertTrue(line, "the job ended early")
                pids += re.findall(r"process \d pid (\d+)$", line.rstrip("\n"))
            interrupt(job)
            begin = time.monotonic()
            while any(runs(pid) for pid in pids):
                self.assertLess(time.monotonic() - begin, deadline + PROCESS_SECONDS,
                                [runs(pid) for pid in pids])
                time.sleep(0.05)
            return time.monotonic() - begin
        finally:
            for pid in (*map(int, pids), job.pid):
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            job.communicate()

    def reasons_without_launcher(self):
        reasons = self.reasons()
        # MPICH has a proxy beside the stopped launcher. Once one process has ended, the proxy may kill the other
        # one before its own deadline.
        self.assertGreaterEqual(len(reasons), 1 if MPI == "mpich" else 2)
        return reasons

    def test_processes_end_though_the_launcher_is_stopped(self):
        self.ended_without_its_launcher("pause", lambda job: os.kill(job.pid, signal.SIGSTOP))
        for file, reason in self.reasons_without_launcher().items():
            number = file.removeprefix("abort-process").removesuffix(".txt")
            self.assertIn(f"process {number}: MPI_Finalize has not returned", reason)
            self.assertRegex(reason, r"The launcher \(process \d+, mpi(run|exec).*\) is stopped")

    def test_a_process_that_prints_to_a_stopped_launcher_ends(self):
        self.ended_without_its_launcher("print", lambda job: os.kill(job.pid, signal.SIGSTOP))
        expected = {
            "abort-process0.txt": ("blocked output", "process 1 says step "),
            "abort-process1.txt": ("for process 0",),
        }
        for file, reason in self.reasons_without_launcher().items():
            for part in expected[file]:
                self.assertIn(part, reason)

    def test_both_processes_name_each_other_if_their_link_goes_down(self):
        # A network of its own, without any other interface. Open MPI's processes of one machine would
        # else share memory.
        if subprocess.run(["unshare", "-n", "ip", "link", "set", "lo", "up"], capture_output=True).returncode:
            self.skipTest("this user may not make a network namespace")
        more = {"OMPI_MCA_btl": "tcp,self", "OMPI_MCA_pml": "ob1", "OMPI_MCA_btl_tcp_if_include": "lo",
                "MPIR_CVAR_NOLOCAL": "1", "UCX_TLS": "tcp,self"}
        surrounding = unittest.mock.patch.dict(os.environ, more)
        surrounding.start()
        self.addCleanup(surrounding.stop)
        self.ended_without_its_launcher(
            "forever", lambda job: subprocess.run(
                ["nsenter", "-t", str(job.pid), "-n", "ip", "link", "set", "lo", "down"], check=True),
            prefix=("unshare", "-n", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"))
        reasons = self.reasons()
        self.assertRegex(reasons["abort-process0.txt"], r"step \d+, .* process 0 waited .* for process 1")
        self.assertRegex(reasons["abort-process1.txt"], r"step \d+, .* process 1 waited .* for process 0")

    def interrupted_job(self, signal_number):
        """Sends process 2 of 4 a signal; returns the job's standard error once it is over."""
        # Processes of a busy machine that run are not later than this.
        deadline = 8
        job = subprocess.Popen(command(4, "forever", deadline, self.folder), env=environment(),
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True, start_new_session=True)
        pids = {}
        try:
            while len(pids) < 4:
                line = job.stdout.readline()
                self.assertTrue(line, "the job ended early")
                process, pid = re.fullmatch(r"process (\d) pid (\d+)\n", line).groups()
                pids[int(process)] = int(pid)
            os.kill(pids[2], signal_number)
            _, errors = job.communicate(timeout=deadline + LAUNCHER_SECONDS)
        finally:
            for pid in pids.values():
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            if job.poll() is None:
                os.killpg(job.pid, signal.SIGKILL)
                job.communicate()
        self.assertNotEqual(job.returncode, 0)
        return errors

    def test_a_stopped_process_ends_the_job_with_a_reason(self):
        self.interrupted_job(signal.SIGSTOP)
        reasons = self.reasons()
        self.assertTrue(reasons)
        # A launcher may continue the process to end it; then it has the others' reason.
        for reason in reasons.values():
            # On a busy machine others may be late, too.
            self.assertRegex(reason, r"for (process \d and )*process 2")

    def test_a_killed_process_ends_the_job(self):
        # The launcher may be faster than the deadline; then nobody is left to give a reason.
        self.interrupted_job(signal.SIGKILL)
        self.assertNotIn("abort-process2.txt", self.reasons())


if __name__ == "__main__":
    unittest.main()
