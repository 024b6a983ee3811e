"""isoloss submit: the same results by many processes, what is missing alone, and scripts that can be read.

Slurm itself is in tests/slurm.
"""

import json
import os
import signal
import subprocess
import time
import unittest

from program import BINARY, ENVIRONMENT, INVALID, PASS, TINY, USAGE, ProgramTest, same_bits
from sealed_log import edited_log

RUNS = [f"{arm}-seed{seed}" for seed in (1, 2) for arm in ("bf16", "mxfp8")]


# A Slurm of one node, whose jobs run when they are submitted: sbatch starts each element of an array in turn.
SBATCH = """\
#!/bin/bash
array=1
while [ $# -gt 0 ]; do
  case $1 in
    --array=*) array=${1#--array=1-}; array=${array%%%*} ;;
    --output=*) output=${1#--output=} ;;
    -*) ;;
    *) break ;;
  esac
  shift
done
id=$(($(cat id 2>/dev/null || echo 0) + 1)); echo $id >id
for ((task = 1; task <= array; ++task)); do
  SLURM_JOB_ID=$id SLURM_ARRAY_JOB_ID=$id SLURM_ARRAY_TASK_ID=$task SLURM_NTASKS=1 SLURM_JOB_NODELIST=n0 \
    SLURMD_NODENAME=n0 SLURM_JOB_PARTITION=p bash "$@" >>"${output//%a/$task}" 2>&1 </dev/null
  echo "$id $task $?" >>codes
done
echo $id
"""
SRUN = """\
#!/bin/bash
while [[ $1 == -* ]]; do shift; done
exec "$@"
"""
SCONTROL = """\
#!/bin/bash
[ "$1 $2" != "show config" ] || echo "MaxArraySize            = 1001"
echo "scontrol $*" >>scontrol.log
echo "JobId=1 JobState=RUNNING Reason=None Restarts=0 x"
[[ $1 != requeue* ]] || kill -TERM 0
"""


