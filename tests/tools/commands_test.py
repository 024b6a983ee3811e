"""Commands that documents and help texts show: their options exist, and so do this project's files."""

import functools
import os
import pathlib
import re
import shlex
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = os.environ["ISOLOSS_BINARY"]
sys.path.insert(0, str(ROOT / "python"))
from isoloss.__main__ import COMMANDS as IN_PYTHON  # noqa: E402

# Folders of the project that commands read from; what they write may not be there yet.
OURS = ("docs/", "examples/", "experiments/", "golden/", "tests/", "tools/")


@functools.cache
def help_of(*words):
    """Help of the program or of one of its sub-commands; None if there is none."""
    done = subprocess.run([BINARY, *words, "--help"], text=True, capture_output=True, check=False)
    return done.stdout if done.returncode == 0 else None


def subcommands(text):
    """Names of the sub-commands that a help lists, group by group."""
    groups = re.findall(r"^(\w+):\n((?:  .*\n)+)", text, re.MULTILINE)
    return [name for title, listed in groups if title not in ("Options", "Positionals", "Example")
            for name in re.findall(r"^  ([a-z][\w-]*)", listed, re.MULTILINE)]


def options(text):
    return set(re.findall(r"(?m)^ +(?:-\w,)?(--[a-z-]+)", text)) | {"--help", "-h"}


def shown_commands(text):
    """Command lines in the blocks `sh` of a document."""
    for block in re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        yield from block.replace("\\\n", " ").splitlines()


def arguments_of_isoloss(line):
    """What stands behind the program's name, or None."""
    words = shlex.split(line, comments=True)
    for at, word in enumerate(words):
        if words[at - 1:at] == ["-m"] or set(words[at + 1:at + 2]) & set(IN_PYTHON):
            return None  # the Python package of that name
        if word == "isoloss" or word.endswith("/isoloss"):
            return words[at + 1:]
    return None


def faults(line, made=()):
    """What is wrong with a command line; nothing if it doesn't start isoloss. Paths of `made` are
    those that the reader has made by then."""
    words = arguments_of_isoloss(line)
    if words is None:
        return []
    path = []
    text = help_of()
    while words and words[0] in subcommands(text):
        path.append(words.pop(0))
        text = help_of(*path)
    if subcommands(text) and not {"--help", "--version"} & set(words):
        return [f"'{' '.join(words[:1])}' is no sub-command of isoloss {' '.join(path)}"]
    if "--" in words:  # a command of its own stands behind it
        words, inner = words[:words.index("--")], words[words.index("--") + 1:]
        return faults(shlex.join(["isoloss", *path, *words])) + faults(shlex.join(inner))
    known = options(text)
    found = [f"{word} is no option of isoloss {' '.join(path)}" for word in words
             if re.match(r"--?[a-z]", word) and word.split("=")[0] not in known]
    return found + [f"{word} doesn't exist" for index, word in enumerate(words)
                    if word.startswith(OURS) and words[index - 1] != "--out"
                    and word not in made and not list(ROOT.glob(word))]


class Commands(unittest.TestCase):
    def test_of_documents_exist(self):
        documents = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/**/*.md")),
                     *sorted(ROOT.glob("experiments/*/README.md"))]
        seen = 0
        for document in documents:
            text = document.read_text(encoding="utf-8")
            made = re.findall(r"`mkdir -p ([^`]+)`", text)
            for line in shown_commands(text):
                seen += arguments_of_isoloss(line) is not None
                with self.subTest(document=document.name, line=line):
                    self.assertEqual(faults(line, made), [])
        self.assertGreater(seen, 30)

    def test_of_help_texts_exist(self):
        seen = 0
        pending = [()]
        while pending:
            path = pending.pop()
            text = help_of(*path)
            self.assertIsNotNone(text, path)
            pending += [(*path, name) for name in subcommands(text)]
            examples = re.search(r"(?m)^Examples?:\n((?: .*\n)+)", text)
            for line in (examples[1].replace("\\\n", " ").splitlines() if examples else ()):
                seen += 1
                with self.subTest(help=" ".join(path), line=line):
                    self.assertEqual(faults(line), [])
        self.assertGreater(seen, 10)

    def test_faults_are_found(self):
        for line, fault in (("isoloss runn e.toml", "'runn' is no sub-command"),
                            ("isoloss golden chekc", "'chekc' is no sub-command of isoloss golden"),
                            ("build/release/bin/isoloss run e.toml --resum", "--resum is no option"),
                            ("isoloss run golden/none/x.toml", "golden/none/x.toml doesn't exist")):
            self.assertIn(fault, "; ".join(faults(line)))
        self.assertEqual(faults("cmake --preset dev"), [])
        self.assertEqual(faults("isoloss run e.toml --set a=1 --out golden/new"), [])
        self.assertEqual(faults("isoloss golden check golden/own", made=["golden/own"]), [])


if __name__ == "__main__":
    unittest.main()
