"""docs/your-trainer.md: its commands end as it says, and print what it shows.

Losses differ between processors, so of a figure with a decimal point only its place is compared,
and likewise of large counts and of the counts of a table that depend on roundings.
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools/dev"))
from document_steps import Command, steps_of  # noqa: E402

DOCUMENT = ROOT / "docs/your-trainer.md"
BINARY = pathlib.Path(os.environ["ISOLOSS_BINARY"]).resolve()
# The margin is no measurement.
FIXED = r"0\.25 %"
LOOSE = r"[+-]?\d+\.\d+(?:e[+-]\d+)?|\d{4,}"
# A row of check-tensors: elements, equal, flips, others. Machines agree only on whether there are
# others.
ROW = r"(?m)^(  \w[\w ]*? +\d+) +\d+ +\d+ +(\d+)$"
ANY, SOME = "\x00", "\x01"


def blocks_of(document):
    """Blocks `sh`, `yaml` and without a language, in their order."""
    for block in re.finditer(r"^```(\w*)\n(.*?)^```$", document, re.MULTILINE | re.DOTALL):
        yield block[1], block[2], block[0] + "\n"


def pattern_of(text):
    """What printed text must match; spaces and ends of lines do not count."""
    def row(found):
        return f"{found[1]} {ANY} {ANY} {'0' if found[2] == '0' else SOME}"

    words = re.sub(r"\s+", " ", re.sub(ROW, row, text)).strip()
    pattern = ""
    for part in re.split(f"({FIXED}|{LOOSE})", words):
        pattern += rf"(?:{LOOSE}|\d+)" if re.fullmatch(LOOSE, part) else re.escape(part)
    return pattern.replace(r"\ ", r"\s+").replace(ANY, r"\d+").replace(SOME, r"[1-9]\d*")


def missing(shown, printed):
    """The first part of what is shown, between `...`, that was not printed behind the others."""
    at = 0
    for part in re.split(r"(?m)^\.\.\.\n", shown):
        found = re.compile(pattern_of(part)).search(printed, at)
        if not found:
            return part
        at = found.end()
    return None


class Matching(unittest.TestCase):
    PRINTED = ("PASS  a like b within 0.25 %: final\n   loss -0.5 % (4 seed pairs)\n"
               "  fprop            10240      10201         39          0\nend\n")

    def test_looks_at_words_and_order_and_not_at_figures(self):
        for shown in ("PASS  a like b within 0.25 %: final loss +1.25 % (4 seed pairs)\n",
                      "PASS  a\n...\nend\n",
                      "  fprop   10240  10240  7  0\n"):
            self.assertIsNone(missing(shown, self.PRINTED), shown)

    def test_finds_what_is_not_there(self):
        for shown in ("FAIL  a\n", "loss 0.25 %\n", "(3 seed pairs)\n", "end\n...\nPASS\n",
                      "  fprop   10240  10201  39  4\n", "  dgrad   10240  10201  39  0\n"):
            self.assertIsNotNone(missing(shown, self.PRINTED), shown)


class YourTrainer(unittest.TestCase):
    def setUp(self):
        place = tempfile.TemporaryDirectory(prefix="isoloss-trainer-")
        self.addCleanup(place.cleanup)
        top = pathlib.Path(place.name)
        (top / "isoloss").symlink_to(ROOT)
        programs = top / "bin"
        programs.mkdir()
        (programs / "isoloss").symlink_to(BINARY)
        # One that has torch.
        (programs / "python3").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
        (programs / "python3").chmod(0o755)
        self.folder = top / "gate"
        self.folder.mkdir()
        self.summary = top / "summary.md"
        self.environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}",
                            "GITHUB_STEP_SUMMARY": str(self.summary)}

    def run_command(self, text, codes):
        done = subprocess.run(["bash", "-e", "-o", "pipefail", "-c", text], cwd=self.folder,
                              env=self.environment, stdin=subprocess.DEVNULL, check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8")
        self.assertIn(done.returncode, codes, f"{text}\n{done.stdout[-3000:]}")
        return done.stdout

    def test_commands_end_as_stated_and_print_what_is_shown(self):
        printed, seen = "", {"sh": 0, "yaml": 0, "": 0}
        for language, text, block in blocks_of(DOCUMENT.read_text(encoding="utf-8")):
            seen[language] += 1
            if language == "sh":
                for command in steps_of(block):
                    self.assertIsInstance(command, Command)
                    printed += self.run_command(command.text, command.codes)
            elif language == "yaml":
                for step in yaml.safe_load(text):
                    if "run" in step:
                        self.run_command(step["run"], [0])
                self.assertIn("PASS", self.summary.read_text(encoding="utf-8"))
            else:
                self.assertIsNone(missing(text, printed), printed)
                printed = ""
        self.assertTrue(all(seen.values()), seen)
        self.assertEqual(printed, "", "commands at the end, of which nothing is shown")


if __name__ == "__main__":
    unittest.main()
