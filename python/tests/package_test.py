"""isoloss.gate, compare and read, against what the program and h5py say of the same files."""

import html
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import h5py
import numpy
import torch

import isoloss
from isoloss import operations, program, reading, run_log

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = os.environ["ISOLOSS_BINARY"]
OWN = {arm: ROOT / f"golden/curves/nano/{arm}-seed1.h5" for arm in ("bf16", "mxfp8")}


def said(*words):
    """JSON and exit code of the program."""
    done = subprocess.run([BINARY, *words, "--json"], stdout=subprocess.PIPE, check=False)
    return json.loads(done.stdout), done.returncode


def write_log(path, seed, shift):
    """Fifty losses; those of a seed are alike in both arms, so that differences are small."""
    noise = random.Random(seed)
    with open(path, "w", encoding="utf-8") as file:
        file.write("step,loss,grad_norm\n")
        for step in range(1, 51):
            loss = 3 / (1 + step / 20) + noise.gauss(0, 0.02)
            file.write(f"{step},{loss * (1 + shift * seed):.6f},{noise.random():.4f}\n")


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="isoloss-package-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.logs = {}
        # The candidate's seeds are 0.01, 0.02 and 0.03 % higher: within 0.25 %, and not equal.
        for arm, shift in (("a", 0.0), ("b", 1e-4)):
            self.logs[arm] = [self.folder / f"{arm}{seed}.csv" for seed in (1, 2, 3)]
            for seed, path in enumerate(self.logs[arm], 1):
                write_log(path, seed, shift)


class Gate(Case):
    def test_gives_the_verdict_of_the_program(self):
        verdict = isoloss.gate(self.logs["a"], self.logs["b"], margin=0.25)

        words = [f"{arm}={path}" for arm, name in (("baseline", "a"), ("candidate", "b"))
                 for path in self.logs[name]]
        expected, code = said("gate", *words, "--baseline=baseline", "--margin=0.25")
        self.assertEqual(verdict.json, expected)
        self.assertEqual((verdict.exit_code, verdict.verdict, verdict.passed), (code, "PASS", True))
        self.assertEqual(verdict.candidate.runs[1].file, expected["candidate"]["runs"][1]["file"])
        self.assertEqual(verdict["outcome"], "PASS")
        self.assertRegex(repr(verdict), r"(?s)^PASS  candidate ends within .*\(exit code 0\)$")
        self.assertEqual(verdict.notes, [])

    def test_has_a_page_that_stands_in_a_notebook(self):
        verdict = isoloss.gate(self.logs["a"], self.logs["b"])

        frame = re.fullmatch(r'(?s)<iframe srcdoc="([^"]*)" sandbox="allow-scripts" style="[^"]*">'
                             "</iframe>", verdict._repr_html_())
        self.assertEqual(html.unescape(frame[1]), verdict.page)
        self.assertRegex(verdict.page, r"(?si)^<!doctype html>.*</html>\s*$")

    def test_is_no_truth_value(self):
        verdict = isoloss.gate(self.logs["a"][0], str(self.logs["b"][0]))

        self.assertEqual((verdict.verdict, verdict.passed, verdict.exit_code),
                         ("INCONCLUSIVE", False, 4))
        with self.assertRaisesRegex(TypeError, "passed.*INCONCLUSIVE"):
            bool(verdict)

    def test_judges_several_candidates(self):
        worse = self.folder / "worse.csv"
        write_log(worse, 1, 0.5)

        verdict = isoloss.gate(self.logs["a"][0], {"near": self.logs["b"][0], "far": [worse]})

        self.assertEqual([each.candidate.arm for each in verdict.verdicts], ["near", "far"])
        severity = ["PASS", "INCONCLUSIVE", "FAIL", "INVALID"].index
        self.assertEqual(verdict.verdict,
                         max((each.outcome for each in verdict.verdicts), key=severity))

    def test_takes_runs_of_isoloss_which_tell_their_arms(self):
        verdict = isoloss.gate(OWN["mxfp8"], OWN["bf16"])

        self.assertEqual((verdict.baseline.arm, verdict.candidate.arm), ("mxfp8", "bf16"))
        with self.assertRaisesRegex(ValueError, "baseline's are bf16, the candidate's bf16"):
            isoloss.gate(OWN["bf16"], OWN["bf16"])

    def test_raises_what_the_program_says(self):
        for error, words, options in (
                (FileNotFoundError, "none.csv", {"candidate": self.folder / "none.csv"}),
                (isoloss.ProgramError, "`--margin` is x", {"margin": "x"}),
                (isoloss.ProgramError, "`--min-stepz` is none", {"min_stepz": 3}),
                (TypeError, "`json` is no option", {"json": True}),
                (ValueError, "baseline has no logs", {"baseline": []})):
            with self.subTest(words), self.assertRaisesRegex(error, words):
                isoloss.gate(**{"baseline": self.logs["a"], "candidate": self.logs["b"], **options})

    def test_an_earlier_verdict_is_not_taken_for_this_one(self):
        out = self.folder / "out"
        first = isoloss.gate(self.logs["a"], self.logs["b"], out=out)
        self.assertEqual(first.json, json.loads((out / "verdict.json").read_text("utf-8")))
        self.logs["b"][0].write_text("nothing\n", encoding="utf-8")

        with self.assertRaisesRegex(isoloss.ProgramError, "hold no value") as caught:
            isoloss.gate(self.logs["a"], self.logs["b"], out=out)
        self.assertEqual(caught.exception.exit_code, 3)

    def test_options_become_those_of_the_command(self):
        self.assertEqual(program.options_of({"until": 3, "probe": ["a", pathlib.Path("b")],
                                             "verbose": True, "ascii": False, "align": None}, {}),
                         ["--until=3", "--probe=a", "--probe=b", "--verbose"])


