"""The commands of README.md and docs/usage.md, in the order in which they stand there, in one
scratch folder.

They run as they stand, but for SHORTER: a smaller model and fewer runs, so that all take a minute.
A comment `exit code N` behind a command is what it must end with, else 0. A verdict that is stated
as other than a pass is that of the large model: of the smaller one any verdict will do.
"""

import collections
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = pathlib.Path(os.environ["ISOLOSS_BINARY"]).resolve()

# The second one goes on with what the first has left.
DOCUMENTS = ("README.md", "docs/usage.md")
# What stands there, and what is run. Each must stand there at least once.
SHORTER = (
    ('preset = "dsv3-nano"', """preset = "dsv3-nano"
dim = 32
n_heads = 2
kv_lora_rank = 8
qk_nope_head_dim = 8
qk_rope_head_dim = 4
v_head_dim = 8
dense_hidden_dim = 32
moe_hidden_dim = 32"""),
    ('source = "files"', 'source = "files"\nsequence_length = 16'),
    ("steps = 300", "steps = 20"),
    # Any number of runs of any of the mutants: one of one.
    ("--benign 300", "--benign 1 --seeds 1 --mutants scale_floor"),
)
# What is tried elsewhere.
ELSEWHERE = {
    "tools/demo": "tools/dev/fresh demo",
    "tools/test": "tools/dev/fresh test",
    "build/release/bin/isoloss golden check --exact": "the test Golden.check",
}
# Exit codes of a verdict: pass, fail, inconclusive.
VERDICTS = {0, 1, 4}
# Two cores are too few for four processes of Open MPI, and the test may run as root.
LAUNCHER = {"OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}

File = collections.namedtuple("File", "name text")
Command = collections.namedtuple("Command", "text code")


def steps_of(document):
    """Files and commands of a document, in its order. A file is named in the prose above it."""
    prose_start = 0
    for block in re.finditer(r"^```(\w*)\n(.*?)^```$", document, re.MULTILINE | re.DOTALL):
        prose = document[prose_start:block.start()]
        prose_start = block.end()
        if block[1] == "toml":
            names = re.findall(r"`(\w+\.toml)`", prose)
            if not names:
                raise ValueError(f"no `NAME.toml` stands in the prose above\n{block[2]}")
            yield File(names[-1], block[2])
        elif block[1] == "sh":
            for line in block[2].replace("\\\n", " ").splitlines():
                text, _, comment = line.partition(" #")
                code = re.search(r"exit code (\d+)", comment)
                yield Command(text.strip(), int(code[1]) if code else 0)


def shorter(text, used):
    for old, new in SHORTER:
        if old in text:
            text = text.replace(old, new)
            used.add(old)
    return text


class Steps(unittest.TestCase):
    def test_are_found_in_their_order(self):
        document = ("Write `a.toml`, then\n```toml\nx = 1\n```\nand\n```sh\nrun a.toml   # it\n"
                    "fail \\\n  b   # exit code 3: no b\n```\n```\nnot this\n```\n")
        self.assertEqual(list(steps_of(document)), [
            File("a.toml", "x = 1\n"), Command("run a.toml", 0), Command("fail    b", 3)])

    def test_a_file_without_a_name_is_refused(self):
        with self.assertRaisesRegex(ValueError, "no `NAME.toml`"):
            list(steps_of("It is\n```toml\nx = 1\n```\n"))


class Readme(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="isoloss-readme-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        for entry in ROOT.iterdir():
            if entry.name not in ("build", "runs", ".git"):
                (self.folder / entry.name).symlink_to(entry)
        (self.folder / "build").mkdir()
        (self.folder / "build" / "release").symlink_to(BINARY.parents[1])

    def run_command(self, command):
        done = subprocess.run(
            ["bash", "-c", command.text], cwd=self.folder, env={**os.environ, **LAUNCHER},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            encoding="utf-8", timeout=900, check=False)
        judges = re.search(r"isoloss (verify|gate) ", command.text) and command.code in (1, 4)
        self.assertIn(done.returncode, VERDICTS if judges else {command.code},
                      f"{command.text}\n{done.stdout[-3000:]}")

    def test_its_commands_work_in_their_order(self):
        elsewhere, used = set(), set()
        for step in (step for document in DOCUMENTS
                     for step in steps_of((ROOT / document).read_text(encoding="utf-8"))):
            if isinstance(step, File):
                text = shorter(step.text, used)
                (self.folder / step.name).write_text(text, encoding="utf-8")
            elif step.text in ELSEWHERE:
                elsewhere.add(step.text)
            elif step.text.startswith("mpirun ") and not shutil.which("mpirun"):
                print(f"not run, since no mpirun is installed: {step.text}")
            else:
                with self.subTest(command=step.text):
                    self.run_command(step._replace(text=shorter(step.text, used)))
        self.assertEqual(elsewhere, set(ELSEWHERE), "what is tried elsewhere")
        self.assertEqual(used, {old for old, _ in SHORTER}, "what is made shorter")


if __name__ == "__main__":
    unittest.main()
