"""certify: runs that repeat or resume to the bit, and why others do not."""

import json
import pathlib
import shutil
import signal
import xml.etree.ElementTree

import h5py
import numpy

from check_tensors_test import as_bf16, hopper_bf16
from program import FAIL, INCONCLUSIVE, INTERRUPTED, INVALID, PASS, ProgramTest
from terminal import TerminalProgram


SCHEMA = json.loads((pathlib.Path(__file__).resolve().parents[2] / "docs/certify.schema.json").read_text())


def undocumented(value, schema, path=""):
    """What of a value is not as docs/certify.schema.json has it."""
    if isinstance(value, list):
        return [fault for entry in value for fault in undocumented(entry, schema["items"], path + "[]")]
    if isinstance(value, dict):
        wrong = [f"{path}.{key}" for key in {*value, *schema["required"]} - ({*value} & {*schema["properties"]})]
        return wrong + [fault for key in {*value} & {*schema["properties"]}
                        for fault in undocumented(value[key], schema["properties"][key], f"{path}.{key}")]
    if "enum" in schema:
        return [] if value in schema["enum"] else [f"{path}: {value}"]
    kinds = {str: "string", bool: "boolean", int: "integer", type(None): "null"}
    return [] if kinds[type(value)] in schema["type"] else [f"{path}: {value}"]


def titan(steps, first=1, wrong_from=None, clock=0):
    """A log of torchtitan, without its last digits."""
    return "".join(
        f"[titan] 2026-01-01 00:00:{(step + clock) % 60:02d},000 - root - INFO - step: {step:2d}  "
        f"loss: {8 - step / 50 + (wrong_from is not None and step >= wrong_from) / 100:8.5f}  "
        f"grad_norm: {1 + 1 / step:7.4f}  memory: 1.00GiB(1%)  tps: {100 + clock}\n"
        for step in range(first, steps + 1))


class Certify(ProgramTest):
    def certify(self, *arguments, code):
        result = self.run_isoloss("certify", *arguments, "--json")
        self.assertEqual(result.returncode, code, result.stdout + result.stderr)
        found = json.loads(result.stdout)
        self.assertEqual(found["exit_code"], code)
        self.assertEqual(undocumented(found, SCHEMA), [])
        return found


class OwnRuns(Certify):
    SETTINGS = ("train.steps=1000", "train.seeds=[1]", "log.checkpoint_every=20")

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        for name in ("first", "second"):
            cls.train(name)
        cls.logs = [f"{name}/bf16-seed1.h5" for name in ("first", "second")]

    @classmethod
    def train(cls, out, *options):
        settings = [f"--set={setting}" for setting in cls.SETTINGS]
        result = cls.run_isoloss("run", "tiny.toml", "--arm", "bf16", "--out", out, *settings, *options)
        assert result.returncode == PASS, result.stderr

    def test_two_runs_of_one_commit_are_certified(self):
        found = self.certify("repeat", *self.logs, code=PASS)

        compared = found["compared"]
        self.assertEqual((compared["steps"], compared["last_step"]), (1000, 1000))
        self.assertTrue(compared["weights_before"] and compared["weights_after"])
        self.assertIn("batch_digest", compared["quantities"])
        self.assertGreater(compared["digests"], 0)
        self.assertIn("states of the optimizer after step 1000", found["not_certified"])

    def test_the_certificate_fits_on_one_page_and_into_junit(self):
        result = self.run_isoloss("certify", "repeat", *self.logs, "--junit", "junit.xml")

        self.assertEqual(result.returncode, PASS, result.stderr)
        self.assertLess(len(result.stdout.splitlines()), 25)
        self.assertTrue(all(len(line) <= 80 for line in result.stdout.splitlines()), result.stdout)
        suite = xml.etree.ElementTree.parse(self.folder / "junit.xml").getroot()
        self.assertEqual((suite.get("failures"), suite.get("errors")), ("0", "0"))

    def test_a_run_that_was_killed_and_resumed_is_the_whole_one(self):
        settings = [f"--set={setting}" for setting in self.SETTINGS]
        with TerminalProgram(self.folder, "run", "tiny.toml", "--arm", "bf16", "--out", "resumed", *settings) as run:
            run.wait_for("loss ")
            run.signal(signal.SIGINT)
            self.assertEqual(run.wait(), INTERRUPTED, run.text)
        self.train("resumed", "--resume")

        found = self.certify("restart", self.logs[0], "resumed/bf16-seed1.h5", code=PASS)
        swapped = self.certify("restart", "resumed/bf16-seed1.h5", self.logs[0], code=INVALID)

        self.assertEqual(len(found["restarts"]), 1)
        self.assertIn("was resumed itself", swapped["invalid"][0])

    def test_a_copy_or_a_run_of_other_settings_is_invalid(self):
        shutil.copy(self.folder / self.logs[0], self.folder / "copy.h5")
        self.train("other", "--set=train.lr=0.002")

        copy = self.certify("repeat", self.logs[0], "copy.h5", code=INVALID)
        other = self.certify("repeat", self.logs[0], "other/bf16-seed1.h5", code=INVALID)
        no_restart = self.certify("restart", *self.logs, code=INVALID)

        self.assertIn("same bytes", copy["invalid"][0])
        self.assertIn("config_digest", other["invalid"][0])
        self.assertIn("Nothing shows a restart", no_restart["invalid"][0])

    def test_a_damaged_log_and_one_run_alone_are_refused(self):
        data = (self.folder / self.logs[1]).read_bytes()
        (self.folder / "cut.h5").write_bytes(data[:-100])

        for logs, words in (((self.logs[0], "cut.h5"), "cut.h5"), ((self.logs[0],), "one run"),
                            ((self.logs[0], self.logs[0]), "given twice")):
            self.assert_refused(self.run_isoloss("certify", "repeat", *logs), words, code=INVALID)


