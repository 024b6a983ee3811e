"""Reports for CI systems, read by parsers of others: a report with one of each status,
and one whose every text is hostile (tests/document/result_samples.h)."""

import os
import pathlib
import re
import subprocess
import tempfile
import unittest

import junitparser

import ci_readers

SCRIPT = "<script>alert(1)</script> ]]> <!-- --> &amp;"
SHOWN = ("::error file=a::boo\\n##[error]boo\\x0d\\n%0A%25 @octocat a@b.example",
         "\\x1b[31m \\x01\\x7f \\xff\\xfe \\u{202e} ", "\U0001f600\\x00 end")
# What XML 1.0 lacks.
NO_XML = "\\u{fffe} \\u{ffff}"


class Samples(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="isoloss-ci-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        subprocess.run([os.environ["ISOLOSS_CI_SAMPLES"], cls.folder], check=True)

    def read(self, name):
        return (self.folder / name).read_bytes().decode("utf-8")


class Junit(Samples):
    def test_keeps_to_the_schema(self):
        for name in ("sample", "hostile"):
            self.assertEqual(ci_readers.junit_faults(self.read(f"{name}-junit.xml")), [])

    def test_the_rules_find_faults(self):
        for text, fault in (
                ("<testsuites><testsuite name='a' tests='0' failures='0'/></testsuites>",
                 "testsuite has no errors"),
                ("<testsuites skipped='1'/>", "testsuites has skipped"),
                ("<testsuites><property name='a' value='b'/></testsuites>",
                 "testsuites holds property"),
                ("<testsuites>a</testsuites>", "testsuites holds text"),
                ("<suites/>", "the root is suites")):
            self.assertIn(fault, ci_readers.junit_faults(text))

    def test_a_parser_reads_what_was_meant(self):
        suites = list(junitparser.JUnitXml.fromstring(self.read("sample-junit.xml").encode()))
        first = suites[0]
        self.assertEqual([suite.name for suite in suites],
                         ["e: mxfp8 against bf16", "e: null against bf16"])
        counts = (first.tests, first.failures, first.errors, first.skipped)
        self.assertEqual(counts, (10, 4, 2, 3))
        # Not what the attributes say, but what the elements are.
        first.update_statistics()
        self.assertEqual((first.tests, first.failures, first.errors, first.skipped), counts)
        cases = {(case.classname, case.name): case for case in first}
        case = cases["e: mxfp8 against bf16.L5", "final_window"]
        self.assertIsInstance(case.result[0], junitparser.Failure)
        self.assertEqual(case.result[0].message, "final loss: it was measured")
        for line in ("statistic: 0.4 %", "limit: 0.25 %", "evidence: 4 seed pairs", "- seed 2",
                     "next: look at seed 1"):
            self.assertIn(line, case.result[0].text.split("\n"))
        types = {name: type(case.result[0]) if case.result else None
                 for (_, name), case in cases.items()}
        self.assertEqual(types, {
            "verdict": junitparser.Failure, "complete": None, "first": junitparser.Skipped,
            "second": junitparser.Skipped, "level": junitparser.Skipped,
            "valid": junitparser.Error, "readable": junitparser.Error,
            "early_window": junitparser.Failure, "final_window": junitparser.Failure,
            "held_out": junitparser.Failure})
        properties = {p.name: p.value for p in first.properties()}
        self.assertEqual(properties["L5 final_window lower"], "0.35 %")
        self.assertEqual(properties["L3 valid limit"], "inf nats")
        self.assertEqual(properties["exit_code"], "1")

    def test_hostile_text_stays_text(self):
        first, second = junitparser.JUnitXml.fromstring(self.read("hostile-junit.xml").encode())
        self.assertEqual(second.name, first.name + " (2)")
        cases = list(first)
        self.assertEqual(len({(case.classname, case.name) for case in cases}), 15)
        for text in (first.name, cases[1].name, cases[1].result[0].message,
                     cases[1].classname):
            for part in (SCRIPT, *SHOWN, NO_XML):
                self.assertIn(part, text)
        # In the text line ends stay.
        self.assertIn(SCRIPT, cases[1].result[0].text)
        self.assertIn("\\xff\\xfe", cases[1].result[0].text)


class Markdown(Samples):
    TAGS = {"h2", "p", "strong", "ul", "li", "table", "thead", "tbody", "tr", "th", "td", "code",
            "details", "summary"}

    def test_a_renderer_sees_text_and_our_marks_only(self):
        for name in ("sample", "hostile"):
            page = ci_readers.rendered(self.read(f"{name}-summary.md"))
            self.assertEqual(set(page.tags) - self.TAGS, set(), name)
            self.assertEqual(page.rows[:3], [2, 2, 2])
            self.assertEqual(set(page.rows[3:]), {7})
        text = page.text.replace("\u200b", "")
        for part in (SCRIPT, *SHOWN):
            self.assertIn(part, text)
        self.assertEqual(page.tags.count("h2"), 2)
        # Each item of a list is one, whatever it begins with.
        self.assertIn("\n1. b\n+ c\nd\n# e\n> f\n~~~\n", text)

    def test_nothing_in_it_is_a_mention_or_a_link(self):
        text = self.read("hostile-summary.md")
        self.assertNotRegex(text, r"@\w|https?:/|www\.|GH-\d|(?<!&)#\d|!\d")
        # The comment by which a bot finds it is the only HTML that is no name.
        self.assertEqual(set(re.findall(r"<[^>]*>", text)),
                         {"<!-- isoloss -->", "<code>", "</code>"})
        marks = set(re.findall(r"<[^>]*>", self.read("sample-summary.md")))
        self.assertEqual(marks, {"<!-- isoloss -->", "<code>", "</code>", "<details>",
                                 "</details>", "<summary>", "</summary>"})


class Annotations(Samples):
    def test_the_runner_reads_what_was_meant(self):
        commands = ci_readers.workflow_commands(self.read("sample-annotations.txt"))
        self.assertEqual([name for name, _, _ in commands], ["error"] * 5 + ["warning"] * 2)
        self.assertEqual(commands[3], (
            "error", {"title": "isoloss: e: mxfp8 against bf16: final loss (failure)",
                      "file": "e/experiment.toml", "line": "1"},
            "it was measured\nseed 1\nseed 2\nnext: look at seed 1"))

    def test_hostile_text_is_no_command_of_its_own(self):
        commands = ci_readers.workflow_commands(self.read("hostile-annotations.txt"))
        self.assertEqual(len(commands), 10)
        for name, properties, data in commands:
            self.assertEqual(name, "error")
            self.assertEqual(set(properties), {"title", "file", "line"})
            self.assertTrue(properties["file"].startswith("a,b:c=d%2C/<script>"), properties)
            self.assertIn("\n::error file=a::boo\n##[error]boo\\x0d\n%0A%25 @octocat", data)

    def test_the_reader_finds_commands(self):
        output = "a\n ::warning title=b%2Cc::d%0Ae\n::stop-commands::t\n::error::f\n::t::\n##[g]\n"
        self.assertEqual(ci_readers.workflow_commands(output), [
            ("warning", {"title": "b,c"}, "d\ne"), ("##", {}, "##[g]")])


del Samples