class Compare(Case):
    def test_gives_what_the_program_finds(self):
        found = isoloss.compare(OWN["bf16"], OWN["mxfp8"])

        expected, code = said("compare", OWN["bf16"], OWN["mxfp8"])
        self.assertEqual((found.json, found.exit_code, found.equal), (expected, code, False))
        self.assertEqual(found.first_difference.step, 1)
        self.assertIn("First difference: step 1", repr(found))
        self.assertIn("<iframe", found._repr_html_())
        self.assertTrue(isoloss.compare(OWN["bf16"], OWN["bf16"]).equal)

    def test_without_a_page_a_notebook_shows_the_text(self):
        found = isoloss.compare(*self.logs["a"][:2])
        for path in self.logs["a"]:
            path.unlink()

        self.assertRegex(found._repr_html_(), "(?s)^<pre>A  .*First difference.*</pre>$")


class Read(Case):
    def changed(self, change):
        """A log in which `change` has changed something, with a fitting seal."""
        path = self.folder / "changed.h5"
        path.write_bytes(OWN["mxfp8"].read_bytes()[:-24])
        with h5py.File(path, "a") as file:
            change(file)
        path.write_bytes(run_log.sealed(path.read_bytes()))
        return path

    def test_the_loss_of_another_programs_log_is_the_one_that_the_gate_takes(self):
        path = self.folder / "train.log"
        path.write_text("step=1 ce_loss=5 train_loss=6\nstep=2 ce_loss=4 train_loss=5.5\n", "utf-8")

        numpy.testing.assert_array_equal(isoloss.read(path).steps["loss"], [6, 5.5])

    def test_arrays_are_those_of_the_file(self):
        log = isoloss.read(OWN["mxfp8"])

        with h5py.File(OWN["mxfp8"]) as file:
            for group in ("steps", "eval", "tensors", "events"):
                for name in file[group]:
                    of_file = file[group][name]
                    of_file = of_file.asstr()[()] if of_file.dtype == object else of_file[()]
                    numpy.testing.assert_array_equal(log.groups[group][name], of_file)
            numpy.testing.assert_array_equal(log.steps["loss"], file["steps/loss_nats"])
            names = list(file["tensors/names"].asstr())
            numpy.testing.assert_array_equal(log.tensors[names[7]]["sqnr_db"],
                                             file["tensors/sqnr_db"][:, 7])
            self.assertEqual((list(log.tensors), log.attributes["arm"], log.attributes["seed"]),
                             (names, "mxfp8", 1))
        self.assertEqual(len(log.parameters["lm_head.weight"]["grad_norm"]), 40)
        self.assertEqual(log.steps.units["loss_nats"], "nat")
        self.assertRegex(repr(log), "(?s)arm mxfp8, seed 1.*40 steps, 1 to 40, loss 4.6193 to 2.81")
        self.assertIn("Wall-clock time", repr(log.steps))
        with self.assertRaisesRegex(KeyError, "no `nix`, but .*loss_nats"):
            log.steps["nix"]

    def test_logs_of_other_programs_have_the_same_names(self):
        path = self.folder / "other.jsonl"
        path.write_text('{"step": 1, "train_loss": 2.5, "lr": 0.1}\n'
                        '{"step": 2, "train_loss": NaN}\n'
                        '{"step": 2, "eval_loss": 2.25}\n', encoding="utf-8")

        log = isoloss.read(path)

        numpy.testing.assert_array_equal(log.steps["step"], [1, 2])
        numpy.testing.assert_array_equal(log.steps["loss"], [2.5, numpy.nan])
        numpy.testing.assert_array_equal(log.steps["lr"], [0.1, numpy.nan])
        numpy.testing.assert_array_equal(log.evaluations["loss"], [2.25])
        self.assertEqual(len(log.tensors), 0)
        self.assertIn("2 steps, 1 to 2", repr(log))

    def test_operations_are_arrays(self):
        path = self.folder / "run.rank-0.operations-000002.h5"
        linear = operations.Operation("linear", "layers.0.w")
        linear.keep("x", torch.arange(6.0).reshape(2, 3))
        update = operations.Operation("adamw", "layers.0.w.weight")
        update.attributes = {"lr": 0.5, "step": 2}
        operations.write(path, {"run": "r", "step": 2, "rank": 0}, [linear, update])

        found = isoloss.read(path)

        self.assertEqual([(each.type, each.module) for each in found],
                         [("linear", "layers.0.w"), ("adamw", "layers.0.w.weight")])
        numpy.testing.assert_array_equal(found[0]["x"], [[0, 1, 2], [3, 4, 5]])
        self.assertEqual(found[0].about("x")["dtype"], "float32")
        self.assertEqual(found.select(type="adamw")[0].attributes["lr"], 0.5)
        self.assertEqual(found.attributes["step"], 2)
        self.assertIn("2 operations of run r, step 2, rank 0", repr(found))

    def test_damage_is_told(self):
        whole = OWN["bf16"].read_bytes()
        for content, words in ((whole[:-1], "no seal"), (whole[:5000], "damaged"),
                               (whole[:-100] + bytes([whole[-100] ^ 1]) + whole[-99:], "digest")):
            path = self.folder / "damaged.h5"
            path.write_bytes(content)
            with self.subTest(words), self.assertRaisesRegex(isoloss.ReadError, words):
                isoloss.read(path)

    def test_nothing_outside_the_file_is_opened_and_no_more_is_read_than_it_holds(self):
        secret = self.folder / "secret"
        secret.write_bytes(bytes(320))

        def link(file):
            file["steps/other"] = h5py.ExternalLink(str(OWN["bf16"]), "/steps/loss_nats")

        def outside(file):
            del file["steps/lr"]
            file["steps"].create_dataset("lr", (40,), "<f8", external=[(secret, 0, 320)])

        def large(file):
            del file["steps/lr"]
            file["steps"].create_dataset("lr", (1 << 40,), "<f8", chunks=(1024,))

        def filtered(file):
            del file["steps/lr"]
            file["steps"].create_dataset("lr", (40,), "<f8", compression="lzf")

        for change, words in ((link, "is a link"), (outside, "other files"), (large, "values"),
                              (filtered, "filters")):
            path = self.changed(change)
            with self.subTest(words), self.assertRaisesRegex(isoloss.ReadError, words):
                isoloss.read(path).steps["lr"]

    def test_newer_and_unknown_files_are_refused(self):
        schema = subprocess.run([BINARY, "show", "--schema"], stdout=subprocess.PIPE, check=True)
        newest = int(re.search(rb"schema_version +int64, (\d+);", schema.stdout)[1])
        self.assertEqual(reading.KINDS["schema_version"][1], newest)
        self.assertEqual(reading.KINDS["operations_version"][1], operations.VERSION)

        def newer(file):
            file.attrs["schema_version"] = newest + 1

        with self.assertRaisesRegex(isoloss.ReadError, f"version {newest + 1}, .* up to {newest}"):
            isoloss.read(self.changed(newer))
        other = self.folder / "other.h5"
        h5py.File(other, "w").close()
        with self.assertRaisesRegex(isoloss.ReadError, "none|0 of the attributes"):
            isoloss.read(other)


