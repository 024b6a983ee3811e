"""What documents point to exists: links, files of the project, keys of an experiment."""

import os
import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Nobody's documents: what builds and runs leave.
LEFT_OUT = {"build", "runs", "node_modules"}
# Tells of what was there, so only its links are looked at.
HISTORY = ROOT / "CHANGELOG.md"
FOLDERS = ("include", "lib", "tools", "tests", "golden", "experiments", "docs", ".ci")
# Of a source file, many documents give the path below one of these folders.
LIBRARY = ROOT / "lib" / "isoloss"
PUBLIC = ROOT / "include" / "isoloss"
SOURCES = (".cc", ".h", ".def")
SECTIONS = ("model", "data", "train", "parallel", "log", "routing", "gate")
FILES = r"(?:md|toml|json|py|h5|cc|h)"


def documents():
    found = []
    for folder, folders, files in os.walk(ROOT):
        folders[:] = [name for name in folders
                      if name not in LEFT_OUT and (name == ".ci" or not name.startswith("."))]
        found += [pathlib.Path(folder) / file for file in files if file.endswith(".md")]
    return sorted(found)


def prose_of(text):
    """Without blocks of code."""
    return re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)


def code_of(text):
    """What stands in backticks, on one line each; backticks pair up within a paragraph."""
    for paragraph in re.split(r"\n\s*\n|\n(?=\|)", prose_of(text)):
        for code in re.findall(r"`([^`]+)`", paragraph):
            yield " ".join(code.split())


def anchors_of(text):
    """Of its headings, as GitHub makes them."""
    headings = re.findall(r"(?m)^#+ (.*)$", prose_of(text))
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")
            for heading in headings}


def broken_links(text, folder):
    """Relative links that lead nowhere from a document in `folder`."""
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`]*`", "", prose_of(text))):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = folder / path
        if path and not target.exists():
            broken.append(link)
        elif anchor and (not path or target.suffix == ".md"):
            of = target.read_text(encoding="utf-8") if path else text
            if anchor not in anchors_of(of):
                broken.append(link)
    return broken


def variants(path):
    """a/{b,c} stands for a/b and a/c."""
    braces = re.search(r"\{([^{}]*,[^{}]*)\}", path)
    if not braces:
        return [path]
    return [variant for choice in braces[1].split(",")
            for variant in variants(path[:braces.start()] + choice + path[braces.end():])]


def exists(path, base):
    """Also if some file fits: <name>, NAME, ARM and * stand for anything."""
    if (base / path).exists():
        return True
    pattern = re.sub(r"<[^<>/]+>|NAME|ARM", "*", path).rstrip("/")
    return "*" in pattern and any(base.glob(pattern))


def missing_paths(text):
    """Paths of this project in backticks that are not there, nor in a folder that the reader makes."""
    made = tuple(f"{folder}/" for folder in re.findall(r"`mkdir -p ([^`]+)`", text))
    modules = [folder.name for folder in LIBRARY.iterdir() if folder.is_dir()]
    missing = []
    for code in code_of(text):
        path = re.sub(r":\d[\d,:-]*$", "", code.split()[0])
        top = path.split("/")[0]
        if "/" not in path or (path + "/").startswith(made):
            continue
        if top in FOLDERS:
            bases = (ROOT,)
        elif top in modules and path.endswith(SOURCES):
            bases = (LIBRARY, PUBLIC)
        else:
            continue
        if not all(any(exists(variant, base) for base in bases) for variant in variants(path)):
            missing.append(code)
    return missing


def documented_keys(text):
    """`section.key` of all rows of the tables of docs/experiment.md."""
    keys = set()
    for heading, body in re.findall(r"(?ms)^## (.*?)$(.*?)(?=^## |\Z)", text):
        sections = re.findall(r"`\[(\w+)\]`", heading)
        for table in re.findall(r"(?m)^\| key \|.*\n\|[-|]+\|\n((?:\|.*\n)+)", body):
            for key in re.findall(r"(?m)^\| `([\w.]+)` \|", table):
                keys.add(key if "." in key else f"{sections[0]}.{key}" if sections else key)
    return keys


