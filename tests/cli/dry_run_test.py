"""--dry-run refuses what the command itself would refuse, in the same words,
trains nothing, and says what the runs take."""

import re
import resource
import time

from bad_experiment_test import FILES
from program import ProgramTest, INTERRUPTED, INVALID, PASS, TINY
from terminal import TerminalProgram

ONE_ARM = TINY.replace('[arms.mxfp8]\nrecipe = "mxfp8_rceil"\n', "")

UNITS = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


class DryRun(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.write("files.toml", FILES)
        cls.write("one_arm.toml", ONE_ARM)
        cls.write("text/ok.txt", "All happy families are alike. " * 100)
        cls.write("a_file", "no folder")
        cls.write("begun/bf16-seed1.journal", "")

    def assert_refused_alike(self, *arguments, words=()):
        """By the dry run and by the real one."""
        before = sorted(self.folder.rglob("*"))
        if "--out" not in arguments:
            arguments = (*arguments, "--out", "out")

        dry = self.run_isoloss(*arguments, "--dry-run")
        after = sorted(self.folder.rglob("*"))
        real = self.run_isoloss(*arguments)

        self.assert_refused(dry, *words, code=INVALID)
        self.assertEqual(dry.stderr, real.stderr)
        self.assertEqual(dry.returncode, real.returncode)
        self.assertEqual(after, before)
        # A start that failed leaves no empty folder.
        self.assertEqual(sorted(self.folder.rglob("*")), before)

    def test_what_training_refuses(self):
        for command in ("run", "verify"):
            for arguments, words in (
                    (["missing.toml"], ["missing.toml"]),
                    (["tiny.toml", "--set", "train.stepz=5"], ["train.stepz"]),
                    (["files.toml", "--set", 'data.paths=["nowhere"]'],
                     ["nowhere", "No such file"]),
                    (["files.toml", "--set", "log.eval_sequences=1000"],
                     ["held-out share"]),
                    # 26e9 parameters of 16 bytes
                    (["tiny.toml", "--set", "model.dense_hidden_dim=1048576",
                      "--set", "model.dim=8192"], ["GiB", "this machine has"]),
                    (["tiny.toml", "--set", "parallel.transport=mpi"],
                     ["`mpi`", "mpirun"]),
                    (["tiny.toml", "--set", "log.dump_tensors=['nothing']"],
                     ["log.dump_tensors", "`nothing`"]),
                    (["tiny.toml", "--set", "log.statistics_tensors=['nought']"],
                     ["log.statistics_tensors", "`nought`"]),
                    (["tiny.toml", "--set", "arms.mxfp8.include=['nothing']"],
                     ["arms.mxfp8", "`nothing`"]),
                    (["tiny.toml", "--set", "routing.mode=replay", "--set",
                      "routing.replay=none.h5"], ["none.h5"]),
                    (["tiny.toml", "--out", "a_file"], ["a_file"]),
                    (["tiny.toml", "--out", "a_file/below"], ["a_file"]),
                    (["tiny.toml", "--out", "begun"], ["unfinished"])):
                with self.subTest(command=command, arguments=arguments):
                    self.assert_refused_alike(command, *arguments, words=words)

    def test_what_only_run_refuses(self):
        for arguments, words in (
                (["tiny.toml", "--arm", "bf61"], ["`bf61`"]),
                (["tiny.toml", "--dump", "nothing"], ["`nothing`"]),
                (["tiny.toml", "--dump", "wq_", "--dump-steps", "21"], ["21"])):
            with self.subTest(arguments=arguments):
                self.assert_refused_alike("run", *arguments, words=words)

    def test_what_only_verify_refuses(self):
        for arguments, words in (
                (["one_arm.toml"], ["second arm"]),
                (["tiny.toml", "--policy", "none.toml"], ["none.toml"]),
                (["tiny.toml", "--set", "gate.policy=none.toml"],
                 ["none.toml"]),
                (["tiny.toml", "--against", "none.h5"], ["none.h5"]),
                (["tiny.toml", "--ensemble", "none.h5"], ["none.h5"]),
                (["tiny.toml", "--probe", "none.h5"], ["none.h5"])):
            with self.subTest(arguments=arguments):
                self.assert_refused_alike("verify", *arguments, words=words)

    def test_a_finished_run_that_is_another_one(self):
        self.make_logs("other", "train.lr=0.01")
        for command in ("run", "verify"):
            for more in ((), ("--resume",)):
                with self.subTest(command=command, more=more):
                    arguments = (command, "tiny.toml", "--out", "other", *more)
                    dry = self.run_isoloss(*arguments, "--dry-run")
                    real = self.run_isoloss(*arguments)

                    self.assertEqual(dry.returncode, INVALID, dry.stderr)
                    for words in ("other/bf16-seed1.h5", "--restart",
                                  "train.lr: 0.01 before, 0.001 now"):
                        self.assertIn(words, dry.stderr)
                    self.assertEqual(dry.stderr, real.stderr)
                    self.assertEqual(dry.stdout, "")

    def test_runs_that_are_kept_cost_nothing(self):
        self.make_logs("finished", "train.seeds=[1]")
        before = sorted(self.folder.rglob("*"))
        arguments = ("verify", "tiny.toml", "--out", "finished", "--dry-run")

        some = self.run_isoloss(*arguments)
        all_of_them = self.run_isoloss(*arguments, "--seeds=1")
        more = self.run_isoloss(*arguments, "--set=train.seeds=[1]",
                                "--seeds=+3")

        self.assertEqual(sorted(self.folder.rglob("*")), before)
        for result, kept, trained in ((some, 2, "2 runs"),
                                      (all_of_them, 2, ""),
                                      (more, 2, "6 runs")):
            self.assertEqual(result.returncode, PASS, result.stderr)
            self.assertIn(f"# {kept} runs are finished in the folder and kept",
                          result.stdout)
            if trained:
                self.assertIn(f"# cost of {trained} of", result.stdout)
            else:
                self.assertNotIn("# cost of", result.stdout)

    def test_a_run_that_is_under_way_is_named_as_such(self):
        settings = ("--set=train.steps=100000", "--set=train.seeds=[1]")
        with TerminalProgram(self.folder, "run", "tiny.toml", "--out", "live",
                             "--arm", "bf16", *settings) as live:
            live.wait_for("bf16-seed1")
            while not (self.folder / "live/bf16-seed1.journal").exists():
                time.sleep(0.02)

            for extra in ([], ["--dry-run"]):
                beside = self.run_isoloss("run", "tiny.toml", "--out", "live",
                                          "--arm", "bf16", *settings, *extra)

                self.assert_refused(beside, "another process works on this run",
                                    "Wait for it")
                self.assertNotIn("--restart", beside.stderr)

    def test_a_folder_that_may_not_be_written(self):
        closed = self.folder / "closed"
        closed.mkdir()
        closed.chmod(0o555)
        with self.unprivileged() as options:
            for out in ("closed", "closed/below"):
                for extra in ([], ["--dry-run"]):
                    with self.subTest(out=out, extra=extra):
                        result = self.run_isoloss("run", "tiny.toml", "--out",
                                                  out, *extra, **options)

                        self.assert_refused(result, "can't take the logs",
                                            "Permission denied")
        closed.rmdir()

    def test_an_unfinished_run_needs_room_for_what_is_left_of_it(self):
        settings = ("tiny.toml", "--arm", "bf16", "--set=train.seeds=[1]", "--set=train.steps=400",
                    "--set=log.eval_every=400")
        begun = self.run_isoloss("run", *settings, "--out", "nearly", "--stop-after", "398")
        self.assertEqual(begun.returncode, INTERRUPTED, begun.stderr)

        def with_room(kib, *arguments):
            """No file may have more: the folder is tried with one of that size."""
            limit = (kib << 10, resource.RLIM_INFINITY)
            return self.run_isoloss("run", *settings, *arguments, "--dry-run",
                                    preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limit))

        refused = with_room(1, "--out", "new")
        self.assert_refused(refused, "can't take the logs", "File too large")
        all_of_it = int(re.search(r"about (\d+) KiB", refused.stderr)[1])
        # The log is half of it and is written anew; the journal is there but for 2 of 400 steps.
        self.assertEqual(with_room(all_of_it * 51 // 100, "--out", "nearly", "--resume").returncode, PASS)
        self.assert_refused(with_room(all_of_it * 49 // 100, "--out", "nearly", "--resume"), "can't take the logs")

    def test_a_good_experiment_is_shown_with_what_it_takes(self):
        before = sorted(self.folder.rglob("*"))

        result = self.run_isoloss("verify", "tiny.toml", "--out", "new/folder",
                                  "--set=parallel.workers=2", "--dry-run")

        self.assertEqual(result.returncode, PASS, result.stderr)
        self.assertEqual(sorted(self.folder.rglob("*")), before)
        for words in ("[arms.mxfp8]", "# arm mxfp8: recipe mxfp8_rceil",
                      "# cost of 4 runs of 20 steps, 2 side by side on 2 ",
                      "#   time    about ", "bf16 ", " mxfp8", "GFLOP/s",
                      "#   memory  at least ", "#   disk    at most ",
                      "#   oracle  about 18 steps, "):
            self.assertIn(words, result.stdout)
        self.assertLessEqual(max(map(len, result.stdout.splitlines())), 80)

    def test_the_disk_that_it_names_is_enough(self):
        settings = ("--set=log.digests_every=1", "--set=log.routing=true",
                    "--set=log.statistics_every=1")
        dry = self.run_isoloss("run", "tiny.toml", "--dry-run", *settings)
        number, unit = re.search(r"at most (\S+) (\w+) of logs",
                                 dry.stdout).groups()

        logs = self.make_logs("kept", *(s[len("--set="):] for s in settings))

        size = sum(path.stat().st_size for path in logs.values())
        # A number in whole KiB or MiB may be rounded down by half of one.
        self.assertLess(size, (float(number) + 0.5) * UNITS[unit])

    def test_an_arm_alone_costs_its_own_runs(self):
        result = self.run_isoloss("run", "tiny.toml", "--arm", "bf16",
                                  "--dry-run")

        self.assertEqual(result.returncode, PASS, result.stderr)
        self.assertIn("# cost of 2 runs", result.stdout)
