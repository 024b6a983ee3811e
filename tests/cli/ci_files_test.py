"""The ready files of examples/ci: their shell steps run as they are in clean clones of a
repository with goldens, on commits that change numerics and on some that do not."""

import math
import os
import pathlib
import re
import shutil
import subprocess
import tempfile

import yaml

import ci_readers
from golden_log import forged, mend_chain
from program import BINARY, ProgramTest, TINY, FAIL, INVALID, PASS

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples" / "ci"
UNCHANGED, CHANGED = "numerics-unchanged", "numerics-changed"
GITLAB = yaml.safe_load((EXAMPLES / "gitlab" / "isoloss.gitlab-ci.yml").read_text())

EXPERIMENT = (TINY.replace("seeds = [1, 2]", "seeds = [1]").replace("steps = 20", "steps = 4")
              .replace("n_layers = 2", "n_layers = 1").replace("n_dense_layers = 1",
                                                               "n_dense_layers = 0")
              .replace("warmup_steps = 4", "warmup_steps = 2")
              + 'digests_every = 1\n[gate]\npolicy = "../gate.toml"\n')
OTHER_RATE = EXPERIMENT.replace("[train]\n", "[train]\nlr = 0.002\n")
GOLDEN = "golden/curves/tiny"
# Text that the workflows must not take for their own.
REASON = "Sums go in another order; ``` </details> ::error::no @octocat <script>"

AUTHOR = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@example.org",
          "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@example.org"}


def workflow(name):
    return yaml.safe_load((EXAMPLES / "github" / f"{name}.yml").read_text())


def job_of(name):
    return workflow(name)["jobs"][name]


def git(folder, *words):
    return subprocess.run(["git", "-C", folder, *words], check=True, encoding="utf-8",
                          stdout=subprocess.PIPE, env={**os.environ, **AUTHOR}).stdout.strip()


def commit(folder, message):
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", message)


