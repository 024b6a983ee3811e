"""Reports for CI systems: red whenever the exit code is not 0, also of a command that ends
without a verdict, and never in place of a file that is none of ours."""

import json
import math
import shutil
import signal
import subprocess
import time

import junitparser

import ci_readers
from program import (BINARY, ENVIRONMENT, ProgramTest, FAIL, INCONCLUSIVE, INTERRUPTED, INVALID,
                     PASS, USAGE)
from sealed_log import edited_log

HOSTILE = "<script>]]>|`x`@octocat %0A,a:b\n::error::no\r\x1b[31m"
REPORTS = ("junit.xml", "summary.md")


class CiTest(ProgramTest):
    def setUp(self):
        self.place = self.folder / self._testMethodName
        self.place.mkdir()
        self.step = self.place / "step.md"
        self.step.write_text("Of an earlier command.\n")

    @property
    def options(self):
        return ("--junit", self.place / "junit.xml", f"--markdown={self.place}/summary.md",
                "--github")

    @property
    def github(self):
        return {"GITHUB_STEP_SUMMARY": str(self.step)}

    def run_ci(self, *arguments, **options):
        return self.run_isoloss(*arguments, *self.options, environment=self.github, **options)

    def suites(self):
        text = (self.place / "junit.xml").read_bytes()
        self.assertEqual(ci_readers.junit_faults(text.decode()), [])
        return list(junitparser.JUnitXml.fromstring(text))

    def exit_code_of(self, suite):
        """That the report says, beside those of its tests."""
        return int({p.name: p.value for p in suite.properties()}["exit_code"])

    def errors(self, result):
        """Annotations; nothing else that was printed is a command."""
        commands = ci_readers.workflow_commands(result.stdout)
        self.assertLessEqual(len(commands), 10)
        self.assertLessEqual({name for name, _, _ in commands}, {"error", "warning"})
        return [(properties, data) for name, properties, data in commands if name == "error"]

    def assert_red_error(self, result, code, *words, annotated=True):
        """No verdict: one test, an error, in every report."""
        self.assertEqual(result.returncode, code, result.stdout + result.stderr)
        suite, = self.suites()
        self.assertEqual((suite.tests, suite.failures, suite.errors, suite.skipped), (1, 0, 1, 0))
        text = (self.place / "summary.md").read_text()
        self.assertEqual(self.exit_code_of(suite), INTERRUPTED if code < 0 else code)
        page = ci_readers.rendered(text)
        for word in words:
            self.assertIn(word, next(iter(suite)).result[0].message)
            self.assertIn(word, page.text.replace("\u200b", ""))
        if annotated:
            (properties, data), = self.errors(result)
            self.assertIn("(error)", properties["title"])
            for word in words:
                self.assertIn(word, data)
            self.assertIn(text, self.step.read_text())
        self.assertTrue(self.step.read_text().startswith("Of an earlier command.\n"))


