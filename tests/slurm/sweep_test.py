"""Sweeps of `isoloss submit` as job arrays: whatever happens to nodes and processes, logs and verdict are
those of one machine.

Runs inside of `tools/dev/slurm`.
"""

import json
import os
import pathlib
import re
import signal
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "cli"))
import cluster
from cluster import call, send, wait_until
from faults_test import EXPERIMENT as SHARED
from program import PASS, TINY, ProgramTest, same_bits

SEEDS = [1, 2, 3, 4, 5, 6, 7, 8]
# Each of the 16 runs takes a few seconds, so that a node dies in the middle of some.
ARRAY = (TINY.replace("steps = 20", "steps = 900").replace("seeds = [1, 2]", f"seeds = {SEEDS}")
         .replace("[log]", "[log]\ncheckpoint_every = 50"))
# Two arms that 1 or 2 processes can share.
SHARED = SHARED.replace("[arms.mxfp8]", '[arms.bf16]\nrecipe = "bf16"\n[arms.mxfp8]').replace(
    "seeds = [1]", "seeds = [1, 2]")
# Of a verdict, what tells when and how the runs were made.
CIRCUMSTANCES = re.compile("seconds|_per_s$|_per_second$|created")


def told(verdict):
    """A verdict without times and paths."""
    if isinstance(verdict, dict):
        return {key: told(value) for key, value in verdict.items()
                if not CIRCUMSTANCES.search(key)}
    if isinstance(verdict, list):
        return [told(value) for value in verdict]
    if isinstance(verdict, str):
        return re.sub(r"\S*/", "", verdict)
    return verdict


@unittest.skipUnless(cluster.FOLDER.exists(), "not inside of tools/dev/slurm")
class Sweeps(ProgramTest):
    maxDiff = None

    def setUp(self):
        cluster.restore()

    def submit(self, experiment, out, *options, command=()):
        result = self.run_isoloss("submit", experiment, "--engine", "slurm", *options, "--", "--out", out,
                                  "--no-oracle", *command)
        self.assertEqual(result.returncode, PASS, result.stderr)
        return re.findall(r"(?:array|job) (\d+)", result.stdout)

    def wait_for(self, jobs):
        def states():
            return {job: set(re.findall(r"JobState=(\w+)", call("scontrol", "show", "job", job))) for job in jobs}

        def ended():
            return all(names <= {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL"}
                       for names in states().values())
        wait_until(ended, lambda: f"{states()} {call('squeue')}")
        return states()

    def logs_of(self, out):
        return "".join(f"==> {path.name}\n{path.read_text(errors='replace')}\n"
                       for path in sorted((self.folder / out / "sweep/log").iterdir()))

    def assert_same_as_locally(self, experiment, out, arms, seeds, without=()):
        local = self.run_isoloss("verify", experiment, "--out", f"{out}-local", "--no-oracle")
        self.assertNotIn(local.returncode, (2, 3, 5), local.stderr)
        for arm in arms:
            for seed in seeds:
                mine, theirs = ({name: value for name, value in same_bits(
                    self.folder / folder / f"{arm}-seed{seed}.h5").items() if not name.startswith(without)}
                    for folder in (out, f"{out}-local"))
                self.assertEqual(mine.keys(), theirs.keys())
                for name in mine:
                    self.assertEqual(mine[name], theirs[name], f"{arm}-seed{seed}: {name}")
        mine, theirs = (told(json.loads((self.folder / folder / "verdict.json").read_text()))
                        for folder in (out, f"{out}-local"))
        # The experiment of processes that share a run names their transport.
        for verdict in (mine, theirs) if without else ():
            del verdict["experiment_digest"]
        self.assertEqual(mine, theirs)

    def test_a_node_that_dies_in_the_middle_changes_nothing(self):
        experiment = self.write("array.toml", ARRAY)
        jobs = self.submit(experiment, "array", "--elements", "16")
        folder = self.folder / "array"

        def some_are_done():
            return len(list(folder.glob("*.h5"))) >= 4 and len(list(folder.glob("*.journal"))) >= 2
        wait_until(some_are_done, lambda: self.logs_of("array"))
        # With everything that runs on it, as if its power had gone.
        send(cluster.on_node("n1"), signal.SIGKILL)
        states = self.wait_for(jobs)

        self.assertEqual(set().union(*states.values()), {"COMPLETED"}, self.logs_of("array"))
        # The node had work, which was begun again.
        self.assertIn("attempt 2", self.logs_of("array"))
        self.assert_same_as_locally(experiment, "array", ("bf16", "mxfp8"), SEEDS)

    def test_a_killed_process_of_two_comes_back_on_other_nodes(self):
        experiment = self.write("shared.toml", SHARED)
        jobs = self.submit(experiment, "shared", "--elements", "1", "--processes", "2")
        state = self.folder / "shared/sweep/state/1/attempt-1"
        journals = self.folder / "shared"

        def is_under_way():
            return (journals / "bf16-seed1.h5").exists() and any(journals.glob("*.journal"))
        wait_until(is_under_way, lambda: self.logs_of("shared"))
        victim = (state / "host.1").read_text().strip()
        send([int((state / "pid.1").read_text())], signal.SIGKILL)
        states = self.wait_for(jobs)

        # What the judge says of so few seeds is another matter.
        self.assertNotIn("unbound variable", self.logs_of("shared"))
        self.assertEqual(states[jobs[0]], {"COMPLETED"}, self.logs_of("shared"))
        attempts = re.findall(r"attempt (\d+): (\d+) processes on (\S+)\.",
                              (self.folder / "shared/sweep/log/element-1.txt").read_text())
        self.assertEqual(len(attempts), 2, self.logs_of("shared"))
        self.assertEqual(attempts[0][1], "2", attempts)
        self.assertNotIn(victim, call("scontrol", "show", "hostnames", attempts[1][2]).split(), attempts)
        self.assert_same_as_locally(experiment, "shared", ("bf16", "mxfp8"), (1, 2),
                                    ("exchange", "rank", "expert_data"))

    def test_a_second_call_makes_what_is_missing(self):
        experiment = self.write("again.toml", TINY)
        self.wait_for(self.submit(experiment, "again", "--elements", "4"))
        kept = (self.folder / "again/bf16-seed1.h5").stat().st_mtime_ns
        os.remove(self.folder / "again/mxfp8-seed2.h5")
        jobs = self.submit(experiment, "again", "--elements", "4")

        self.wait_for(jobs)
        self.assertEqual((self.folder / "again/sweep/elements.txt").read_text().split("\t")[0], "mxfp8-seed2")
        self.assertEqual((self.folder / "again/bf16-seed1.h5").stat().st_mtime_ns, kept)
        self.assertTrue((self.folder / "again/mxfp8-seed2.h5").exists())


if __name__ == "__main__":
    unittest.main()
