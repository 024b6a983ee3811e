"""show: one run at a glance, whole, killed or cut."""

import json
import shutil

import h5py

from live_run import Background, LiveRunTest, visible
from program import INVALID, PASS, USAGE
from sealed_log import edited_log


class Show(LiveRunTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.logs = cls.make_logs(
            "logs", "log.statistics_every=10",
            'log.dump_tensors=["layers.0.attention.wq_", "expert"]',
            "log.dump_steps=[10]")
        cls.dump = cls.folder / "logs/dumps/mxfp8-seed1.dump-000010.h5"
        cls.log = cls.logs["mxfp8-seed1"]

    def show(self, *arguments):
        result = self.run_isoloss("show", *arguments)
        self.assertEqual(result.returncode, PASS, result.stderr)
        return result.stdout

    def test_parameters_layers_and_events(self):
        text = self.show(self.log)

        for words in ("largest gradient norms at step 20",
                      "largest update ratios at step 20",
                      "MoE layers at step 20", "entropy (nats)",
                      "20 of 20 planned", "start", "finish"):
            self.assertIn(words, text)
        self.assertNotIn("not finite", text)

    def test_parameters_are_the_largest_first(self):
        shown = json.loads(self.show(self.log, "--json"))

        with h5py.File(self.log) as log:
            norms = sorted(log["parameters/grad_norm"][-1], reverse=True)
            entropy = log["moe/router_entropy"][-1]
        self.assertEqual([top["value"] for top in shown["top_grad_norms"]],
                         norms[:5])
        self.assertEqual(
            [layer["router_entropy_nats"] for layer in shown["layers"]],
            list(entropy))
        self.assertEqual(shown["provenance"]["arm"], "mxfp8")
        self.assertEqual(shown["nonfinite_steps"], 0)

    def test_what_if_of_the_format_used_is_what_the_log_says(self):
        shown = json.loads(self.show(
            self.dump, "--what-if", "e4m3.rceil,e2m1.floor,nvfp4", "--tensors",
            "wq_activation", "--json"))

        found = {(row["format"], row["along"]): row
                 for row in shown["what_if"]}
        self.assertEqual(shown["step"], 10)
        self.assertEqual(len(found), 6)
        with h5py.File(self.log) as log:
            tensors = log["tensors"]
            row = list(tensors["step"]).index(10)
            names = [name.decode() for name in tensors["names"]]
            column = names.index("layers.0.attention.wq_activation")
            for along, suffix in (("rows", ""), ("columns", "_columnwise")):
                for name in ("sqnr_db", "mse", "underflows%", "saturated%"):
                    self.assertEqual(found["e4m3·rceil", along][name],
                                     tensors[name + suffix][row, column])
        for along in ("rows", "columns"):
            sqnr = [found[name, along]["sqnr_db"] for name in (
                "e2m1·floor", "e2m1·te·e4m3·1x16·two_level", "e4m3·rceil")]
            self.assertEqual(sqnr, sorted(sqnr))

    def test_what_if_as_text(self):
        text = self.show(self.dump, "--what-if", "e5m2.rceil")

        for words in ("wq_activation", "wq_weight", "expert", "sqnr_db",
                      "e5m2·rceil", "columns"):
            self.assertIn(words, text)
        self.assertNotIn("expert_ids", text)

    def test_what_if_refuses_what_it_cannot_tell(self):
        for file, formats, words in (
                (self.log, "e5m2.rceil", "needs whole tensors"),
                (self.dump, "e9m9.rceil", "e9m9"),
                (self.dump, "e4m3.te.fp32.0x0.delayed.history4",
                 "steps before")):
            self.assert_refused(
                self.run_isoloss("show", file, "--what-if", formats), words)
        self.assert_refused(
            self.run_isoloss("show", self.dump, "--what-if", "e5m2.rceil",
                             "--tensors", "nosuch"), "no tensor of numbers")

    def test_tensors_at_a_step(self):
        text = self.show("--tensors", "wq_activation", self.log, "--step", "1")
        self.assertIn("tensors at step 1", text)
        self.assertIn("sqnr_db", text)

        shown = json.loads(self.show(self.log, "--tensors", "layers.0.*wq",
                                     "--json"))
        self.assertEqual(shown["tensor_step"], 20)
        self.assertTrue(shown["tensors"])
        for tensor in shown["tensors"]:
            self.assertIn("wq", tensor["name"])
            self.assertIn("l2_norm", tensor)

    def test_tensors_that_are_not_there_are_refused(self):
        self.assert_refused(
            self.run_isoloss("show", self.log, "--tensors", "no_such"),
            "--tensors", "none of the")
        self.assert_refused(
            self.run_isoloss("show", self.log, "--tensors", "*", "--step",
                             "7"), "step 7", "steps 1, ")

    def test_a_step_that_is_not_there_is_refused(self):
        self.assert_refused(
            self.run_isoloss("show", self.log, "--step", "99"), "step 99",
            "steps 1 to 20")

    def test_tensors_are_those_of_the_last_step_with_statistics(self):
        log = self.make_logs("digests", "log.statistics_first=3",
                             "log.statistics_every=0",
                             "log.digests_every=10")["bf16-seed1"]

        shown = json.loads(self.show(log, "--tensors", "wq", "--json"))

        self.assertEqual(shown["tensor_step"], 3)

    def test_no_line_is_wider_than_a_narrow_terminal(self):
        for columns in (20, 30, 40):
            with Background(self.folder, "show", self.log, "--tensors", "wq",
                            terminal=(24, columns)) as show:
                self.assertEqual(show.end(), PASS)
            for line in visible(show.text).splitlines():
                self.assertLessEqual(len(line), columns, line)

    def test_a_value_that_is_not_finite_is_said_with_its_step(self):
        log = self.folder / shutil.copy(self.log, self.folder / "nan.h5")
        with edited_log(log) as file:
            file["steps/nonfinite_gradients"][4] = 3
            file["steps/loss_nats"][6] = float("nan")

        self.assertIn("2 of 20 steps, first at step 5",
                      " ".join(self.show(log).split()))
        self.assertEqual(
            json.loads(self.show(log, "--json"))["first_nonfinite_step"], 5)

    def test_the_schema_has_what_a_log_holds(self):
        schema = json.loads(self.show("--schema", "--json"))
        text = " ".join(self.show("--schema").split())

        groups = {group["name"]: {dataset["name"]: dataset for dataset in group["datasets"]}
                  for group in schema["groups"]}
        with h5py.File(self.log) as log:
            self.assertLessEqual(set(log.attrs), set(groups[""]))
            for name, group in log.items():
                self.assertIn(f"/{name}: ", text)
                for dataset in group.values():
                    self.assert_described(dataset, groups[name])

    def assert_described(self, dataset, datasets):
        name = dataset.name.rsplit("/", 1)[1]
        described = datasets[name]
        kind = {"int32": "int32", "int64": "int64", "float64": "float64",
                "bool": "bool", "object": "UTF-8 string"}[str(dataset.dtype)]
        self.assertEqual(described["type"].split(" [")[0], kind, name)
        self.assertEqual(described["type"].count(",") + 1, dataset.ndim, name)
        self.assertEqual(described["unit"], dataset.attrs["unit"], name)
        self.assertTrue(described["meaning"].startswith(
            dataset.attrs["description"]), name)

    def test_the_schema_stands_alone(self):
        for arguments in ((self.log,), ("--step", "1"), ("--tensors", "x"),
                          ("--recipe",), ("--what-if", "nvfp4")):
            with self.subTest(arguments=arguments):
                self.assert_refused(
                    self.run_isoloss("show", "--schema", *arguments),
                    "--schema", code=USAGE)

    def test_a_killed_run_is_shown_from_its_journal(self):
        run, journal = self.start_run("live")
        with run:
            run.process.kill()
        whole = journal.read_bytes()
        journal.write_bytes(whole[:-1])

        text = self.show(journal)

        self.assertIn("incomplete", text)
        self.assertIn("journal ", text)
        self.assertTrue(json.loads(self.show(journal, "--json"))["is_journal"])
        # The log is not there yet: the message says what is.
        self.assert_refused(
            self.run_isoloss("show", journal.with_suffix(".h5")),
            "bf16-seed1.journal")

    def test_a_journal_that_is_none_is_refused(self):
        for size in (0, 7, 12):
            path = self.write("x.journal", "isolossJ!!!!"[:size])
            with self.subTest(size=size):
                self.assert_refused(self.run_isoloss("show", path),
                                    "x.journal", code=INVALID)
