"""The commands of README.md, the tutorial and the pages that go on from them, in their order.

They run as they stand, but for what is made shorter below: a smaller model and fewer runs. A verdict
that is stated as other than a pass, and one of a command that was made shorter, is that of the large
model: of the smaller one any verdict will do.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "dev"))

from document_steps import Command, File, script_of, steps_of  # noqa: E402

BINARY = pathlib.Path(os.environ["ISOLOSS_BINARY"]).resolve()

TINY = ("dim = 32", "n_heads = 2", "kv_lora_rank = 8", "qk_nope_head_dim = 8",
        "qk_rope_head_dim = 4", "v_head_dim = 8", "dense_hidden_dim = 32", "moe_hidden_dim = 32")
PRESET = 'preset = "dsv3-nano"'
SMALL_MODEL = (PRESET, "\n".join((PRESET, *TINY)))
SHORT_RUN = " ".join(f"--set {key.replace(' ', '')}" for key in (
    *(f"model.{key}" for key in TINY), "data.sequence_length=16", "train.steps=20",
    "train.warmup_steps=4", "train.seeds=[1,2]", "log.eval_every=20", "log.eval_sequences=4"))

# Of the oracle's cases one, and few steps of it. `isoloss lab probe` of docs/usage.md tries all of them.
FAST_POLICY = "fast.toml"

# What is tried elsewhere.
ELSEWHERE = {
    "tools/demo": "tools/dev/fresh demo",
    "tools/test": "tools/dev/fresh test",
    "isoloss golden check --exact": "the test Golden.check",
}
# Exit codes of a verdict: pass, fail, inconclusive.
VERDICTS = {0, 1, 4}
# Two cores are too few for four processes of Open MPI, and the test may run as root. What git is told
# of this user must not matter.
ENVIRONMENT = {"OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_ALLOW_RUN_AS_ROOT": "1",
               "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "GIT_CONFIG_GLOBAL": os.devnull,
               "GIT_CONFIG_SYSTEM": os.devnull}


def is_committed():
    """Whether the program is of a clean commit: else goldens that it makes are drafts."""
    version = subprocess.run([BINARY, "--version"], capture_output=True, encoding="utf-8",
                             check=True).stdout
    return "-dirty" not in version and "unknown" not in version


def shorter(text, shortenings, used):
    for old, new in shortenings:
        if old in text:
            text = text.replace(old, new)
            used.add(old)
    return text


class Steps(unittest.TestCase):
    DOCUMENT = ("Write `a.toml`, then\n```toml\nx = 1\n```\nand\n```sh\nrun a.toml   # it\n"
                "\nfail \\\n  b   # exit code 3 or 4: no b\nput   # as root: it\nsend   # with your server\n"
                "```\n```\nnot this\n```\nNow `c/d.py`:\n```python\ny = 2  # two\n```\n")

    def test_are_found_in_their_order(self):
        self.assertEqual(list(steps_of(self.DOCUMENT)), [
            File("a.toml", "x = 1\n"), Command("run a.toml", [0], ""),
            Command("fail    b", [3, 4], ""), Command("put", [0], "as root"),
            Command("send", [0], "with your server"),
            File("c/d.py", "y = 2  # two\n")])

    def test_a_file_without_a_name_is_refused(self):
        with self.assertRaisesRegex(ValueError, "no `NAME.toml`"):
            list(steps_of("It is\n```toml\nx = 1\n```\n"))

    def run_script(self, document):
        with tempfile.TemporaryDirectory(prefix="isoloss-steps-") as folder:
            return subprocess.run(["bash", "-c", script_of(document)], cwd=folder, check=False,
                                  stdout=subprocess.PIPE, encoding="utf-8")

    def test_of_a_script_run_in_one_shell_but_for_those_with_a_server(self):
        done = self.run_script("`e/f.toml`\n```toml\n'$x'\n```\n```sh\ncd e   # as root\ncat f.toml\n"
                               "false   # exit code 0 or 1\nsend   # with your server\n```\n")

        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("\n'$x'\n", done.stdout)
        self.assertNotIn("send", done.stdout)

    def test_of_a_script_end_at_an_exit_code_that_is_not_stated(self):
        done = self.run_script("```sh\ntrue   # exit code 3\necho on\n```\n")

        self.assertEqual(done.returncode, 1)
        self.assertIn("exit code 0 in place of 3", done.stdout)
        self.assertNotIn("\non\n", done.stdout)


class Documents(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="isoloss-readme-")
        self.addCleanup(folder.cleanup)
        self.programs = pathlib.Path(folder.name) / "bin"
        self.programs.mkdir()
        (self.programs / "isoloss").symlink_to(BINARY)
        # One that has h5py.
        (self.programs / "python3").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
        (self.programs / "python3").chmod(0o755)
        self.place = pathlib.Path(folder.name) / "place"
        # Where commands begin; they may go elsewhere.
        self.folder = pathlib.Path(folder.name) / "isoloss"
        self.folder.mkdir()
        for entry in ROOT.iterdir():
            if entry.name not in ("build", "runs", ".git"):
                (self.folder / entry.name).symlink_to(entry)
        (self.folder / "fast.toml").write_text('probe_cases = ["plain"]\nparted_steps = 1\n')
        (self.folder / "build").mkdir()
        (self.folder / "build" / "release").symlink_to(BINARY.parents[1])

    def run_command(self, command, text):
        environment = {**os.environ, **ENVIRONMENT,
                       "PATH": f"{self.programs}:{os.environ['PATH']}"}
        done = subprocess.run(
            ["bash", "-c", f'{text}\ncode=$?; pwd > "{self.place}"; exit $code'],
            cwd=self.folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, encoding="utf-8", timeout=900, check=False)
        # The experiments are shortened, which leaves no verdict what it is.
        judges = re.search(r"isoloss (verify|gate) ", text) and "--dry-run" not in text
        self.assertIn(done.returncode, VERDICTS if judges else command.codes,
                      f"{text}\n{done.stdout[-3000:]}")
        self.folder = pathlib.Path(self.place.read_text(encoding="utf-8").strip())

    def go_through(self, documents, shortenings, elsewhere=()):
        """Each document goes on with what the one before has left."""
        seen, used = set(), set()
        for step in (step for document in documents
                     for step in steps_of((ROOT / document).read_text(encoding="utf-8"))):
            if isinstance(step, File):
                file = self.folder / step.name
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(shorter(step.text, shortenings, used), encoding="utf-8")
            elif step.text in elsewhere:
                seen.add(step.text)
            elif step.text.startswith("mpirun ") and not shutil.which("mpirun"):
                print(f"not run, since no mpirun is installed: {step.text}")
            elif not step.mark:
                with self.subTest(command=step.text):
                    self.run_command(step, shorter(step.text + "\n", shortenings, used).strip())
        self.assertEqual(seen, set(elsewhere), "what is tried elsewhere")
        self.assertEqual(used, {old for old, _ in shortenings}, "what is made shorter")

    def test_readme_and_usage_work_in_their_order(self):
        self.go_through(("README.md", "docs/usage.md"), (
            SMALL_MODEL,
            # However busy this machine is, the budget suffices.
            ("--candidate mxfp8_floor", "--candidate mxfp8_floor --budget 1000 --no-pilot"),
            ('source = "files"', 'source = "files"\nsequence_length = 16'),
            ("steps = 140\nwarmup_steps = 20\nlr = 0.012\nseeds = [1, 2, 3, 4, 5, 6, 7, 8]",
             "steps = 20\nwarmup_steps = 4\nlr = 0.012\nseeds = [1, 2, 3, 4]"),
            ("[arms.bf16]\n", f'[gate]\npolicy = "{FAST_POLICY}"\n\n[arms.bf16]\n'),
        ), ELSEWHERE)

    def test_tutorial_and_tasks_work_in_their_order(self):
        drafts = () if is_committed() else (
            ("golden update", "golden update --draft"), ("golden check", "golden check --draft"))
        self.go_through((
            "docs/tutorial.md", "docs/tasks/compare-two-runs.md", "docs/tasks/gate-a-commit.md",
            "docs/tasks/write-a-recipe.md", "docs/tasks/read-a-log-in-python.md"), (
                SMALL_MODEL,
                ("Eigen/src/Core corpus", "Eigen/src/Core/util corpus"),
                ("sequence_length = 64", "sequence_length = 16"),
                ('paths = ["corpus"]', 'paths = ["corpus"]\nsequence_length = 16'),
                ("sequences_per_batch = 2", "sequences_per_batch = 1"),
                ("[train]\nsteps = 20\n", "[train]\nsteps = 3\nwarmup_steps = 1\n"),
                ("steps = 140\nwarmup_steps = 20\nseeds = [1, 2, 3, 4, 5, 6, 7, 8]",
                 "steps = 5\nwarmup_steps = 2\nseeds = [1]"),
                # However busy this machine is, the budget suffices; then it is not used up.
                ("--name first --budget 3", "--name first --budget 1000"),
                ("verify first.toml\n", f"verify first.toml --no-oracle {SHORT_RUN}"),
                ("verify first.toml --dry", f"verify first.toml {SHORT_RUN} --dry"),
                ("run first.toml --seeds", f"run first.toml {SHORT_RUN} --seeds"),
                ("verify blocks_vs_bf16.toml\n", "verify blocks_vs_bf16.toml --no-oracle"),
                ("[log]\n", f'[gate]\npolicy = "../../../../isoloss/{FAST_POLICY}"\n\n[log]\n'),
                ("--arm blocks", "--arm blocks --case plain"),
                ("--experiment first.toml", f"--experiment first.toml {SHORT_RUN}"),
                *drafts), {"isoloss lab doctor": "tests/cli/doctor_test.py"})


if __name__ == "__main__":
    unittest.main()