class Program(unittest.TestCase):
    def test_versions_are_one(self):
        done = subprocess.run([BINARY, "--version"], stdout=subprocess.PIPE, check=True)
        self.assertEqual(done.stdout.decode().split()[1], isoloss.__version__)
        self.assertEqual(isoloss.recorder.VERSION, isoloss.__version__)
        sources = (ROOT / "CMakeLists.txt").read_text("utf-8")
        self.assertIn(f"project(isoloss VERSION {isoloss.__version__} ", sources)

    def test_another_version_and_no_program_are_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            other = pathlib.Path(folder) / "isoloss"
            other.write_text("#!/bin/sh\necho isoloss 0.0.1\n", encoding="utf-8")
            other.chmod(0o755)
            for file, words in ((other, "isoloss 0.0.1.*one version"),
                                (f"{folder}/none", "does not start")):
                with self.subTest(words), mock.patch.dict(os.environ, ISOLOSS_BINARY=str(file)), \
                        self.assertRaisesRegex(isoloss.ProgramError, words):
                    program.find()

    def test_what_is_not_installed_is_named(self):
        code = ("import sys\nfor name in ('numpy', 'h5py', 'torch', 'xxhash'):\n"
                "    sys.modules[name] = None\nimport isoloss\n"
                "isoloss.compare(*sys.argv[1:])\n"
                "for name in ('record', 'read'):\n    try:\n"
                "        getattr(isoloss, name)(sys.argv[1])\n"
                "    except ImportError as error:\n        print(error)\n")
        done = subprocess.run([sys.executable, "-c", code, OWN["bf16"], OWN["bf16"]],
                              stdout=subprocess.PIPE, check=True, encoding="utf-8")
        self.assertRegex(done.stdout,
                         r"isoloss.record needs torch, .*: pip install torch h5py xxhash "
                         r"\(.*`record`\)\n"
                         r"isoloss.read needs h5py, .*: pip install numpy h5py \(.*`read`\)\n")


if __name__ == "__main__":
    unittest.main()
