"""The simulation of tools/dev/cluster_plan.py, against sweeps whose course can be worked out."""

import pathlib
import re
import subprocess
import sys
import unittest

PROGRAM = pathlib.Path(__file__).resolve().parents[2] / "tools" / "dev" / "cluster_plan.py"
# Nothing is shared and nothing fails: every run takes 10 s, and its element 1 s more.
ALONE = {"spread": 0, "steps": 0, "fixed-seconds": 10, "start-seconds": 1, "start-rate": 1e9,
         "metadata-rate": 1e12, "node-mtbf-hours": 1e12, "nodes": 2, "cores": 2, "runs": 8}


def simulate(*flags, **changes):
    """What is printed, and its numbers by the first word of the line."""
    options = {**ALONE, **{name.replace("_", "-"): value for name, value in changes.items()}}
    done = subprocess.run(
        [sys.executable, PROGRAM, *flags, *(f"--{name}={value}" for name, value in options.items())],
        text=True, capture_output=True, check=False)
    lines = {line.split()[0]: [float(x) for x in re.findall(r"\d+(?:\.\d+)?", line)]
             for line in done.stdout.splitlines() if line.strip()}
    return done, lines


class ClusterPlan(unittest.TestCase):
    def makespan(self, **changes):
        done, lines = simulate(**changes)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return lines["makespan"][0]

    def test_four_cores_take_eight_runs_in_two_rounds(self):
        self.assertAlmostEqual(self.makespan(), 22, delta=0.1)
        # In elements of four two cores have nothing to do; of two, each element starts once.
        self.assertAlmostEqual(self.makespan(per_element=4), 41, delta=0.1)
        self.assertAlmostEqual(self.makespan(per_element=2), 21, delta=0.1)

    def test_busy_share_is_the_work_over_the_cores_time(self):
        _, lines = simulate()
        self.assertAlmostEqual(lines["busy"][0], 100 * 80 / (4 * 22), delta=0.1)

    def test_a_slow_scheduler_starts_one_after_another(self):
        # The last of 8 starts is due 8 x 20 s after the submission.
        self.assertAlmostEqual(self.makespan(start_rate=0.05), 8 * 20 + 11, delta=0.1)

    def test_a_slow_metadata_server_answers_one_after_another(self):
        # Each run asks for 10 + 10 operations, 1 a second: 8 runs keep it busy for 160 s, and
        # the first request comes after 1 s. It may idle while runs train: 10 s in each round.
        changes = {"begin_operations": 10, "end_operations": 10, "metadata_rate": 1}
        makespan = self.makespan(**changes)
        self.assertGreaterEqual(makespan, 161)
        self.assertLessEqual(makespan, 161 + 2 * 11)
        done, _ = simulate(**changes)
        self.assertIn("what bounds it        metadata", done.stdout)

    def test_partial_logs_ask_the_metadata_server_too(self):
        # Every 2 s but the last, before it ends: 4 of 5 operations for each of 8 runs.
        changes = {"refresh_seconds": 2, "begin_operations": 0, "end_operations": 0, "scans": 0}
        _, lines = simulate(refresh_operations=5, **changes)
        self.assertAlmostEqual(lines["metadata"][0], 8 * 4 * 5 / 22, delta=0.5)
        # One that takes 1 s is not made anew before 20 s have passed.
        self.assertAlmostEqual(
            self.makespan(nodes=1, cores=1, runs=1, refresh_operations=5,
                          **{**changes, "metadata_rate": 5}), 12, delta=0.1)

    def test_scans_of_the_folder_grow_with_what_lies_in_it(self):
        # Runs are begun one after another: the i-th reads i entries.
        quiet = {"nodes": 1, "cores": 1, "entries_per_operation": 1, "begin_operations": 0,
                 "end_operations": 0, "metadata_rate": 1}
        self.assertAlmostEqual(self.makespan(scans=0, **quiet), 88, delta=0.1)
        self.assertAlmostEqual(self.makespan(scans=1, **quiet), 88 + 28, delta=0.1)

    def test_what_the_scheduler_does_not_take_waits_until_ended_jobs_are_forgotten(self):
        # Two arrays and the judge's job would be nine.
        changes = {"array_size": 4, "job_limit": 8, "job_age": 300, "cores": 4}
        done, lines = simulate(**changes)
        self.assertEqual(lines["array"], [2, 8, 2])
        # The first four end after 11 s, and count for 300 s more.
        self.assertAlmostEqual(lines["makespan"][0], 11 + 300 + 11, delta=0.1)
        self.assertIn("held back by the job limit 300.0 s", done.stdout)

    def test_failed_nodes_cost_time_and_lose_no_run(self):
        # Some 20 failures: 100 rounds of 11 s on each of 4 nodes, one failure in 220 s.
        changes = {"nodes": 4, "cores": 1, "runs": 400, "node_mtbf_hours": 220 / 3600,
                   "node_down_seconds": 5}
        done, lines = simulate(**changes)
        self.assertEqual(done.returncode, 0)
        failures = lines["failed"][0]
        self.assertGreater(failures, 5)
        self.assertGreater(lines["makespan"][0], 1100)
        # Each failure costs its node less than a run, its start and the time that it is away.
        self.assertLess(lines["makespan"][0], 1100 + failures * (11 + 5))
        # Checkpoints keep more.
        _, kept = simulate(checkpoint_seconds=1, checkpoint_operations=0, **changes)
        self.assertLess(kept["failed"][1], lines["failed"][1])

    def test_the_judge_reads_one_log_after_another(self):
        changes = {"runs": 1000, "judge_log_seconds": 0.02, "judge_fork_seconds": 0.01,
                   "judge_fork_seconds_per_gigabyte": 0.1, "judge_log_megabytes": 2}
        _, lines = simulate(**changes)
        # 2 GB in the end, 1 GB on the mean: 1000 x (0.02 + 0.01 + 0.1).
        self.assertEqual(lines["judge"], [130, 2])

    def test_impossible_options_are_refused(self):
        for changes in ({"nodes": 0}, {"metadata_rate": 0}, {"spread": -1}, {"start_seconds": "nan"},
                        {"array_size": 20, "job_limit": 10}):
            done, _ = simulate(**changes)
            self.assertEqual((done.returncode, done.stdout), (2, ""), changes)


if __name__ == "__main__":
    unittest.main()