class Verdicts(CiTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.logs = sorted(cls.make_logs("logs").values())
        cls.write("wide.toml", "margin_percent = 50\nrequire_tuning = false\n")
        cls.write("narrow.toml", "margin_percent = 0.01\n")

    def outcome(self, *arguments):
        result = self.run_ci("gate", *self.logs, *arguments)
        suite, = self.suites()
        self.assertEqual(self.exit_code_of(suite), result.returncode)
        self.assertIn(f"exit code {result.returncode}", (self.place / "summary.md").read_text())
        self.assertEqual(self.step.read_text(), "Of an earlier command.\n" +
                         (self.place / "summary.md").read_text())
        return result, suite

    def test_a_pass_is_green_everywhere(self):
        result, suite = self.outcome("--policy", "wide.toml")

        self.assertEqual(result.returncode, PASS, result.stdout + result.stderr)
        self.assertEqual((suite.failures, suite.errors), (0, 0))
        self.assertGreater(suite.skipped, 0)
        self.assertEqual(self.errors(result), [])
        properties = {p.name: p.value for p in suite.properties()}
        self.assertEqual(properties["outcome"], "PASS")
        self.assertEqual(properties["L5 final_window limit"], "50 %")
        self.assertRegex(properties["L5 final_window statistic"], r"^-?[\d.e-]+ %$")

    def test_inconclusive_is_red_everywhere(self):
        result, suite = self.outcome("--policy", "narrow.toml")

        self.assertEqual(result.returncode, INCONCLUSIVE, result.stdout + result.stderr)
        self.assertGreater(suite.failures, 0)
        self.assertEqual(suite.errors, 0)
        cases = {case.name: case for case in suite}
        self.assertIsInstance(cases["verdict"].result[0], junitparser.Failure)
        self.assertEqual(cases["verdict"].result[0].type, "inconclusive")
        self.assertIn("(inconclusive)", self.errors(result)[0][0]["title"])

    def test_a_loss_that_is_nan_is_a_failure_and_no_error(self):
        for log in self.logs:
            shutil.copy(log, self.place)
        with edited_log(self.place / "mxfp8-seed1.h5") as log:
            log["steps/loss_nats"][4] = math.nan

        result = self.run_ci("gate", *sorted(self.place.glob("*.h5")), "--policy", "wide.toml")

        self.assertEqual(result.returncode, FAIL, result.stdout + result.stderr)
        suite, = self.suites()
        cases = {case.name: case for case in suite}
        self.assertEqual(suite.errors, 0)
        for name in ("verdict", "domains"):
            self.assertIsInstance(cases[name].result[0], junitparser.Failure)
            self.assertEqual(cases[name].result[0].type, "failure")
        self.assertTrue(any("nan" in data for _, data in self.errors(result)))


class WithoutVerdict(CiTest):
    def test_refused_input(self):
        self.assert_red_error(self.run_ci("gate", "none.h5"), INVALID, "none.h5")

    def test_an_unknown_option(self):
        self.assert_red_error(self.run_ci("gate", "none.h5", "--nonne"), USAGE, "--nonne")

    def test_text_that_is_hostile(self):
        result = self.run_ci("gate", HOSTILE + ".h5")

        self.assert_red_error(result, INVALID, "<script>]]>|`x`@octocat %0A,a:b")
        self.assertNotIn("<script>", (self.place / "summary.md").read_text())
        self.assertNotIn("<script>", (self.place / "junit.xml").read_text())

    def test_names_that_are_no_utf8(self):
        result = subprocess.run(
            [BINARY, "gate", b"\xff\xfe.h5", *map(str, self.options)], cwd=self.folder,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            encoding="utf-8", check=False, env={**ENVIRONMENT, **self.github})

        result.stderr = ""
        self.assert_red_error(result, INVALID, "\\xff\\xfe.h5")

    def test_an_experiment_with_a_long_and_hostile_name(self):
        name = json.dumps("@octocat ::error::no <script> " + "x" * 5000)
        path = self.write(f"{self.place.name}/hostile.toml",
                          self.tiny.read_text().replace('name = "tiny"', f"name = {name}", 1))
        self.assert_red_error(self.run_ci("verify", path), INVALID, "hostile.toml")

    def start(self, *options):
        process = subprocess.Popen(
            [BINARY, "verify", self.tiny, "--set=train.steps=40000", "--out", self.place / "runs",
             *map(str, self.options)], cwd=self.folder, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, encoding="utf-8",
            env={**ENVIRONMENT, **self.github})
        # It trains: what comes now is no end by itself.
        deadline = time.monotonic() + 120
        while not list((self.place / "runs").glob("*.journal")):
            self.assertIsNone(process.poll(), "it ended")
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)
        return process

    def end(self, process, number):
        process.send_signal(number)
        output, _ = process.communicate(timeout=120)
        return subprocess.CompletedProcess("", process.returncode, output, "")

    def test_a_signal(self):
        result = self.end(self.start(), signal.SIGTERM)

        self.assert_red_error(result, INTERRUPTED, "A signal ended it before a result.")

    def test_a_kill_leaves_red_reports_in_place_of_earlier_green_ones(self):
        for name in REPORTS:
            path = self.place / name
            path.parent.mkdir(exist_ok=True)
            path.touch()

        result = self.end(self.start(), signal.SIGKILL)

        self.assert_red_error(result, -signal.SIGKILL, "it is still at work, or was killed",
                              annotated=False)
        # What it said cannot be a command, even if nobody ends that.
        self.assertEqual(ci_readers.workflow_commands(result.stdout), [])

    def test_standard_output_that_takes_nothing(self):
        with open("/dev/full", "w") as full:
            result = self.run_ci("gate", "none.h5", stdout=full)
        result.stdout = ""
        self.assert_red_error(result, INVALID, "none.h5", annotated=False)


class Targets(CiTest):
    def assert_nothing_begun(self, result, *words, code=INVALID):
        self.assertEqual(result.returncode, code, result.stderr)
        for word in words:
            self.assertIn(word, result.stderr)

    def test_a_file_of_somebody_else_stays(self):
        for name in REPORTS:
            with self.subTest(name=name):
                for other in REPORTS:
                    (self.place / other).unlink(missing_ok=True)
                path = self.place / name
                path.parent.mkdir(exist_ok=True)
                path.write_text("[1]\n")

                for arguments in (("gate", "none.h5"), ("gate", "none.h5", "--nonne")):
                    result = self.run_ci(*arguments)

                    self.assertIn(result.returncode, (INVALID, USAGE))
                    self.assertEqual(path.read_text(), "[1]\n")
                    self.assertIn(str(path), result.stderr)
                # The others are red nevertheless, and so is the step.
                self.assertIn("ERROR", self.step.read_text())
                if name != "junit.xml":
                    self.assertIn("<error", (self.place / "junit.xml").read_text())
                path.unlink()

    def test_its_own_are_replaced(self):
        for _ in range(2):
            result = self.run_ci("gate", "none.h5")
        self.assert_red_error(result, INVALID, "none.h5")

    def test_what_is_no_file_or_folder(self):
        (self.place / "folder").mkdir()
        for option, path, word in (("--junit", "folder", "no file"),
                                   ("--junit", "none/a.xml", "no folder"),
                                   ("--markdown", "none/a.md", "no folder")):
            with self.subTest(option=option, path=path):
                self.assert_nothing_begun(
                    self.run_isoloss("gate", "none.h5", option, self.place / path), word, option)

    def test_an_empty_name_is_not_that_of_no_file(self):
        for option in ("--junit", "--markdown", "--out", "--policy"):
            self.assert_refused(self.run_isoloss("gate", "none.h5", option, ""), option,
                                "is empty", code=USAGE)

    def test_two_reports_are_not_one_file(self):
        self.assert_nothing_begun(self.run_isoloss(
            "gate", "none.h5", "--junit", self.place / "a", "--markdown",
            f"{self.place}/./a"), "both write it")

    def test_github_is_for_steps_of_github_actions(self):
        self.assert_nothing_begun(
            self.run_isoloss("gate", "none.h5", "--github",
                             environment={"GITHUB_STEP_SUMMARY": ""}), "GITHUB_STEP_SUMMARY")
        self.assert_nothing_begun(self.run_isoloss("gate", "none.h5", "--github", "--json"),
                                  "--json", code=USAGE)


del CiTest