class PrintedLogs(Certify):
    def test_equal_digits_are_no_certificate_and_others_fail(self):
        for name, text in (("a.log", titan(20)), ("b.log", titan(20, clock=3)),
                           ("c.log", titan(20, wrong_from=13, clock=4)),
                           ("resumed.log", titan(20, first=11, clock=5)),
                           ("lost.log", titan(20, first=11, wrong_from=12, clock=6))):
            self.write(name, text)

        equal = self.certify("repeat", "a.log", "b.log", code=INCONCLUSIVE)
        resumed = self.certify("restart", "a.log", "resumed.log", code=INCONCLUSIVE)
        other = self.certify("repeat", "a.log", "b.log", "c.log", code=FAIL)
        lost = self.certify("restart", "a.log", "lost.log", code=FAIL)

        self.assertIn("printed digits", equal["lacking"][0])
        self.assertEqual((resumed["restarts"], resumed["compared"]["steps"]), ([11], 10))
        self.assertEqual([(d["run"], d["step"]) for d in other["differences"]], [("run 3", 13)])
        self.assertEqual(lost["differences"][0]["causes"][0]["kind"], "hidden_state")


class Operations(Certify):
    """Operation files alone, of a BF16 layer of an H100."""

    def write_step(self, run, **tensors):
        with h5py.File(self.folder / f"{run}.rank-0.operations-000001.h5", "w") as file:
            for key, value in (("operations_version", 1), ("step", 1), ("rank", 0), ("ranks", 1)):
                file.attrs[key] = numpy.int64(value)
            file.attrs["run"] = run
            for place, (module, output) in enumerate((("other", self.product), ("layer", tensors["output"]))):
                layer = file.create_group(f"operations/{place:06d}")
                layer.attrs["type"], layer.attrs["module"] = "linear", module
                for name, values, kind in (("x", self.x, "bfloat16"), ("weight", self.weight, "bfloat16"),
                                           ("output", output, "float32")):
                    layer.create_dataset(name, data=values).attrs["dtype"] = kind
        return f"{run}.rank-0.operations-000001.h5"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        random = numpy.random.default_rng(3)
        cls.x, cls.weight = (as_bf16(random.standard_normal((64, 256))) for _ in range(2))
        cls.product = hopper_bf16(cls.x, cls.weight)

    def test_another_split_another_adder_and_a_wrong_bit_are_told_apart(self):
        first = self.write_step("first", output=self.product)
        halves = [hopper_bf16(self.x[:, half], self.weight[:, half]) for half in (slice(128), slice(128, None))]
        sick = self.product.copy()
        sick.view(numpy.uint32)[5, 7] ^= 1 << 21
        fp32 = numpy.zeros_like(self.product)
        for k in range(self.x.shape[1]):
            fp32 = fp32 + self.x[:, k, None] * self.weight[None, :, k]

        for name, output, kind in (("split", halves[0] + halves[1], "split_of_k"), ("sick", sick, "wrong_result"),
                                   ("fp32", fp32, "algorithm")):
            with self.subTest(name):
                found = self.certify("repeat", first, self.write_step(name, output=output), code=FAIL)
                difference = found["differences"][0]
                self.assertEqual(difference["causes"][0]["kind"], kind, difference)
                self.assertEqual(difference["operation"]["module"], "layer")

    def test_equal_operations_without_a_log_are_too_little(self):
        files = [self.write_step(run, output=self.product) for run in ("one", "two")]

        found = self.certify("repeat", *files, code=INCONCLUSIVE)

        self.assertEqual(found["compared"]["operations"], 2)
        self.assertIn("no log", found["lacking"][0])

    def write_muon(self, run, times=1.0):
        """A step by the normalised momentum, without iterations."""
        random = numpy.random.default_rng(4)
        before, gradient, momentum = (random.standard_normal((32, 48)).astype(numpy.float32) for _ in range(3))
        after = (0.9 * momentum + 0.1 * gradient).astype(numpy.float32)
        update = after.astype(float) / numpy.sqrt((after.astype(float) ** 2).sum())
        parameter = before - times * 0.1 * update
        with h5py.File(self.folder / self.write_step(run, output=self.product), "a") as file:
            muon = file.create_group("operations/000002")
            muon.attrs.update(type="muon", module="layer.weight", lr=0.1, momentum=0.9, weight_decay=0.0,
                              ns_steps=0, nesterov=0, momentum_rule="lerp", scale_rule="none", ns_dtype="float32")
            for name, values in (("parameter_before", before), ("gradient", gradient),
                                 ("momentum_before", momentum), ("momentum_after", after),
                                 ("parameter_after", parameter), ("coefficients", numpy.ones((1, 3)))):
                muon.create_dataset(name, data=values.astype(numpy.float32)).attrs["dtype"] = "float32"
        return f"{run}.rank-0.operations-000001.h5"

    def test_a_wrong_update_of_muon_is_told(self):
        found = self.certify("repeat", self.write_muon("muon"), self.write_muon("spoilt", 1.5), code=FAIL)

        difference = found["differences"][0]
        self.assertEqual(difference["operation"]["type"], "muon")
        self.assertEqual(difference["causes"][0]["kind"], "wrong_result", difference)
        self.assertIn("run 2", difference["causes"][0]["text"].lower())
