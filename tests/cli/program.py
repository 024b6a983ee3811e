"""Runs the program isoloss on small experiments."""

import contextlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

import h5py

BINARY = pathlib.Path(os.environ["ISOLOSS_BINARY"])

PASS, FAIL, USAGE, INVALID, INCONCLUSIVE, INTERRUPTED = 0, 1, 2, 3, 4, 130

# No width is a multiple of an MX block (32), nor is the sequence length. The
# sweep of learning rates is made up, but it fits: `isoloss study rates` writes
# its `configuration`.
TINY = """\
name = "tiny"
[model]
vocab_size = 11
dim = 24
n_layers = 2
n_dense_layers = 1
n_heads = 2
kv_lora_rank = 9
qk_nope_head_dim = 6
qk_rope_head_dim = 4
v_head_dim = 7
dense_hidden_dim = 41
moe_hidden_dim = 21
num_experts = 4
num_shared_experts = 1
top_k = 2
[data]
source = "synthetic"
sequence_length = 19
noise_levels = 4
tokens = 4000
[train]
steps = 20
sequences_per_batch = 3
seeds = [1, 2]
warmup_steps = 4
[arms.bf16]
recipe = "bf16"
[arms.mxfp8]
recipe = "mxfp8_rceil"
[tuning]
rates = [0.0005, 0.001, 0.002]
held_out = [2, 1, 2]
seeds = [7, 8]
configuration = "9057a6320d032a0c"
[log]
eval_every = 7
eval_sequences = 4
"""

# Options for a policy that asks the oracle for the experiment as it is, a tenth of its work. For tests
# of what a verdict comes from and goes to.
PLAIN_POLICY = ("--policy", pathlib.Path(__file__).resolve().parent / "plain_policy.toml")

# Pictures are drawn as on a terminal of today, whatever started the tests.
ENVIRONMENT = {**os.environ, "LC_ALL": "C.UTF-8", "TERM": "xterm"}

# Words of a program that fell over instead of explaining itself.
FORBIDDEN = (
    "terminate called", "HDF5-DIAG", "Assertion", "assertion `",
    "AddressSanitizer", "ThreadSanitizer", "runtime error", "internal error",
    "what():", "basic_string", "std::",
)


STUDIES_SCHEMA = pathlib.Path(__file__).resolve().parents[2] / "docs" / "studies.schema.json"
INTERVAL = {"estimate", "lower", "upper"}
# By file: documented keys that no test needs to write. The tests' claims compare losses of two arms alone, and
# their logs lack no operand of the widest model.
OPTIONAL = {
    "widths.json": {f"left_out[].{key}" for key in ("name", "missing_logs", "infinite_logs")},
    "claim.json": {f"contrasts[].{key}" for key in ("other_cell", "other_arm", "other_reference", "p", "diverged",
                                                    "runs", "reference_diverged", "reference_runs")},
}


def documented_keys(name):
    """Keys of docs/studies.schema.json of file `name` that have a value: "arms[].name". An interval is a value."""
    definitions = json.loads(STUDIES_SCHEMA.read_text(encoding="utf-8"))["$defs"]

    def keys_of(schema, path):
        for choice in (schema, *schema.get("anyOf", ())):
            target = choice.get("$ref", "").removeprefix("#/$defs/")
            if target and target != "interval":
                return keys_of(definitions[target], path) | {path}
        if "items" in schema:
            return keys_of(schema["items"], path + "[]")
        if "properties" in schema:
            own = {path} if "null" in schema["type"] else set()
            return own.union(*(keys_of(value, f"{path}.{key}".lstrip("."))
                               for key, value in schema["properties"].items()))
        assert schema["description"], path
        return {path}

    return {as_set(key) for key in keys_of(definitions[name], "")}


def as_set(key):
    """Sets of products have the same keys wherever they are."""
    return re.sub(r"^(frontier\[\]|recipe)\.", "sets[].", key)


def written_keys(value, path=""):
    """The same of a JSON value, without the ends of intervals and what says that a number is not finite."""
    if isinstance(value, list) and value:
        return set.union(*(written_keys(entry, path + "[]") for entry in value))
    if isinstance(value, dict) and {key.removesuffix("_text") for key in value} != INTERVAL:
        keys = {key: f"{path}.{key}".lstrip(".") for key in value
                if not (key.endswith("_text") and key.removesuffix("_text") in value)}
        return set.union({path} - {""}, *(written_keys(value[key], whole) for key, whole in keys.items()))
    return {path}


