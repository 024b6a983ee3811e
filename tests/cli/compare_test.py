"""compare: where two runs part, in logs and in dumps."""

import json
import shutil

import h5py

from program import ProgramTest, TINY, FAIL, INVALID, PASS, USAGE
from sealed_log import edited_log

TENSORS = ("log.digests_first=2", "log.digests_every=10",
           "log.statistics_every=10", "log.routing=true")
DUMPS = ('log.dump_tensors=["layers.1"]', "log.dump_steps=[3]")


class Compare(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.logs = cls.make_logs("logs", *TENSORS, *DUMPS)
        # Dumps lie in a folder of their own, so that *.h5 are run logs.
        assert not [name for name in cls.logs if ".dump-" in name]
        cls.dumps = {path.name.split(".")[0]: path
                     for path in (cls.folder / "logs/dumps").iterdir()}
        cls.bf16 = cls.logs["bf16-seed1"]
        cls.mxfp8 = cls.logs["mxfp8-seed1"]

    def copy_of(self, log, name):
        return self.folder / shutil.copy(log, self.folder / name)

    def compare_json(self, *arguments):
        result = self.run_isoloss("compare", *arguments, "--json")
        self.assertEqual(result.stderr, "")
        return result.returncode, json.loads(result.stdout)

    def test_two_recipes_part_in_a_tensor_of_the_first_step(self):
        result = self.run_isoloss("compare", self.bf16, self.mxfp8)

        self.assertEqual(result.returncode, FAIL, result.stderr)
        for text in ("First divergence: step 1, loss_nats",
                     "First difference: step 1, digest of layers.",
                     "(forward)", "Before it", "still agree",
                     "Parameters that differ most", "Tensors that differ most",
                     "Choices of B that are not among A's"):
            self.assertIn(text, result.stdout)

    def test_json_names_tensor_phase_and_neighbours(self):
        code, found = self.compare_json(self.bf16, self.mxfp8)

        self.assertEqual(code, FAIL)
        self.assertFalse(found["equal"])
        first = found["first_difference"]
        self.assertEqual((first["step"], first["quantity"], first["phase"]),
                         (1, "digest", "forward"))
        self.assertTrue(first["is_tensor"])
        self.assertFalse(first["may_hide_tensors"])
        # The first quantised product: its operands still agree.
        self.assertTrue(first["name"].endswith("_output"), first["name"])
        self.assertIn(first["name"].replace("_output", "_activation"),
                      first["agreeing_before"])
        self.assertEqual(found["tensor_steps"], [1, 2, 10, 20])

    def test_equal_logs(self):
        code, found = self.compare_json(self.bf16, self.bf16)

        self.assertEqual(code, PASS)
        self.assertTrue(found["equal"])
        self.assertIsNone(found["first_difference"])
        self.assertEqual(found["routing"]["equal"], found["routing"]["steps"])

    def test_tolerance_decides_what_differs(self):
        code, loose = self.compare_json(self.bf16, self.mxfp8,
                                        "--tolerance", "1")
        self.assertIsNone(loose["first_difference"])
        self.assertEqual(code, PASS)

        code, tight = self.compare_json(self.bf16, self.mxfp8,
                                        "--tolerance", "1e-9")
        self.assertEqual(code, FAIL)
        self.assertIn(tight["first_difference"]["quantity"],
                      ("l2_norm", "mean", "cur_amax", "std"))

    def test_with_a_tolerance_nothing_is_said_of_bits(self):
        result = self.run_isoloss("compare", self.bf16, self.mxfp8,
                                  "--tolerance", "1")

        self.assertEqual(result.returncode, PASS)
        self.assertIn("No difference", result.stdout)
        self.assertNotIn("First divergence", result.stdout)

    def test_statistics_logged_at_other_steps_are_no_difference(self):
        first = self.make_logs("first", "log.statistics_first=3",
                               "log.statistics_every=0")["bf16-seed1"]
        every = self.make_logs("every", "log.statistics_first=0",
                               "log.statistics_every=3",
                               'log.statistics_tensors=["wq"]')["bf16-seed1"]

        for arguments in ((), ("--tolerance", "1e-6")):
            with self.subTest(arguments=arguments):
                code, found = self.compare_json(first, every, *arguments)

                self.assertEqual((code, found["equal"]), (PASS, True))
                self.assertEqual(found["largest_tensor_differences"], [])

    def test_a_difference_between_logged_steps_hides_tensors(self):
        other = self.copy_of(self.bf16, "late.h5")
        with edited_log(other) as log:
            norms = log["parameters/grad_norm"]
            norms[6, 1] += 1e-9

        result = self.run_isoloss("compare", self.bf16, other)

        self.assertEqual(result.returncode, FAIL, result.stderr)
        with h5py.File(self.bf16) as log:
            name = log["parameters/names"].asstr()[1]
        text = result.stdout
        self.assertIn(f"First difference: step 7, grad_norm of {name}: ", text)
        self.assertIn("Tensors were logged at steps 1, 2, 10, 20", text)
        self.assertIn("up to step 6 is equal to the bit", text)

    def test_what_only_one_log_holds_is_named_and_no_difference(self):
        few = self.make_logs("few", "log.digests_first=0",
                             "log.digests_every=0",
                             'log.statistics_tensors=["attention"]')

        code, found = self.compare_json(self.bf16, few["bf16-seed1"])

        self.assertEqual((code, found["equal"]), (PASS, True))
        self.assertIsNone(found["first_difference"])
        self.assertTrue(found["tensors_only_a"])
        self.assertEqual(found["tensors_only_b"], [])
        result = self.run_isoloss("compare", self.bf16, few["bf16-seed1"])
        self.assertEqual(result.returncode, PASS)
        self.assertIn("Only A has tensors", result.stdout)
        self.assertIn("not compared", result.stdout)

    def test_logs_without_a_common_start_are_refused(self):
        other = self.copy_of(self.bf16, "shifted.h5")
        with edited_log(other) as log:
            log["steps/step"][...] += 100

        self.assert_refused(self.run_isoloss("compare", self.bf16, other),
                            "no common start", "shifted.h5")

    def test_damaged_and_missing_files_are_refused(self):
        damaged = self.copy_of(self.bf16, "damaged.h5")
        data = bytearray(damaged.read_bytes())
        data[len(data) // 2] ^= 1
        damaged.write_bytes(data)

        for path in ("damaged.h5", "missing.h5"):
            with self.subTest(path=path):
                self.assert_refused(
                    self.run_isoloss("compare", self.bf16, path), path)

    def test_dumps_name_the_first_tensor_block_and_source_of_error(self):
        result = self.run_isoloss("compare", self.dumps["bf16-seed1"],
                                  self.dumps["mxfp8-seed1"])

        self.assertEqual(result.returncode, FAIL, result.stderr)
        for text in ("step 3", "First tensor that differs: layers.1.",
                     "ulps", "Operations by the error they add"):
            self.assertIn(text, result.stdout)

    def test_dumps_as_json(self):
        code, found = self.compare_json(self.dumps["bf16-seed1"],
                                        self.dumps["mxfp8-seed1"])

        self.assertEqual(code, FAIL)
        self.assertEqual(found["step"], 3)
        self.assertTrue(found["tensors"][0]["first_elements"])
        for operation in found["operations"]:
            self.assertFalse(operation["result"].endswith(("_update",
                                                           "_parameter")))
        self.assertTrue(found["optimizer_operations"])
        added = [operation["added"] for operation in found["operations"]]
        self.assertEqual(added, sorted(added, reverse=True))

        code, found = self.compare_json(self.dumps["bf16-seed1"],
                                        self.dumps["bf16-seed1"])
        self.assertEqual((code, found["equal"]), (PASS, True))

    def test_dumps_of_the_version_before_cells_are_read(self):
        old = self.copy_of(self.dumps["mxfp8-seed1"], "old.dump-000003.h5")
        with edited_log(old) as dump:
            dump.attrs["dump_version"] = dump.attrs["dump_version"] - 1

        code, found = self.compare_json(old, self.dumps["mxfp8-seed1"])

        self.assertEqual(code, PASS)
        self.assertTrue(found["equal"])
        with edited_log(old) as dump:
            dump.attrs["dump_version"] = dump.attrs["dump_version"] - 1
        self.assert_refused(self.run_isoloss("compare", old, old),
                            "dump_version", "2 or 3")

    def test_a_log_and_a_dump_are_refused(self):
        self.assert_refused(
            self.run_isoloss("compare", self.bf16, self.dumps["bf16-seed1"]),
            "is a dump of tensors", "both")
        self.assert_refused(
            self.run_isoloss("compare", self.dumps["bf16-seed1"],
                             self.dumps["mxfp8-seed1"], "--zoom",
                             "--experiment", "tiny.toml"),
            "2 dumps", "--zoom")

    def test_zoom_runs_both_again_and_shows_blocks_and_elements(self):
        result = self.run_isoloss(
            "compare", self.bf16, self.mxfp8, "--zoom", "--experiment",
            "tiny.toml", "--out", "zoomed", "--tensors", "layers.0",
            *(f"--set={setting}" for setting in TENSORS))

        self.assertEqual(result.returncode, FAIL, result.stderr)
        for text in ("First difference: step 1, digest of layers.0",
                     "First tensor that differs: layers.0",
                     "First operation that adds error"):
            self.assertIn(text, result.stdout)
        self.assertTrue(list((self.folder / "zoomed/A/dumps").glob("*.dump-*.h5")))
        self.assertTrue(self.bf16.exists() and self.mxfp8.exists())

    def test_zoom_names_the_quantised_gemm_as_the_source(self):
        name = "layers.0.feed_forward.w1"
        self.write("one.toml", TINY.replace(
            'recipe = "mxfp8_rceil"',
            f'recipe = "mxfp8_rceil"\ninclude = ["{name}"]'))
        made = self.run_isoloss("run", "one.toml", "--out", "one",
                                "--set", "train.seeds=[1]")
        self.assertEqual(made.returncode, PASS, made.stderr)

        result = self.run_isoloss(
            "compare", "one/bf16-seed1.h5", "one/mxfp8-seed1.h5", "--zoom",
            "--step", "1", "--experiment", "one.toml", "--json", "--set",
            "train.seeds=[1]")

        self.assertEqual(result.returncode, FAIL, result.stderr)
        found = json.loads(result.stdout)
        self.assertEqual(found["first_source"]["result"], f"{name}_output")
        self.assertIn(found["operations"][0]["result"],
                      (f"{name}_output", f"{name}_dgrad", f"{name}_wgrad"))
        # What the product reads, of both: only B quantises it.
        operand = found["operands"][0]
        self.assertEqual(operand["tensor"], f"{name}_activation")
        self.assertIsNone(operand["a"]["codes"])
        self.assertEqual(operand["b"]["format"], "e4m3")
        self.assertEqual(len(operand["b"]["values"]),
                         len(operand["b"]["codes"]))

    def test_zoom_without_a_difference_is_json_too(self):
        code, found = self.compare_json(self.bf16, self.bf16, "--zoom",
                                        "--experiment", "tiny.toml")

        self.assertEqual((code, found["equal"]), (PASS, True))

    def test_zoom_refuses_a_pattern_before_it_runs_anything(self):
        result = self.run_isoloss(
            "compare", self.bf16, self.mxfp8, "--zoom", "--experiment",
            "tiny.toml", "--tensors", "nomatch")

        self.assertEqual(result.returncode, INVALID)
        self.assertIn("`nomatch` matches none", result.stderr)
        self.assertNotIn("running", result.stderr)

    def test_zoom_asks_for_the_experiment(self):
        self.assert_refused(
            self.run_isoloss("compare", self.bf16, self.mxfp8, "--zoom"),
            "--experiment", code=USAGE)

    def test_zoom_never_works_over_the_logs(self):
        shutil.copytree(self.bf16.parent, self.folder / "over/A")
        log = self.folder / "over/A/bf16-seed1.h5"

        self.assert_refused_late(
            self.run_isoloss("compare", log, self.mxfp8, "--zoom",
                             "--experiment", "tiny.toml", "--out", "over"),
            "--out")
        self.assertTrue(log.exists())

    def assert_refused_late(self, result, *words):
        """A refusal after the comparison of the logs was printed."""
        self.assertEqual(result.returncode, INVALID, result.stderr)
        for word in words:
            self.assertIn(word, result.stderr)