def unknown_keys(text, known):
    """Keys of an experiment in backticks or behind --set that are in no table."""
    section = "|".join(SECTIONS)
    named = [re.match(rf"((?:{section})\.[\w*]+)(?:$|[ =])", code) for code in code_of(text)]
    keys = [match[1] for match in named if match]
    keys += re.findall(rf"--set ['\"]?((?:{section})\.\w+)=", text)
    return [key for key in keys if not re.search(rf"\.{FILES}$", key) and not any(
        re.fullmatch(key.replace(".", r"\.").replace("*", r"\w*"), other) for other in known)]


class Documents(unittest.TestCase):
    def setUp(self):
        self.documents = {document: document.read_text(encoding="utf-8")
                          for document in documents()}
        self.assertIn(ROOT / "docs" / "experiment.md", self.documents)

    def test_links_lead_somewhere(self):
        for document, text in self.documents.items():
            with self.subTest(document=str(document.relative_to(ROOT))):
                self.assertEqual(broken_links(text, document.parent), [])

    def test_paths_of_the_project_exist(self):
        for document, text in self.documents.items():
            if document != HISTORY:
                with self.subTest(document=str(document.relative_to(ROOT))):
                    self.assertEqual(missing_paths(text), [])

    # That the tables have every key of the program: tests/train/experiment_keys_test.cc.
    def test_keys_are_those_of_the_tables(self):
        known = documented_keys(self.documents[ROOT / "docs" / "experiment.md"])
        self.assertEqual({key.split(".")[0] for key in known if "." in key} & set(SECTIONS),
                         set(SECTIONS))
        for document, text in self.documents.items():
            if document != HISTORY:
                with self.subTest(document=str(document.relative_to(ROOT))):
                    self.assertEqual(unknown_keys(text, known), [])

    def test_the_table_of_levels_says_all_of_each(self):
        # That docs/gate.md has every level: tests/gate/ladder_test.cc.
        table = self.documents[ROOT / "docs" / "gate.md"].partition("\n### ")[0]
        levels = re.findall(r"(?m)^\| (L\d [a-z ]+) \| (.*) \|$", table)
        self.assertGreater(len(levels), 6)
        self.assertEqual(len({level for level, _ in levels}), len(levels))
        for level, cells in levels:
            # Question, evidence, whether it decides, what a PASS does not say.
            self.assertEqual([bool(cell.strip()) for cell in cells.split(" | ")], [True] * 4, level)


class Faults(unittest.TestCase):
    """Each check finds what it is there for, and nothing else."""

    def test_links(self):
        text = ("# A b\n[x](style.md) [x](none.md) ![x](images/none.png) [x](#a-b) [x](#c)\n"
                "[x](architecture.md#none) [x](https://a.b/c) `[x](code.md)`\n```\n[x](block.md)\n```\n")
        self.assertEqual(broken_links(text, ROOT / "docs"),
                         ["none.md", "images/none.png", "#c", "architecture.md#none"])

    def test_paths(self):
        text = ("`docs/style.md` `docs/none.md` `tests/<module>/CMakeLists.txt` `lib/<a>/none.cc`\n"
                "`tools/demo --none` `lib/isoloss/gate/ladder.cc:12` `lib/isoloss/gate/none.cc:12`\n"
                "`gate/ladder.cc` `gate/none.cc` `golden/curves/NAME/` `tools/{demo,none}`\n"
                "`docs/*.md` `docs/*.none` `other:docs/none.md` `train/tokens`\n"
                "`mkdir -p golden/own` `golden/own` `golden/own/a.toml` `golden/ownnone/a.toml`\n")
        self.assertEqual(missing_paths(text), [
            "docs/none.md", "lib/<a>/none.cc", "lib/isoloss/gate/none.cc:12", "gate/none.cc",
            "tools/{demo,none}", "docs/*.none", "golden/ownnone/a.toml"])

    def test_keys(self):
        known = documented_keys("## `[train]`\n\n| key | default |\n|---|---|\n| `steps` | `3` |\n\n"
                                "## `[log]`, `[gate]`\n\n| key | x |\n|---|---|\n| `log.every` | |\n"
                                "\n## Else\n\n| preset | x |\n|---|---|\n| `nano` | |\n")
        self.assertEqual(known, {"train.steps", "log.every"})
        text = ("`train.steps = 5` `train.stepz` `log.ev*` `log.z*` `model.md` `model.dim=3`\n\n"
                "```sh\nisoloss run e.toml --set train.steps=3 --set log.none=1\n```\n")
        self.assertEqual(unknown_keys(text, known),
                         ["train.stepz", "log.z*", "model.dim", "log.none"])


if __name__ == "__main__":
    unittest.main()
