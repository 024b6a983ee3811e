"""isoloss lab doctor --job names the sick nodes of a job before its first step."""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time

from program import BINARY, ENVIRONMENT, FAIL, PASS, USAGE, ProgramTest

# What each process is started through: it has a node's name of its own, and leaves its number.
NODE = """\
rank=${OMPI_COMM_WORLD_RANK:-$PMI_RANK}
export SLURMD_NODENAME=n$rank
echo $$ >pid.$rank
if [ "$rank" = "$SICK_RANK" ]; then
    if [ -n "$SICK_MOUNT" ]; then
        exec unshare -m sh -c 'mount -t tmpfs -o size=64k none "$SICK_MOUNT" && exec "$@"' sh "$@"
    fi
    export LD_PRELOAD=$SICK_PRELOAD
fi
exec "$@"
"""


def processor_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class DoctorOfAJob(ProgramTest):
    def setUp(self):
        self.sick_file = self.folder / "sick"
        for path in (self.sick_file, *self.folder.glob("pid.*")):
            path.unlink(missing_ok=True)

    def launchers(self):
        if "ISOLOSS_NO_LAUNCHER" in os.environ:
            self.skipTest("this build does not run under launchers")
        modules = pathlib.Path(BINARY).parent.parent / "lib" / "isoloss"
        wanted = os.environ.get("ISOLOSS_LAUNCHERS", "openmpi mpich").split()
        found = [mpi for mpi in wanted
                 if shutil.which(f"mpirun.{mpi}") and (modules / f"isoloss_mpi_{mpi}.so").exists()]
        if not found:
            self.skipTest("no launcher that this build has a module for")
        return found

    def start(self, mpi, processes, *arguments, **sick):
        options = ["--oversubscribe"] if mpi == "openmpi" else []
        environment = {**ENVIRONMENT, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                       "UCX_LOG_LEVEL": "fatal", "ASAN_OPTIONS": "detect_leaks=0", **sick}
        return subprocess.Popen(
            [f"mpirun.{mpi}", *options, "-n", str(processes), "sh", self.write("node.sh", NODE), BINARY, "doctor",
             "--job", self.tiny, "--sick-file", self.sick_file, *map(str, arguments)],
            cwd=self.folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True)

    def finish(self, job):
        try:
            output, errors = job.communicate(timeout=200)
        finally:
            job.kill()
        return job.returncode, output, errors

    def sick_nodes(self):
        """Names in the file, and what they are there for."""
        lines = self.sick_file.read_text().splitlines()
        pairs = [line.split("\t") for line in lines]
        return {node for node, _ in pairs}, "\n".join(reason for _, reason in pairs)

    def test_healthy_nodes_pass_and_nothing_is_left(self):
        for mpi in self.launchers():
            before = sorted(path.name for path in self.folder.iterdir() if not path.name.startswith("pid."))
            code, output, errors = self.finish(self.start(mpi, 2, "--out", "results"))

            self.assertEqual(code, PASS, output + errors)
            self.assertNotIn("sick", output + errors)
            rows = re.findall(r"(?m)^ +(\d)  (n\d) +([\d.e+ -]+) healthy$",
                              re.sub(r"\x1b\[\d*m", "", output))
            self.assertEqual([row[:2] for row in rows], [("0", "n0"), ("1", "n1")], output)
            for row in rows:
                self.assertNotIn("-", [cell for cell in row[2].split()], "each part was measured")
            self.assertEqual(output.count("verdict"), 1, "one table")
            after = sorted(path.name for path in self.folder.iterdir() if not path.name.startswith("pid."))
            self.assertEqual(set(after) - set(before), {"node.sh"} - set(before))

    def test_the_node_that_computes_wrongly_is_named(self):
        library = os.environ.get("ISOLOSS_WRONG_ROUNDING")
        if not library:
            self.skipTest("ISOLOSS_WRONG_ROUNDING, which CTest sets, names no library")
        for mpi in self.launchers():
            self.sick_file.unlink(missing_ok=True)
            code, output, errors = self.finish(
                self.start(mpi, 2, "--json", SICK_RANK="1", SICK_PRELOAD=library))

            self.assertEqual(code, FAIL, output + errors)
            found = json.loads(output)
            self.assertEqual({sick["node"] for sick in found["sick"]}, {"n1"})
            self.assertFalse(found["healthy"])
            self.assertEqual(found["exit_code"], FAIL)
            self.assertEqual(found["processes"][0]["problems"], [])
            nodes, reasons = self.sick_nodes()
            self.assertEqual(nodes, {"n1"})
            self.assertRegex(reasons, r"process 1: \d+ of \d+ trainings differ from the known bits")
            self.assertRegex(errors, r"(?m)^ ?sick: n1: process 1: \d+ of \d+ trainings")

    def test_the_node_whose_link_damages_bytes_is_named(self):
        library = os.environ.get("ISOLOSS_WRONG_LINK")
        if not library:
            self.skipTest("ISOLOSS_WRONG_LINK, which CTest sets, names no library")
        for mpi in self.launchers():
            self.sick_file.unlink(missing_ok=True)
            code, output, errors = self.finish(self.start(mpi, 3, SICK_RANK="1", SICK_PRELOAD=library))

            self.assertEqual(code, FAIL, output + errors)
            nodes, reasons = self.sick_nodes()
            self.assertEqual(nodes, {"n1"})
            self.assertRegex(reasons, r"what process 1 sent to process \d was damaged on the way: payload CRC32C")

    def test_the_node_with_a_full_disk_is_named(self):
        if subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode:
            self.skipTest("this user may not mount a file system")
        (self.folder / "small").mkdir(exist_ok=True)
        for mpi in self.launchers():
            self.sick_file.unlink(missing_ok=True)
            code, output, errors = self.finish(
                self.start(mpi, 2, "--out", "small", SICK_RANK="1", SICK_MOUNT=str(self.folder / "small")))

            self.assertEqual(code, FAIL, output + errors)
            nodes, reasons = self.sick_nodes()
            self.assertEqual(nodes, {"n1"})
            self.assertRegex(reasons, r"a file of 8 MiB can't be written \(No space left on device\) in .*small")

    def test_a_node_that_hangs_is_named_by_the_others(self):
        for mpi in self.launchers():
            for stopped in (1, 0):
                self.setUp()
                job = self.start(mpi, 3, "--set", "parallel.deadline_seconds=5")
                pid_file = self.folder / f"pid.{stopped}"
                while not pid_file.exists() or not pid_file.read_text():
                    self.assertIsNone(job.poll())
                    time.sleep(0.02)
                pid = int(pid_file.read_text())
                # MPI has started and names were told: arithmetic takes more than all before it.
                while processor_seconds(pid) < 1:
                    time.sleep(0.02)
                os.kill(pid, signal.SIGSTOP)
                try:
                    code, output, errors = self.finish(job)
                finally:
                    try:
                        os.kill(pid, signal.SIGKILL)
                    except ProcessLookupError:
                        pass

                self.assertEqual(code, FAIL, output + errors)
                nodes, reasons = self.sick_nodes()
                self.assertEqual(nodes, {f"n{stopped}"}, (mpi, stopped, reasons))
                self.assertRegex(reasons, rf"process {stopped} has not (answered|reported to) process \d for \d+ s")

    def test_one_process_needs_no_launcher(self):
        healthy = self.run_isoloss("doctor", "--job", self.tiny, "--json")
        self.assertEqual(healthy.returncode, PASS, healthy.stdout + healthy.stderr)
        self.assertEqual(len(json.loads(healthy.stdout)["processes"]), 1)

        # Half a tebibyte of memory, and as much of checkpoints.
        large = self.run_isoloss("doctor", "--job", self.tiny, "--set", "model.moe_hidden_dim=50000",
                                 "--set", "model.dim=50000")
        self.assertEqual(large.returncode, FAIL, large.stderr)
        for problem in (r"of memory are available, but 1 of this job's processes need at least \d+",
                        r"are free, but the results need up to \d+"):
            self.assertRegex(large.stderr, rf"(?m)^sick: .*: process 0: .*{problem}")

    def test_options_of_a_job_need_one(self):
        for option in ("--set=train.steps=3", "--sick-file=x"):
            result = self.run_isoloss("doctor", option)
            self.assertEqual(result.returncode, USAGE)
            self.assertIn("--job", result.stderr)
