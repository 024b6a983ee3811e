"""Figures over commits: kept in a file, shown, and bisected to the commit that moved one."""

import json
import os
import shlex
import signal
import subprocess
import time
import xml.etree.ElementTree

import h5py

from program import (BINARY, ENVIRONMENT, INCONCLUSIVE, INTERRUPTED, INVALID, PASS, TINY, USAGE,
                     ProgramTest)

# A tenth of a second for both arms.
SMALL = (TINY.replace("steps = 20", "steps = 6").replace("warmup_steps = 4", "warmup_steps = 2")
         .replace("seeds = [1, 2]", "seeds = [1]"))
# Its numbers overflow within some steps.
DIVERGING = ("train.lr=1", "train.clip_norm=1e9", "train.warmup_steps=0", "train.beta2=0",
             "model.route_scale=1e9", "train.weight_decay=0")
PLANTED = SMALL.replace("[train]\n", "[train]\nlr = 3e-3\n")

COMMITS = 16
MOVED = 11


class HistoryTest(ProgramTest):
    """A test whose folder is a git repository."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        # Nothing of the user's configuration counts.
        os.environ.update(GIT_CONFIG_GLOBAL="/dev/null", GIT_CONFIG_SYSTEM="/dev/null")
        ENVIRONMENT.update(GIT_CONFIG_GLOBAL="/dev/null", GIT_CONFIG_SYSTEM="/dev/null")
        cls.git("init", "--quiet", "--initial-branch=main")
        cls.git("config", "user.name", "Nobody")
        cls.git("config", "user.email", "nobody@example.com")

    @classmethod
    def git(cls, *arguments):
        return subprocess.run(["git", *arguments], cwd=cls.folder, check=True, text=True,
                              stdout=subprocess.PIPE, env=ENVIRONMENT).stdout.strip()

    @classmethod
    def commit(cls, subject, **files):
        """Commits files by their names without dots; returns the hash."""
        for name, text in files.items():
            cls.write(name.replace("__", "."), text)
            cls.git("add", name.replace("__", "."))
        cls.git("commit", "--quiet", "--allow-empty", "--message", subject)
        return cls.git("rev-parse", "HEAD")

    def assert_tidy(self):
        """Nothing of a bisection is left in the repository."""
        self.assertEqual(len(self.git("worktree", "list").splitlines()), 1)
        self.assertEqual(self.git("for-each-ref", "refs/bisect"), "")
        self.assertEqual(self.git("rev-parse", "--abbrev-ref", "HEAD"), "main")


class BisectOfTraining(HistoryTest):
    def test_a_planted_change_is_found_in_16_commits_without_help(self):
        self.write("small.toml", SMALL)
        approved = self.folder / "approved"
        self.assertEqual(
            self.run_isoloss("run", "small.toml", "--out", approved).returncode, PASS)
        hashes = []
        for number in range(COMMITS):
            text = PLANTED if number >= MOVED else SMALL
            if number == 7:  # the middle, which git tries first
                text = text.replace("[model]", "[modle]")
            hashes.append(self.commit(f"commit {number} <b>&\x1b[2J",
                                      small__toml=f"# comment {number}\n{text}"))
        edited = self.write("small.toml", "# not committed\n")
        program = shlex.quote(str(BINARY))
        judge = (f"rm -rf out; {program} run small.toml --out out || exit; "
                 f"{program} compare {shlex.quote(str(approved))} out")

        result = self.run_isoloss("history", "bisect", "--good", "HEAD~15", "--bad", "main",
                                  "--json", "--", "sh", "-c", judge)

        self.assertEqual(result.returncode, PASS, result.stderr)
        found = json.loads(result.stdout)
        self.assertEqual(found["first_bad"]["commit"], hashes[MOVED])
        self.assertNotIn("\x1b", result.stdout + result.stderr)
        marks = {tried["commit"]: (tried["mark"], tried["exit_code"])
                 for tried in found["tried"]}
        self.assertEqual(marks[hashes[0]], ("good", 0))
        self.assertEqual(marks[hashes[15]], ("bad", 1))
        self.assertEqual(marks[hashes[7]], ("skipped", 3))
        self.assertLessEqual(len(marks), 8)
        self.assert_tidy()
        self.assertEqual(edited.read_text(), "# not committed\n")


class BisectOfCodes(HistoryTest):
    """Commits whose judge ends with the code that they hold."""

    # 0 1 2 3 4 5  6 7 8
    CODES = (0, 0, 4, 0, 75, 3, 1, 1, 1)

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.hashes = [cls.commit(f"code {code}", code=f"{code} # {number}\n",
                                 build="true\n" if number != 3 else "false\n",
                                 **({"late": "tracked\n"} if number >= 5 else {}))
                      for number, code in enumerate(cls.CODES)]

    def bisect(self, good, bad, *options, command=("sh", "-c", "exit $(cut -c -2 code)"),
               environment=None):
        return self.run_isoloss("history", "bisect", "--good", good, "--bad", bad, *options, "--",
                                *command, environment=environment)

    def test_a_code_that_says_nothing_skips_and_hidden_commits_are_named(self):
        result = self.bisect(self.hashes[0], self.hashes[8])

        # 4 and 5 are skipped, so that the first bad one is 4, 5 or 6.
        self.assertEqual(result.returncode, INCONCLUSIVE, result.stderr)
        listed = [line.split()[0] for line in result.stdout.splitlines()[1:]]
        self.assertEqual(listed, [commit[:12] for commit in self.hashes[4:7]])
        self.assertIn("skipped", result.stderr)
        self.assert_tidy()

    def test_the_first_bad_commit_is_named_with_subject_and_date(self):
        result = self.bisect(self.hashes[0], self.hashes[8], command=(
            "sh", "-c", "test $(cut -c -2 code) -ne 1"))

        self.assertEqual(result.returncode, PASS, result.stderr)
        self.assertIn(f"first bad commit: {self.hashes[6]}\n  code 1\n  20", result.stdout)
        self.assertRegex(result.stderr, r"(?m)^bad +[0-9a-f]{12}  exit code 1, \d+\.\d s  code 1$")

    def test_a_build_that_fails_skips_whatever_its_code(self):
        self.assert_refused_at_the_end(
            self.bisect(self.hashes[0], self.hashes[3], "--build", "$(cat build)",
                        command=("sh", "-c", "exit 1")), "--bad", "skipped", "of the build")

        output = self.folder / "output"
        output.mkdir()
        result = self.bisect(self.hashes[0], self.hashes[6], "--build",
                             "echo builds; $(cat build)", "--output", output, "--json",
                             command=("sh", "-c", "echo judges; test $(cut -c -2 code) -ne 1"))
        found = json.loads(result.stdout)
        tried = {step["commit"]: step for step in found["tried"]}
        self.assertEqual(found["first_bad"]["commit"], self.hashes[6])
        self.assertEqual(tried[self.hashes[3]]["mark"], "skipped")  # the middle
        self.assertFalse(tried[self.hashes[3]]["built"])
        for number, said in ((3, "builds\n"), (6, "builds\njudges\n")):
            self.assertEqual((output / f"{self.hashes[number][:12]}.txt").read_text(), said)
        self.assert_tidy()

    def assert_refused_at_the_end(self, result, *words):
        self.assertEqual(result.returncode, INVALID, result.stderr)
        message = result.stderr.splitlines()[-1]
        for word in words:
            self.assertIn(word, message)
        self.assertEqual(result.stdout, "")
        self.assert_tidy()

    def test_ends_that_are_not_what_they_are_said_to_be_are_refused(self):
        self.assert_refused_at_the_end(self.bisect(self.hashes[0], self.hashes[3]), "--bad",
                                       "finds it good")
        self.assert_refused_at_the_end(self.bisect(self.hashes[6], self.hashes[8]), "--good",
                                       "finds it bad")
        self.assert_refused_at_the_end(
            self.bisect(self.hashes[0], self.hashes[8], command=("no-such-program",)), "--bad",
            "skipped", "127")

    def test_a_signal_that_ends_the_command_ends_the_search(self):
        result = self.bisect(self.hashes[0], self.hashes[8],
                             command=("sh", "-c", "kill -SEGV $$"))
        self.assert_refused_at_the_end(result, "exit code 139", self.hashes[8][:12])

    def test_a_command_that_takes_too_long_skips(self):
        result = self.bisect(self.hashes[0], self.hashes[8], "--limit", "1",
                             command=("sleep", "1000"))
        self.assert_refused_at_the_end(result, "took too long", "skipped")

    def test_the_repository_of_a_hook_and_its_own_hooks_are_left_alone(self):
        hook = self.write(".git/hooks/post-checkout", "#!/bin/sh\nexit 1\n")
        hook.chmod(0o755)
        self.addCleanup(hook.unlink)
        # As git sets them for hooks and for `git rebase --exec`.
        variables = {"GIT_DIR": str(self.folder / ".git"), "GIT_WORK_TREE": str(self.folder),
                     "GIT_INDEX_FILE": str(self.folder / ".git" / "index")}
        result = self.bisect(self.hashes[0], self.hashes[8], "--build",
                             "test $(git rev-parse --show-toplevel) = $(pwd -P)",
                             command=("sh", "-c", "test $(cut -c -2 code) -ne 1"),
                             environment=variables)

        self.assertEqual(result.returncode, PASS, result.stderr)
        self.assertIn(f"first bad commit: {self.hashes[6]}", result.stdout)
        self.assert_tidy()
        self.assertEqual(self.git("status", "--porcelain", "--untracked-files=no"), "")

    def test_what_a_build_leaves_is_in_nobodys_way(self):
        # It changes what git tracks, and makes what only later commits track.
        result = self.bisect(self.hashes[0], self.hashes[8], "--build",
                             "echo changed >> build; echo made > late",
                             command=("sh", "-c", "test $(cut -c -2 code) -ne 1"))
        self.assertEqual(result.returncode, PASS, result.stderr)
        self.assertIn(f"first bad commit: {self.hashes[6]}", result.stdout)
        self.assert_tidy()

    def test_a_reader_that_goes_away_leaves_nothing_behind(self):
        process = subprocess.Popen(
            [BINARY, "history", "bisect", "--good", self.hashes[0], "--bad", self.hashes[8], "--",
             "sh", "-c", "exit $(cut -c -2 code)"], cwd=self.folder, env=ENVIRONMENT,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        process.stderr.close()
        self.assertEqual(process.wait(timeout=60), INTERRUPTED)
        self.assert_tidy()

    def test_revisions_that_are_none_are_refused(self):
        for good, words in (("--upload-pack=x", ["names no commit"]), ("nowhere", ["`nowhere`"]),
                            (self.hashes[8], ["both"]), ("HEAD^{tree}", ["names no commit"])):
            with self.subTest(good=good):
                result = self.run_isoloss("history", "bisect", f"--good={good}", "--bad", "HEAD",
                                          "--", "true")
                self.assert_refused(result, *words)
        result = self.bisect(self.hashes[8], self.hashes[0])
        self.assert_refused(result, "--good", self.hashes[8][:12], "git merge-base")
        result = self.run_isoloss("history", "bisect", "--repository", "nowhere", "--good", "HEAD~1",
                                  "--bad", "HEAD", "--", "true")
        self.assert_refused(result, "nowhere: can't start a program in it")
        result = self.run_isoloss("history", "bisect", "--good", "HEAD~1", "--bad", "HEAD")
        self.assert_refused(result, "`command`", code=USAGE)

    def test_an_interrupt_leaves_nothing_behind(self):
        started = self.folder / "started"
        process = subprocess.Popen(
            [BINARY, "history", "bisect", "--good", self.hashes[0], "--bad", self.hashes[8], "--",
             "sh", "-c", f"touch {shlex.quote(str(started))}; sleep 1000"],
            cwd=self.folder, env=ENVIRONMENT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.kill)
        while not started.exists() and process.poll() is None:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)

        self.assertEqual(process.returncode, INTERRUPTED, said)
        self.assertIn("interrupted", said)
        self.assert_tidy()


class Record(HistoryTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.write("small.toml", SMALL)
        cls.write("planted.toml", PLANTED)
        for name in ("small", "planted"):
            result = cls.run_isoloss("run", f"{name}.toml", "--out", name, "--set",
                                     "train.seeds=[1,2,3,4]")
            if result.returncode != PASS:
                raise AssertionError(result.stderr)
        cls.hashes = [cls.commit(f"commit {number} <script>") for number in range(6)]

    def setUp(self):
        self.file = self.folder / f"{self.id()}.jsonl"

    def record(self, logs, commit, *options):
        return self.run_isoloss("history", "record", logs, "--file", self.file, "--commit", commit,
                                *options)

    def show(self, *options):
        result = self.run_isoloss("history", "show", self.file, *options)
        self.assertEqual(result.returncode, PASS, result.stderr)
        return result.stdout

    def test_a_line_holds_the_numbers_of_the_log_to_the_bit(self):
        self.assertEqual(self.record("small", "HEAD").returncode, PASS)

        lines = [json.loads(line) for line in self.file.read_text().splitlines()]
        self.assertEqual([(line["arm"], line["seed"]) for line in lines],
                         [(arm, seed) for arm in ("bf16", "mxfp8") for seed in (1, 2, 3, 4)])
        for line in lines:
            with h5py.File(self.folder / "small" / f"{line['arm']}-seed{line['seed']}.h5") as log:
                losses = log["steps/loss_nats"][()]
                self.assertEqual(line["held_out"], log["eval/loss_nats"][-1])
                self.assertEqual(line["numerics"], log.attrs["numerics_digest"])
            self.assertEqual((line["steps"], line["window"]), (6, 2))
            # Sums of two are rounded once, in whatever order.
            self.assertEqual(line["loss"], (losses[-2] + losses[-1]) / 2)
            self.assertEqual(line["commit"], self.hashes[-1])
            self.assertEqual(line["difference_percent"] is None, line["arm"] == "bf16")

    def test_a_commit_is_recorded_once_and_replaced_when_asked(self):
        self.record("small", "HEAD")
        before = self.file.read_bytes()
        with subprocess.Popen(["true"]) as ended:
            ended.wait()
        stale = self.file.with_name(f".{self.file.name}.{ended.pid}-0.tmp")  # of a killed record
        stale.write_text("half")
        again = self.record("small", "HEAD")
        self.assertFalse(stale.exists())
        self.assertIn("0 runs added, 0 replaced, 8 were there already", again.stdout)
        other = self.record("planted", "HEAD")
        self.assert_refused(other, self.hashes[-1], "other values", "--replace")
        self.assertEqual(self.file.read_bytes(), before)
        self.assertIn("8 replaced", self.record("planted", "HEAD", "--replace").stdout)
        self.assertEqual(len(self.file.read_text().splitlines()), 8)

    def test_records_at_the_same_time_lose_nothing(self):
        arguments = [[BINARY, "history", "record", f"small/bf16-seed{1 + place % 4}.h5", "--file", self.file,
                      "--commit", self.hashes[place // 4]] for place in range(12)]
        recorders = [subprocess.Popen(words, cwd=self.folder, env=ENVIRONMENT, text=True,
                                      stdout=subprocess.PIPE, stderr=subprocess.PIPE) for words in arguments]
        for recorder in recorders:
            said, errors = recorder.communicate(timeout=60)
            self.assertIn("1 runs added", said, errors)
        self.assertEqual(len(self.file.read_text().splitlines()), 12)

    def test_branches_that_both_record_merge_by_union(self):
        self.record("small", "HEAD~2")
        base = self.file.read_text()
        self.record("small", "HEAD~1")
        ours = self.file.read_text()
        self.file.write_text(base)
        self.record("planted", "HEAD")
        theirs = self.file.read_text()
        for name, text in (("base", base), ("ours", ours), ("theirs", theirs)):
            self.write(f"merge/{name}", text)
        merged = self.git("merge-file", "-p", "--union", "merge/ours", "merge/base",
                          "merge/theirs")
        # A line that both sides brought may be there twice.
        self.file.write_text(merged + "\n" + ours)

        self.assertIn("3 commits", self.show())

    def test_logs_of_a_modified_source_need_a_commit(self):
        log = self.folder / "small" / "bf16-seed1.h5"
        with h5py.File(log) as opened:
            modified = opened.attrs["commit"].endswith("-dirty") or (
                opened.attrs["commit"] == "unknown")
        result = self.run_isoloss("history", "record", log, "--file", self.file)
        if modified:
            self.assert_refused(result, "--commit")
            self.assertFalse(self.file.exists())
        else:
            self.assertEqual(result.returncode, PASS, result.stderr)
        self.assert_refused(self.record("small", "nowhere"), "`nowhere`")
        self.assert_refused(self.record("small", "-p"), "names no commit")

    def test_the_commit_that_moved_a_figure_is_named(self):
        for place in (0, 1, 2, 3, 5):
            self.record("small" if place < 3 else "planted", self.hashes[place])
        # The planted rate is another configuration: as if the program had changed.
        text = self.file.read_text()
        configs = {json.loads(line)["config"] for line in text.splitlines()}
        self.assertEqual(len(configs), 2)
        self.assertIn("No figure moved", self.show())
        for config in configs:
            text = text.replace(config, "0" * 16)
        # The order of the file is not that of git.
        self.file.write_text("".join(sorted(text.splitlines(keepends=True))))

        shown = self.show()
        self.assertIn(f"MOVED  {self.hashes[3][:12]}  ", shown)
        self.assertIn("commit 3 <script>", shown)
        self.assertEqual(shown.count("MOVED"), 1, shown)
        for figure in ("loss", "held_out"):
            self.assertRegex(shown, rf"bf16 {figure}: \S+ % \[\S+, \S+\] to \S+ since "
                             rf"{self.hashes[0][:12]}, 4 seeds\n")
        detailed = self.show("--figure", "loss", "--arm", "bf16")
        self.assertIn("2 commits with the same bits", detailed)
        data = json.loads(self.show("--json"))
        self.assertEqual({move["commit"] for move in data["moved"]}, {self.hashes[3]})
        self.assertEqual(data["order"], "git")
        # Wider than any change.
        self.assertIn("No figure moved", self.show("--tolerance", "100"))

        self.show("--svg", "history.svg")
        picture = (self.folder / "history.svg").read_text()
        xml.etree.ElementTree.fromstring(picture)
        self.show("--svg", "history.svg")  # its own picture may be replaced
        refused = self.run_isoloss("history", "show", self.file, "--svg", self.file)
        self.assert_refused(refused, "--svg")
        refused = self.run_isoloss("history", "show", self.file, "--figure", "los")
        self.assert_refused(refused, "`los`", "Did you mean `loss`?")

    def test_a_hint_names_the_commits_between_that_nobody_recorded(self):
        self.record("small", self.hashes[0])
        self.record("planted", self.hashes[4])
        lines = [json.loads(line) for line in self.file.read_text().splitlines()]
        self.file.write_text("".join(
            json.dumps({**line, "config": "0" * 16}) + "\n" for line in lines))

        shown = " ".join(self.show().split())
        self.assertIn("next: 3 commits lie between", shown)
        self.assertIn(f"isoloss lab history bisect --good {self.hashes[0][:12]} --bad "
                      f"{self.hashes[4][:12]} -- COMMAND", shown)

    def test_a_run_that_its_numbers_ended_has_moved_and_one_that_was_interrupted_is_refused(self):
        settings = [word for setting in DIVERGING for word in ("--set", setting)]
        result = self.run_isoloss("run", "small.toml", "--out", "ended", "--set",
                                  "train.seeds=[1,2,3,4]", *settings)
        self.assertEqual(result.returncode, PASS, result.stderr)
        self.record("small", "HEAD~1")
        self.assertEqual(self.record("ended", "HEAD").returncode, PASS)
        lines = [json.loads(line) for line in self.file.read_text().splitlines()]
        self.assertEqual({line["steps"] for line in lines}, {6})
        # As if the program had changed.
        self.file.write_text("".join(
            json.dumps({**line, "config": "0" * 16}) + "\n" for line in lines))
        self.assertIn(f"MOVED  {self.hashes[-1][:12]}", self.show("--arm", "bf16"))

        self.run_isoloss("run", "small.toml", "--out", "stopped", "--arm", "bf16",
                         "--stop-after", "4")
        self.assert_refused(self.record("stopped/bf16-seed1.partial.h5", "HEAD"),
                            "bf16-seed1.partial.h5", "4 of 6 steps", "--resume")

    def test_a_shallow_clone_says_why_commits_are_missing(self):
        self.record("small", "HEAD")
        self.record("small", "HEAD~1")
        self.assertNotIn("shallow", self.show())
        clone = self.folder / "clone"
        self.git("clone", "--quiet", "--depth", "1", f"file://{self.folder}", str(clone))
        self.file = self.file.rename(clone / "history.jsonl")

        shown = " ".join(self.show().split())
        self.assertIn(f"Left out, since they are no ancestors of HEAD in this repository (only "
                      f"first parents are followed): {self.hashes[-2][:12]}.", shown)
        self.assertIn("`git fetch --unshallow`", shown)

    def test_files_that_are_no_history_are_refused(self):
        self.record("small", "HEAD")
        first, *others = self.file.read_text().splitlines(keepends=True)
        record = json.loads(first)

        def changed(**values):
            return json.dumps({**record, **values}) + "\n"

        # Other faults of a line: tests/report/history_test.cc.
        for name, text, words in (
                ("conflict", "<<<<<<< HEAD\n" + first, [":1:", "conflict"]),
                ("contradiction", first + changed(loss=1.5), [":2:", "line 1"]),
                ("nested", "[" * 100000 + "\n", [":1:"]),
                ("escape", changed(arm="\x1b[2J"), ["control"]),
                ("twice", first.replace("{", '{"arm":"other",'), ["twice"]),
                ("experiments", first + changed(experiment="other", seed=9), ["`other`"]),
                ("empty", "", ["0 records"]), ("binary", "\x00\x01\n", [":1:"])):
            with self.subTest(name=name):
                path = self.write(f"bad/{name}", text)
                self.assert_refused(self.run_isoloss("history", "show", path), *words)
                refused = self.run_isoloss("history", "record", "small/bf16-seed1.h5",
                                           "--file", path, "--commit", "HEAD~1")
                if name != "empty":
                    self.assert_refused(refused, *words)
                    self.assertEqual(path.read_text(), text)
        numbers = changed(loss=None, loss_text="nan") + "".join(others)
        self.file.write_text(numbers)
        self.assertIn("nan", self.show("--figure", "loss"))