class Files(ProgramTest):
    """Branches of a user's repository. Those that begin with `old` have goldens of a
    program whose last loss had other bits."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.user = cls.folder / "user"
        subprocess.run(["git", "init", "--quiet", "--initial-branch=main", cls.user], check=True)
        cls.write("user/README.md", "Ours.\n")
        cls.write("user/golden/curves/gate.toml", 'probe_cases = ["plain"]\n')
        cls.write(f"user/{GOLDEN}/experiment.toml", EXPERIMENT)
        cls.write(f"user/{GOLDEN}/suite.toml", "probe_equal_bits = false\n")
        commit(cls.user, "An experiment")
        cls.update("The first goldens of our repository", "--new")
        commit(cls.user, "Goldens")
        cls.branch("main", "readme")
        cls.write("user/README.md", "Ours, and a comment.\n")
        cls.write(f"user/{GOLDEN}/experiment.toml", "# A comment.\n" + EXPERIMENT)
        commit(cls.user, "A comment")
        cls.branch("main", "rate")
        cls.write(f"user/{GOLDEN}/experiment.toml", OTHER_RATE)
        commit(cls.user, "Learns faster")
        cls.branch("rate", "rate-updated")
        cls.update(REASON, "--reconfigured")
        commit(cls.user, "Learns faster: goldens")
        cls.branch("main", "edited")
        twin = cls.user / GOLDEN / "bf16-seed1.txt"
        twin.write_text(twin.read_text().replace("\n", "\r```\n```\n", 1), newline="")
        commit(cls.user, "By hand")
        cls.branch("main", "removed")
        shutil.rmtree(cls.user / GOLDEN)
        commit(cls.user, "Nothing to see")
        cls.branch("main", "old")
        with forged(cls.user / GOLDEN, "mxfp8-seed1") as log:
            log["steps/loss_nats"][3] *= 1 + 1e-12
        commit(cls.user, "Goldens of another program")
        cls.branch("old", "old-bumped")
        cls.write("user/README.md", "Ours, with a new isoloss.\n")
        commit(cls.user, "A new isoloss")
        cls.branch("old-bumped", "old-updated")
        cls.update(REASON)
        commit(cls.user, "A new isoloss: goldens")
        cls.branch("main", "unsound")
        with forged(cls.user / GOLDEN, "mxfp8-seed1") as log:
            log["parameters/grad_norm"][3, 1] = math.inf
        commit(cls.user, "Goldens that no gate takes")
        cls.branch("unsound", "unsound-updated")
        cls.update(REASON)
        commit(cls.user, "A new isoloss: goldens")

    @classmethod
    def branch(cls, start, name):
        git(cls.user, "checkout", "--quiet", "-b", name, start)

    @classmethod
    def update(cls, reason, *options):
        """As users do it, unless the program under test is of no commit: then its draft
        is passed off as what one of a commit would have made."""
        own = cls.run_isoloss("--version").stdout
        found = re.search(r"\((\S+-dirty|unknown),", own)
        draft = ["--draft"] if found else []
        result = cls.run_isoloss("golden", "update", cls.user / GOLDEN, "--reason", reason,
                                 *draft, *options)
        if result.returncode != PASS:
            raise AssertionError(result.stdout + result.stderr)
        history = cls.user / GOLDEN / "history.toml"
        if found and found[1] in history.read_text():
            history.write_text(history.read_text().replace(f'"{found[1]}"', '"4b8fbb9"'))
            mend_chain(cls.user / GOLDEN)

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="isoloss-ci-")
        self.addCleanup(folder.cleanup)
        self.place = pathlib.Path(folder.name)
        (self.place / "bin").mkdir()
        (self.place / "home").mkdir()
        (self.place / "bin" / "isoloss").symlink_to(BINARY)
        self.work = self.place / "work"
        self.report = self.work / "isoloss-report"
        self.environment = {"PATH": f"{self.place}/bin:/usr/bin:/bin", "CI": "true",
                            "HOME": str(self.place / "home"), "TMPDIR": str(self.place)}

    def bash(self, script, options=("-e", "-o", "pipefail")):
        """What a step of a container without anything of this machine leaves."""
        return subprocess.run(
            ["bash", "--noprofile", "--norc", *options, "-c", script], cwd=self.work,
            env=self.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, encoding="utf-8", timeout=300)

    def junit(self, name="junit.xml"):
        text = (self.report / name).read_text()
        self.assertEqual(ci_readers.junit_faults(text), [])
        return text

    def clone(self, base, head):
        """What actions/checkout makes of a pull request: a merge whose first parent is
        the base, and nothing that is older."""
        git(self.user, "checkout", "--quiet", "--detach", base)
        git(self.user, "merge", "--quiet", "--no-ff", "--message", "Merge", head)
        merge = git(self.user, "rev-parse", "HEAD")
        git(self.user, "update-ref", "refs/pull/1/merge", merge)
        git(self.place, "init", "--quiet", self.work)
        git(self.work, "fetch", "--quiet", "--depth=2", f"file://{self.user}",
            "refs/pull/1/merge")
        git(self.work, "checkout", "--quiet", "--detach", "FETCH_HEAD")

    def gate(self, name, base, head):
        """Runs the job's steps; returns the name of the step that failed (or "") and
        its exit code. What all printed is in self.output, the summary in self.summary."""
        self.clone(base, head)
        summary = self.place / "summary.md"
        summary.write_text("")
        self.environment.update({key: str(value) for key, value in workflow(name)["env"].items()})
        self.environment.update(GITHUB_ACTIONS="true", GITHUB_WORKSPACE=str(self.work),
                                GITHUB_STEP_SUMMARY=str(summary))
        self.output = ""
        failed = ("", PASS)
        for step in job_of(name)["steps"]:
            if "run" not in step or failed[0]:
                continue
            result = self.bash(step["run"])
            self.output += result.stdout
            if result.returncode != PASS:
                failed = (step["name"], result.returncode)
        self.summary = summary.read_text()
        self.errors = [(properties, data) for kind, properties, data
                       in ci_readers.workflow_commands(self.output) if kind == "error"]
        return failed

    def assert_error(self, title, text):
        self.assertTrue(any(title in properties["title"] and text in data
                            for properties, data in self.errors), self.errors)

    def test_numerics_that_did_not_change_pass(self):
        self.assertEqual(self.gate(UNCHANGED, "main", "readme"), ("", PASS))
        self.assertEqual(self.errors, [])
        self.assertIn("PASS: goldens of golden/curves/tiny: 2 of 2 reproduced", self.summary)
        self.assertIn('failures="0" errors="0"', self.junit())
        self.assertTrue((self.report / "logs" / "1-tiny" / "mxfp8-seed1.h5").is_file())

    def test_a_changed_experiment_is_refused(self):
        self.assertEqual(self.gate(UNCHANGED, "main", "rate"),
                         ("Every bit is that of the goldens", INVALID))
        self.assert_error("(error)", "another configuration")
        self.assertIn("another configuration", self.summary)
        self.assertIn('failures="0" errors="1"', self.junit())

    def test_changed_bits_fail(self):
        self.assertEqual(self.gate(UNCHANGED, "old", "old-bumped"),
                         ("Every bit is that of the goldens", FAIL))
        self.assert_error("every bit of mxfp8-seed1 (failure)", "step 4: loss_nats")
        self.assertEqual(self.errors[0][0]["file"], f"{GOLDEN}/history.toml")
        self.assertIn('failures="2" errors="0"', self.junit())

    def test_changed_goldens_need_the_label(self):
        self.assertEqual(self.gate(UNCHANGED, "main", "rate-updated"),
                         ("The goldens are those of the base branch", FAIL))
        self.assert_error("Goldens were changed", "label numerics")

    def test_goldens_cannot_be_removed_in_passing(self):
        self.assertEqual(self.gate(UNCHANGED, "main", "removed")[1], INVALID)
        shutil.rmtree(self.work)
        self.assertEqual(self.gate(CHANGED, "main", "removed"),
                         ("Each change has its reason in history.toml", FAIL))
        self.assert_error("History was rewritten", "Restore it")

    def test_a_change_of_isoloss_with_a_reason_passes(self):
        self.assertEqual(self.gate(CHANGED, "old", "old-updated"), ("", PASS))
        self.assertEqual(self.errors, [])
        # Noticed: the bits of the base branch's golden are others.
        self.assertIn("bits drifted: step 4: loss_nats", self.summary)
        self.assertIn('failures="0" errors="0" skipped="1"', self.junit("base.xml"))
        self.assert_shows_the_diff()

    def test_a_changed_experiment_with_a_reason_passes(self):
        self.assertEqual(self.gate(CHANGED, "main", "rate-updated"), ("", PASS))
        self.assertIn("+lr = 0.002", self.summary)
        self.assertIn("of another configuration, so not compared", self.summary)
        self.assertIn('failures="0" errors="0" skipped="0"', self.junit("base.xml"))
        self.assert_shows_the_diff()

    def test_a_reason_does_not_outdo_the_gate(self):
        self.assertEqual(self.gate(CHANGED, "unsound", "unsound-updated"),
                         ("What the base branch approved is still sound", FAIL))
        self.assert_error("arm mxfp8 is still the run that was approved", "L0 fail")
        self.assertIn('failures="0" errors="0"', self.junit())

    def assert_shows_the_diff(self):
        """The reason and the texts, within one block of code that they do not end."""
        page = ci_readers.rendered(self.summary)
        self.assertIn(f'+reason = "{REASON}"', page.text)
        self.assertRegex(page.text, r"\n\+ +4 +\d\.\d{6}  0x1\.")
        self.assertEqual(page.tags.count("pre"), 1)
        self.assertNotIn("script", page.tags)

    def test_a_change_without_an_update_fails(self):
        for base, head in (("main", "rate"), ("old", "old-bumped"), ("main", "readme"),
                           ("main", "edited")):
            with self.subTest(head=head):
                shutil.rmtree(self.work, ignore_errors=True)
                self.assertEqual(self.gate(CHANGED, base, head),
                                 ("Each change has its reason in history.toml", FAIL))
                self.assert_error("No golden was changed", "golden update")
        # A line end of its own would let this text end the block: \r is one, too.
        self.assertIn("\n+```\n", self.summary)
        self.assertEqual(ci_readers.rendered(self.summary).tags.count("pre"), 1)

    def test_a_golden_that_was_edited_by_hand_is_refused(self):
        self.assertEqual(self.gate(UNCHANGED, "main", "edited"),
                         ("Every bit is that of the goldens", INVALID))
        self.assert_error("(error)", "it is not the text of bf16-seed1.h5")

    def test_installs_isoloss_where_the_image_lacks_it(self):
        source = self.place / "source"
        subprocess.run(["git", "init", "--quiet", source], check=True)
        (source / "tools" / "dev").mkdir(parents=True)
        script = source / "tools" / "dev" / "deb"
        script.write_text('#!/bin/sh\nmkdir -p "$(dirname "$0")/../../build/release"\n'
                          'cd "$(dirname "$0")/../../build/release"\n'
                          'touch isoloss_0.9.0_amd64.deb isoloss-mpi_0.9.0_amd64.deb\n')
        script.chmod(0o755)
        commit(source, "A program")
        git(source, "tag", "v0.9.0")
        script.unlink()
        commit(source, "A later one")
        apt = self.place / "bin" / "apt-get"
        apt.write_text(f'#!/bin/sh\necho "apt-get $*"\ncase "$*" in *isoloss_*) '
                       f'ln -s "{BINARY}" "{self.place}/bin/isoloss";; esac\n')
        apt.chmod(0o755)
        self.work.mkdir()
        scripts = [[step["run"] for step in job_of(name)["steps"]
                    if step.get("name") == "Install isoloss"] for name in (UNCHANGED, CHANGED)]
        self.assertEqual(*scripts)
        gitlab = "\n".join(GITLAB[".isoloss"]["before_script"])
        for script in (scripts[0][0], gitlab):
            with self.subTest(script=script):
                (self.place / "bin" / "isoloss").unlink()
                self.environment.update(
                    ISOLOSS_REPOSITORY=str(source), ISOLOSS_REF="v0.9.0",
                    GITHUB_WORKSPACE=str(self.work))

                result = self.bash(script)

                self.assertEqual(result.returncode, PASS, result.stdout)
                self.assertRegex(result.stdout,
                                 r"apt-get -qq install -y \S+/isoloss_0.9.0_amd64.deb\n")
                self.assertIn("isoloss 0.9.0", result.stdout)

    def gate_gitlab(self, name, base, head):
        """Runs the job's script in one shell; returns its exit code."""
        shutil.rmtree(self.work, ignore_errors=True)
        subprocess.run(["git", "clone", "--quiet", "--branch", head, f"file://{self.user}",
                        self.work], check=True)
        git(self.work, "checkout", "--quiet", "--detach")
        common = GITLAB[".isoloss"]
        self.environment.update(common["variables"], GITLAB_CI="true",
                                CI_MERGE_REQUEST_DIFF_BASE_SHA=git(self.user, "rev-parse", base))
        result = self.bash("\n".join(common["before_script"] + GITLAB[name]["script"]))
        self.output = result.stdout
        return result.returncode

    def test_gitlab_passes_numerics_that_did_not_change(self):
        self.assertEqual(self.gate_gitlab(UNCHANGED, "main", "readme"), PASS)
        self.assertIn('failures="0" errors="0"', self.junit("check.xml"))

    def test_gitlab_fails_numerics_that_changed(self):
        self.assertEqual(self.gate_gitlab(UNCHANGED, "main", "rate"), INVALID)
        self.assertIn('failures="0" errors="1"', self.junit("check.xml"))
        self.assertEqual(self.gate_gitlab(UNCHANGED, "old", "old-bumped"), FAIL)
        self.assertIn('failures="2" errors="0"', self.junit("check.xml"))
        self.assertEqual(self.gate_gitlab(CHANGED, "old", "old-bumped"), FAIL)
        self.assertIn("No history.toml has a new entry", self.output)

    def test_gitlab_passes_a_change_with_a_reason_where_it_is_labelled(self):
        self.assertEqual(self.gate_gitlab(UNCHANGED, "old", "old-updated"), FAIL)
        self.assertIn("give it the label numerics", self.output)
        self.assertEqual(self.gate_gitlab(CHANGED, "old", "old-updated"), PASS)
        self.assertIn(f'+reason = "{REASON}"', (self.report / "golden.diff").read_text())
        self.assertIn('skipped="1"', self.junit("base.xml"))
        for path in GITLAB[".isoloss"]["artifacts"]["reports"]["junit"]:
            self.assertTrue((self.work / path).is_file(), path)
        self.assertEqual(self.gate_gitlab(CHANGED, "main", "removed"), FAIL)
        self.assertIn("Restore it", self.output)

    def test_workflows_are_safe_with_pull_requests_of_strangers(self):
        for name in (UNCHANGED, CHANGED):
            of = workflow(name)
            self.assertEqual(of["permissions"], {"contents": "read"})
            # YAML 1.1 takes the key `on` for true.
            self.assertEqual(list(of[True]), ["pull_request"])
            self.assertNotIn("secrets.", (EXAMPLES / "github" / f"{name}.yml").read_text())
            for step in of["jobs"][name]["steps"]:
                self.assertNotIn("${{", step.get("run", ""))
                if "uses" in step:
                    self.assertRegex(step["uses"], r"^actions/[a-z-]+@v\d+$")

    def test_no_search_ends_before_what_is_piped_into_it(self):
        # With pipefail the pipe then fails, as if nothing had been found: a pull request
        # with thousands of files could hide one.
        scripts = [step.get("run", "") for name in (UNCHANGED, CHANGED)
                   for step in job_of(name)["steps"]]
        scripts += GITLAB[UNCHANGED]["script"] + GITLAB[CHANGED]["script"]
        for script in scripts:
            self.assertNotRegex(script, r"\|\s*grep +(-\w*q|--quiet|-m)")

    def test_one_of_both_jobs_gates_each_pull_request(self):
        label = "contains(github.event.pull_request.labels.*.name, 'numerics')"
        self.assertEqual(job_of(UNCHANGED)["if"], "${{ !" + label + " }}")
        self.assertEqual(job_of(CHANGED)["if"], "${{ " + label + " }}")
        for name in (UNCHANGED, CHANGED):
            types = workflow(name)[True]["pull_request"]["types"]
            self.assertEqual(set(types),
                             {"opened", "reopened", "synchronize", "labeled", "unlabeled"})
        skipped, taken = GITLAB[UNCHANGED]["rules"][0], GITLAB[CHANGED]["rules"][0]
        self.assertEqual(skipped["when"], "never")
        self.assertTrue(taken["if"].endswith(skipped["if"]))