class SubmitTest(ProgramTest):
    def fake_slurm(self):
        folder = self.folder / "slurm"
        folder.mkdir(exist_ok=True)
        for name, text in (("sbatch", SBATCH), ("srun", SRUN), ("scontrol", SCONTROL)):
            (folder / name).write_text(text)
            (folder / name).chmod(0o755)
        return {"PATH": f"{folder}:{os.environ['PATH']}"}

    def test_the_scripts_of_slurm_do_what_one_process_does(self):
        environment = self.fake_slurm()
        (self.folder / "a b").mkdir()
        (self.folder / "a b/it's.toml").write_text(TINY)
        command = ("submit", "a b/it's.toml", "--engine", "slurm", "--elements", "3", "--", "--out", "fake",
                   "--no-oracle", "--set", "train.seeds=[1, 2]")
        result = self.run_isoloss(*command, environment=environment)
        self.assertEqual(result.returncode, PASS, result.stderr)
        logs = "".join(path.read_text() for path in sorted((self.folder / "fake/sweep/log").iterdir()))
        # The judge has a code of its own.
        self.assertEqual([line.split()[2] for line in (self.folder / "codes").read_text().splitlines()][:3],
                         ["0"] * 3, logs)
        self.run_isoloss("verify", self.experiment, "--out", "alone", "--no-oracle")
        self.assert_same_logs("alone", "fake")
        self.assertIn("1 of 1 processes are healthy", logs)
        self.assertTrue((self.folder / "fake/verdict.json").exists(), logs)

    def test_a_folders_name_is_no_command(self):
        out = "o$(touch made)'b"
        result = self.submit("--elements", "2", command=("--out", out, "--no-oracle"))
        self.assertTrue((self.folder / out / "verdict.json").exists(), result.stderr)
        os.remove(self.folder / out / "bf16-seed1.h5")
        (self.folder / out / "bf16-seed1.h5").mkdir()
        os.remove(self.folder / out / "mxfp8-seed1.h5")
        self.submit("--elements", "1", command=("--out", out, "--no-oracle"))
        self.assertFalse((self.folder / "made").exists())

    def test_a_folders_name_commands_no_terminal(self):
        for engine in ("local", "slurm"):
            result = self.submit("--dry-run", engine=engine, command=("--out", "a\x1b[2J", "--no-oracle"))
            self.assertIn("a\\x1b[2J", result.stderr)
            self.assertNotIn("\x1b", result.stdout + result.stderr)

    def setUp(self):
        self.experiment = self.write("tiny.toml", TINY)

    def submit(self, *arguments, engine="local", command=()):
        return self.run_isoloss("submit", self.experiment, "--engine", engine, *arguments, "--", *command)

    def assert_same_logs(self, one, other):
        for run in RUNS:
            self.assertTrue(same_bits(self.folder / one / f"{run}.h5") == same_bits(self.folder / other / f"{run}.h5"),
                            f"{run} of {one} and {other} differ")

    def test_local_and_make_leave_what_one_process_leaves(self):
        whole = self.run_isoloss("verify", self.experiment, "--out", "whole", "--no-oracle")
        for engine in ("local", "make"):
            with self.subTest(engine=engine):
                result = self.submit("--elements", "3", engine=engine, command=("--out", engine, "--no-oracle"))

                # make has a code of its own for what fails.
                self.assertEqual(result.returncode == PASS, whole.returncode == PASS)
                self.assertIn("of 3 is done", result.stdout)
                self.assert_same_logs("whole", engine)
                verdicts = [json.loads((self.folder / name / "verdict.json").read_text())
                            for name in ("whole", engine)]
                self.assertEqual(verdicts[0]["outcome"], verdicts[1]["outcome"])
                self.assertEqual(verdicts[0]["reading"]["headline"], verdicts[1]["reading"]["headline"])

    def test_a_second_call_makes_what_is_missing(self):
        self.submit("--elements", "4", command=("--out", "twice", "--no-oracle"))
        folder = self.folder / "twice"
        kept = {run: (folder / f"{run}.h5").stat().st_mtime_ns for run in RUNS}
        os.remove(folder / "mxfp8-seed1.h5")
        result = self.submit("--elements", "4", command=("--out", "twice", "--no-oracle"))

        self.assertIn("3 finished, 1 to be made by 1 processes", result.stderr.replace("\n", " "))
        self.assertEqual((folder / "sweep/elements.txt").read_text().split()[0], "mxfp8-seed1")
        for run in RUNS:
            if run != "mxfp8-seed1":
                self.assertEqual((folder / f"{run}.h5").stat().st_mtime_ns, kept[run])
        self.assertTrue((folder / "mxfp8-seed1.h5").exists())

    def test_what_was_killed_is_made_by_the_next_call(self):
        slow = self.write("slow.toml", TINY.replace("steps = 20", "steps = 400")
                          .replace("[log]", "[log]\ncheckpoint_every = 20"))
        command = [BINARY, "submit", slow, "--engine", "local", "--elements", "4", "--", "--out", "killed",
                   "--no-oracle"]
        sweep = subprocess.Popen(command, cwd=self.folder, env=ENVIRONMENT, stdout=subprocess.DEVNULL,
                                 stderr=subprocess.DEVNULL, start_new_session=True)
        folder = self.folder / "killed"
        end = time.monotonic() + 60
        while not any(file.stat().st_size > 15_000 for file in folder.glob("*.journal")):
            self.assertLess(time.monotonic(), end)
            self.assertIsNone(sweep.poll())
            time.sleep(0.02)
        os.killpg(sweep.pid, signal.SIGKILL)
        sweep.wait()
        self.assertFalse((folder / "verdict.json").exists())
        shown = self.run_isoloss("watch", "--once", "killed")
        self.assertIn("of 4 runs", shown.stdout + shown.stderr)
        subprocess.run(command, cwd=self.folder, env=ENVIRONMENT, capture_output=True, check=False)
        self.run_isoloss("verify", slow, "--out", "slow", "--no-oracle")

        self.assert_same_logs("slow", "killed")

    def test_a_dry_run_writes_nothing(self):
        for engine, words in (("slurm", ("#SBATCH --requeue", "sbatch --parsable --array=1-4", "--only")),
                              ("local", ("xargs -P",)), ("make", ("&:", "sweep/element.sh 4"))):
            with self.subTest(engine=engine):
                result = self.submit("--elements", "4", "--dry-run", engine=engine, command=("--out", "dry"))

                self.assertEqual(result.returncode, PASS, result.stderr)
                for word in words:
                    self.assertIn(word, result.stdout)
                self.assertFalse((self.folder / "dry").exists())

    def test_a_study_in_elements_is_the_study(self):
        options = ("--mode", "plain", "--seeds", "2")
        self.run_isoloss("stress", self.experiment, *options, "--out", "alone")
        dry = self.submit("--command", "stress", "--dry-run", command=(*options, "--out", "shared"))
        self.assertEqual(dry.returncode, PASS, dry.stderr)
        self.assertFalse((self.folder / "shared").exists())
        self.submit("--command", "stress", "--elements", "3", command=(*options, "--out", "shared"))

        self.assertEqual(json.loads((self.folder / "alone/stress.json").read_text()),
                         json.loads((self.folder / "shared/stress.json").read_text()))

    def test_an_ensemble_in_elements_is_the_ensemble(self):
        options = ("--runs", "3", "--steps", "5", "--arm", "mxfp8")
        self.run_isoloss("ensemble", "build", self.experiment, *options, "--out", "alone.h5")
        result = self.submit("--command", "ensemble build", "--elements", "2", command=(*options, "--out", "shared.h5"))

        self.assertEqual(result.returncode, PASS, result.stderr)
        self.assertIn("3 of them kept from an earlier call", result.stdout)
        again = self.submit("--command", "ensemble build", "--elements", "2", command=(*options, "--out", "shared.h5"))
        self.assertIn("3 finished, 0 to be made", again.stderr.replace("\n", " "))
        self.assertEqual(same_bits(self.folder / "alone.h5"), same_bits(self.folder / "shared.h5"))

    def test_judges_only_what_is_whole(self):
        listed = self.run_isoloss("verify", self.experiment, "--out", "part", "--list-runs", "list.json")
        self.assertEqual(listed.returncode, PASS, listed.stderr)
        runs = json.loads((self.folder / "list.json").read_text())["runs"]
        self.assertEqual([run["name"] for run in runs], RUNS)
        self.run_isoloss("verify", self.experiment, "--out", "part", "--only", ",".join(RUNS[:3]))

        result = self.run_isoloss("verify", self.experiment, "--out", "part", "--no-train")
        self.assert_refused(result, "1 of 4 runs", "mxfp8-seed2", "isoloss gate")
        self.assertFalse((self.folder / "part/looks.json").exists())

    def test_a_machine_that_computes_otherwise_is_named(self):
        self.submit("--elements", "2", command=("--out", "mixed", "--no-oracle"))
        log = self.folder / "mixed/mxfp8-seed2.h5"
        with edited_log(log) as content:
            content.attrs["numerics_digest"] = "0123456789abcdef"
            content.attrs["cpu_target"] = "OTHER"
        result = self.run_isoloss("gate", "mixed")
        self.assertEqual(result.returncode, INVALID, result.stdout)
        for word in ("INVALID", "mxfp8-seed2.h5", "0123456789abcdef", "OTHER"):
            self.assertIn(word, result.stdout.replace("\n", ""))

        # A sweep does not go on with it either.
        result = self.submit(command=("--out", "mixed", "--no-oracle"))
        self.assertEqual(result.returncode, INVALID)
        self.assertIn("0123456789abcdef", result.stderr)

    def test_says_what_is_wrong(self):
        for arguments, words in (
                (dict(command=("--only", "x")), ("--only", "Leave it out")),
                (dict(command=("--seeds", "+2")), ("--seeds +2", "list")),
                (dict(command=("--seeds=+2",)), ("--seeds=+2", "list")),
                (dict(command=("--frobnicate",)), ("could not list its runs", "--frobnicate")),
                (dict(command=("--set", "train.steps=0")), ("could not list its runs", "train.steps"))):
            with self.subTest(**arguments):
                self.assert_refused(self.submit(**arguments), *words)
        self.assert_refused(self.submit("--sbatch", "--partition=p"), "--engine slurm")
        self.assert_refused(self.submit("--sbatch", "partition=p", engine="slurm"), "partition=p", "dash")
        for option, line in (("--sbatch", "--comment=nightly\ntouch made"), ("--setup", "true\rtouch made")):
            self.assert_refused(self.submit(f"{option}={line}", engine="slurm"), option, "has a line end at character")
        odd = self.submit(engine="make", command=("--out", "a:b"))
        self.assertIn("the character `:`", odd.stderr)
        self.assertFalse((self.folder / "a:b/sweep/runs.json").exists())
        self.assert_refused(self.submit("--processes", "2"), "--processes is 2", "--engine slurm")
        self.assert_refused(self.submit("--processes", "2", "--command", "stress", engine="slurm"), "one process")
        self.assert_refused(self.run_isoloss("submit", self.experiment, "--engine", "pbs"), "pbs", "slurm",
                            code=USAGE)
        self.assert_refused(self.run_isoloss("run", self.experiment, "--only", "bf16-seed9"),
                            "--only bf16-seed9", "Did you mean `bf16-seed1`?")
        result = self.run_isoloss("run", self.experiment, environment={"ISOLOSS_PROCESSORS": "many"})
        self.assert_refused(result, "ISOLOSS_PROCESSORS", "many", code=INVALID)


if __name__ == "__main__":
    unittest.main()