class ProgramTest(unittest.TestCase):
    """A test with a folder of its own and the tiny experiment in it."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="isoloss-cli-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.tiny = cls.write("tiny.toml", TINY)
        cls.written = {}  # by file: keys that assert_documented has seen
        cls.addClassCleanup(cls.check_all_documented_keys_were_written)

    @classmethod
    def write(cls, name, text):
        path = cls.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    @classmethod
    def run_isoloss(cls, *arguments, environment=None, **options):
        """Runs the program in the test's folder; returns what it left."""
        result = subprocess.run(
            [options.pop("binary", BINARY), *map(str, arguments)],
            cwd=cls.folder, stdin=subprocess.DEVNULL,
            stdout=options.pop("stdout", subprocess.PIPE),
            stderr=subprocess.PIPE, encoding="utf-8", timeout=300,
            env={**ENVIRONMENT, **(environment or {})}, **options)
        for word in FORBIDDEN:
            if word in result.stderr:
                raise AssertionError(f"`{word}` in: {result.stderr}")
        return result

    @contextlib.contextmanager
    def unprivileged(self):
        """Options of run_isoloss for a user whom permissions bind: root is
        exempt from them, and `nobody` may not reach the build folder."""
        if os.geteuid() != 0:
            yield {}
            return
        self.folder.chmod(0o755)
        binary = shutil.copy(BINARY, self.folder / "isoloss")
        yield {"binary": binary, "user": 65534, "group": 65534,
               "extra_groups": []}
        os.unlink(binary)

    @classmethod
    def make_logs(cls, out, *settings):
        """Trains the tiny experiment and returns its logs by name."""
        arguments = [f"--set={setting}" for setting in settings]
        result = cls.run_isoloss("run", cls.tiny, "--out", out, *arguments)
        if result.returncode != PASS:
            raise AssertionError(result.stderr)
        return {path.stem: path for path in (cls.folder / out).glob("*.h5")}

    def assert_refused(self, result, *words, code=INVALID):
        """One message: `words`, nothing else, and the documented exit code."""
        self.assertEqual(result.returncode, code, result.stderr)
        message = result.stderr
        self.assertTrue(message.startswith("isoloss"), message)
        self.assertEqual(message.count("\n"), 1, message)
        self.assertRegex(message, r"[.?]\n$", "a message is whole sentences")
        for word in words:
            self.assertIn(word, message)
        if isinstance(result.stdout, str):
            self.assertEqual(result.stdout, "")

    def assert_documented(self, name, content):
        """docs/studies.schema.json has every key of a study's file. When the class is done, its tests must have
        written every key that stands there, but those of OPTIONAL."""
        known = documented_keys(name)
        written = {as_set(key) for key in written_keys(content)}
        # "x[]" names the list x as well, and "x.y" the object x.
        names = known | {key[:place.start()] for key in known for place in re.finditer(r"\[|\.", key)}
        names |= {key.removesuffix("[]") for key in names} | {key + "[]" for key in known}
        names |= {key[:place.end()] for key in known for place in re.finditer(r"\[\]", key)}
        self.assertEqual(sorted(written - names), [], f"keys that {STUDIES_SCHEMA.name} lacks")
        self.written.setdefault(name, set()).update(written)

    @classmethod
    def check_all_documented_keys_were_written(cls):
        for name, written in cls.written.items():
            known, optional = documented_keys(name), OPTIONAL.get(name, set())
            # An empty list "x" has no "x[]".
            missing = {key.rstrip("[]") for key in known - optional} - {key.rstrip("[]") for key in written}
            if missing or not optional <= known:
                raise AssertionError(f"Of {name} in {STUDIES_SCHEMA.name}, no test of {cls.__name__} writes "
                                     f"{sorted(missing)}; OPTIONAL has and it lacks {sorted(optional - known)}.")

    def assert_no_files(self, *folders):
        for folder in folders:
            path = self.folder / folder
            if path.is_dir():
                self.assertEqual(sorted(path.iterdir()), [])


def in_one_line(text):
    """Sentences are wrapped at the terminal's width."""
    return " ".join(text.split())


# Attributes that say who executed a run and how.
EXECUTION = ("commit", "compiler", "cpu_target", "experiment_digest",
             "experiment_text", "processes", "tool_version", "transport",
             "workers")
# Clocks: Field::reproducible of runlog/schema.h is false.
ACCIDENTS = ("step_seconds", "tokens_per_second", "wait_seconds")


def same_bits(path):
    """All of a log that no way of executing a run may change, as bytes: every
    attribute and dataset but those named above and /events."""
    content = {}

    def add(name, item):
        if (isinstance(item, h5py.Dataset) and not name.startswith("events/")
                and name.split("/")[-1] not in ACCIDENTS):
            values = item[()]
            content[name] = (values.tolist() if values.dtype == object
                             else values.tobytes())

    with h5py.File(path, "r") as log:
        for name, value in log.attrs.items():
            if name not in EXECUTION:
                content[name] = str(value)
        log.visititems(add)
    return content
