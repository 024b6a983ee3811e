"""Files of every kind and folders of them, wherever a command takes logs."""

import json
import shutil

from program import ProgramTest, FAIL, INVALID, PASS, PLAIN_POLICY, TINY


class Kinds(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.logs = cls.make_logs("logs")
        cls.make_logs("again")
        result = cls.run_isoloss("probe", cls.tiny, "--case", "plain", "--steps",
                                 "1", "--arm", "mxfp8", "--out", "logs/probes")
        assert result.returncode == PASS, result.stderr
        cls.probe = cls.folder / "logs/probes/mxfp8-seed1.probe.h5"
        cls.ensembles = {}
        for kind, options in (("benign", ()), ("seeds", ("--probe-steps", "1"))):
            cls.ensembles[kind] = cls.folder / f"ensembles/{kind}.h5"
            cls.ensembles[kind].parent.mkdir(exist_ok=True)
            result = cls.run_isoloss(
                "ensemble", "build", cls.tiny, "--kind", kind, "--runs", 3,
                "--steps", 4, "--out", cls.ensembles[kind], *options)
            assert result.returncode == PASS, result.stderr

    def ok(self, *arguments, code=PASS):
        result = self.run_isoloss(*arguments)
        self.assertEqual(result.returncode, code, result.stderr + result.stdout)
        return result.stdout

    def mixed(self, name):
        """A folder with the run logs and one file of every other kind."""
        folder = self.folder / name
        shutil.copytree(self.folder / "logs", folder)
        shutil.copy(self.probe, folder)
        shutil.copy(self.probe, folder / "oracle.h5")  # the user's own name
        shutil.copy(self.ensembles["benign"], folder)
        shutil.copy(self.logs["bf16-seed1"], folder / "x.partial.h5")
        (folder / ".bf16-seed1.h5.tmp").write_bytes(b"half")
        (folder / ".hidden.h5").write_bytes(b"half")
        return folder

    def test_a_folder_stands_for_its_run_logs_alone(self):
        folder = self.mixed("mixed")
        by_file = json.loads(self.ok("gate", *sorted(self.logs.values()), "--json", *PLAIN_POLICY))

        by_folder = json.loads(self.ok("gate", folder, "--json", *PLAIN_POLICY))

        self.assertEqual(by_folder["checks"], by_file["checks"])
        self.assertEqual([run["file"] for run in by_folder["candidate"]["runs"]],
                         [str(folder / f"mxfp8-seed{n}.h5") for n in (1, 2)])
        shown = json.loads(self.ok("show", folder, "--json"))["logs"]
        self.assertEqual([log["file"] for log in shown],
                         [str(folder / path.name)
                          for path in sorted(self.logs.values())])
        self.assertEqual(self.ok("show", folder).count("  arm  "), 4)

    def test_a_damaged_log_of_a_folder_is_never_passed_over(self):
        folder = self.mixed("damaged")
        log = folder / "mxfp8-seed2.h5"
        log.write_bytes(log.read_bytes()[:-100])

        for command in ("gate", "show"):
            self.assert_refused(self.run_isoloss(command, folder), str(log))

    def test_a_folder_without_logs_says_so(self):
        (self.folder / "none").mkdir()
        shutil.copy(self.logs["bf16-seed1"], self.folder / "none/a.partial.h5")
        for arguments in (("gate", "none"), ("show", "none"),
                          ("compare", "none", "logs"), ("export", "none"),
                          ("gate", "logs", "--against", "none")):
            self.assert_refused(self.run_isoloss(*arguments), "none: ",
                                "0 run logs", "1 ", "unfinished")
        for option, kind in (("--probe", "a probe log"),
                             ("--ensemble", "a null ensemble")):
            self.assert_refused(
                self.run_isoloss("gate", "logs", option, "none"), "none: ", kind)

    def test_evidence_in_folders(self):
        folder = self.mixed("evidence")
        (folder / "oracle.h5").unlink()
        (folder / self.probe.name).unlink()  # that in probes/ stays
        verdict = json.loads(self.run_isoloss(
            "gate", folder, "--against", "again", "--probe", folder, "--ensemble",
            folder, "--json").stdout)

        evidence = " ".join(verdict["verdicts"][1]["evidence"])
        self.assertIn("probes/mxfp8-seed1.probe.h5", evidence)
        self.assertIn("benign.h5", evidence)

    def test_folders_are_compared_run_by_run(self):
        same = self.ok("compare", "logs", "again")
        self.assertIn("4 of 4 runs that both folders hold are equal", same)
        (self.folder / "fewer").mkdir()
        shutil.copy(self.logs["bf16-seed1"], self.folder / "fewer")

        found = json.loads(self.ok("compare", "logs", "fewer", "--json", code=FAIL))

        self.assertEqual(found["only_a"], ["bf16-seed2", "mxfp8-seed1", "mxfp8-seed2"])
        self.assertEqual(found["only_b"], [])
        self.assertEqual([pair["equal"] for pair in found["pairs"]], [True])
        self.assert_refused(self.run_isoloss("compare", "logs", self.probe),
                            "is a folder", "Give two logs")
        (self.folder / "apart").mkdir()
        shutil.copy(self.logs["mxfp8-seed2"], self.folder / "apart")
        self.assert_refused(self.run_isoloss("compare", "fewer", "apart"),
                            "bf16-seed1", "mxfp8-seed2", "Give two logs")

    def test_show_reads_a_probe_log(self):
        text = self.ok("show", self.probe)
        for words in ("a probe log", "arm         mxfp8, recipe mxfp8_rceil, seed 1",
                      "worst tensor", "PASS: arm mxfp8, seed 1: "):
            self.assertIn(words, text)

        shown = json.loads(self.ok("show", self.probe, "--json"))

        self.assertEqual((shown["kind"], shown["outcome"]), ("probe log", "PASS"))
        case, = shown["cases"]
        self.assertEqual((case["case"], case["steps"], case["other"]),
                         ("plain", 1, 0))
        self.assertGreater(case["tensors"], 20)
        self.assert_refused(self.run_isoloss("show", self.probe, "--recipe"),
                            "--recipe")

    def test_export_reads_a_probe_log_and_folders(self):
        lines = self.ok("export", self.probe).splitlines()
        self.assertTrue(lines[0].startswith("probe_case[1],step[step],tensor[1]"),
                        lines[0])
        shown = json.loads(self.ok("show", self.probe, "--json"))
        self.assertEqual(len(lines) - 1, shown["total"]["tensors"])
        self.ok("export", self.probe, "--out", "tables")
        self.assertTrue((self.folder / "tables/tensors.csv").is_file())
        self.assert_refused(self.run_isoloss("export", self.probe, "--group", "steps"),
                            "no group of a probe log", "oracle")

        self.ok("export", "logs", "--out", "all")

        self.assertEqual(sorted(path.name for path in (self.folder / "all").iterdir()),
                         sorted(self.logs))
        self.assertEqual((self.folder / "all/bf16-seed1/steps.csv").read_text(),
                         self.ok("export", self.logs["bf16-seed1"]))
        self.assert_refused(self.run_isoloss("export", "logs"), "logs: ", "4 run logs",
                            "--out")

    def test_watch_passes_over_what_is_no_run(self):
        folder = self.mixed("watched")
        (folder / "x.partial.h5").unlink()

        text = self.ok("watch", folder, "--once")

        self.assertEqual(text.count("finished"), 4)
        self.assertNotIn("oracle", text)
        for options in ((), ("--once",)):
            self.assertIn("this is a probe log",
                          self.ok("watch", self.probe, *options))
        self.assertNotIn("benign", text)

    def test_show_reads_null_ensembles(self):
        for kind, question in (("benign", "regression"), ("seeds", "precision")):
            text = self.ok("show", self.ensembles[kind])
            self.assertIn(f"a null ensemble of kind {kind}", text)
            self.assertIn(question, text)
            self.assertIn("members     3 of 4 steps", text)

            shown = json.loads(self.ok("show", self.ensembles[kind], "--json"))

            self.assertEqual((shown["kind"], shown["ensemble_kind"]),
                             ("null ensemble", kind))
            self.assertEqual((shown["members"], shown["steps"]), (3, 4))
            self.assertEqual([s["quantity"] for s in shown["spreads"]],
                             ["loss_nats", "grad_norm"])
        self.assertEqual(shown["seeds"], [1000001, 1000002, 1000003])

    def test_a_file_of_another_kind_is_named_as_what_it_is(self):
        log = self.logs["bf16-seed1"]
        ensemble = self.ensembles["benign"]
        for arguments, words in (
                (("gate", log, self.probe), "this is a probe log"),
                (("gate", log, ensemble), "this is a null ensemble"),
                (("compare", log, self.probe), "this is a probe log"),
                (("export", ensemble), "this is a null ensemble"),
                (("gate", "logs", "--probe", log), "this is a run log"),
                (("gate", "logs", "--ensemble", self.probe), "this is a probe log")):
            with self.subTest(arguments=arguments):
                result = self.run_isoloss(*arguments)
                self.assert_refused(result, words)
                self.assertNotIn("make it again", result.stderr)

    def test_two_experiments_are_said_to_be_two(self):
        other = self.make_logs("other", "train.lr=0.002")["bf16-seed1"]
        text = self.ok("compare", self.logs["bf16-seed1"], other, code=FAIL)
        self.assertIn("A and B are runs of two experiments", text)
        self.assertIn("train.lr", text)
        arms = self.ok("compare", self.logs["bf16-seed1"], self.logs["mxfp8-seed1"],
                       code=FAIL)
        self.assertNotIn("two experiments", arms)

    def test_one_arm_is_the_candidate_or_must_be_named(self):
        self.write("three.toml", TINY + '[arms.floor]\nrecipe = "mxfp8_floor"\n')
        self.assert_refused(self.run_isoloss("ensemble", "build", "three.toml", "--out", "e.h5"),
                            "mxfp8, floor", "--arm", code=INVALID)


class Json(ProgramTest):
    """--json: one object on standard output, whatever happens."""

    def one(self, result):
        self.assertNotIn("\n{", result.stdout.strip(), "one object")
        return json.loads(result.stdout)

    def test_an_error_is_an_object(self):
        for arguments, kind, code in (
                (("gate", "missing.h5"), "io", INVALID),
                (("show", "missing.h5"), "io", INVALID),
                (("compare", "missing.h5", "missing.h5"), "io", INVALID),
                (("verify", "missing.toml"), "io", INVALID),
                (("run", "tiny.toml", "--arm", "fp8"), "config", INVALID),
                (("probe", "tiny.toml", "--arm", "fp8"), "config", INVALID),
                (("parity", "tiny.toml"), "config", INVALID),
                (("golden", "check", "missing"), None, INVALID),
                (("ensemble", "build", "tiny.toml", "--arm", "fp8", "--out", "e.h5"),
                 "config", INVALID),
                (("gate",), "usage", 2),
                (("gate", "--no-such-option"), "usage", 2)):
            with self.subTest(arguments=arguments):
                result = self.run_isoloss(*arguments, "--json")

                printed = self.one(result)
                self.assertEqual(result.returncode, code, result.stderr)
                self.assertEqual(set(printed), {"error", "exit_code"})
                self.assertEqual(printed["exit_code"], code)
                if kind:
                    self.assertEqual(printed["error"]["kind"], kind)
                self.assertIn(printed["error"]["message"], result.stderr)

    def test_a_run_lists_its_logs(self):
        result = self.run_isoloss("run", "tiny.toml", "--out", "out", "--json")

        printed = self.one(result)
        self.assertEqual(printed["exit_code"], PASS)
        self.assertEqual(printed["logs"],
                         [f"out/{arm}-seed{seed}.h5"
                          for seed in (1, 2) for arm in ("bf16", "mxfp8")])

    def test_an_ensemble_is_summarised(self):
        result = self.run_isoloss("ensemble", "build", "tiny.toml", "--runs", 2,
                                  "--steps", 2, "--out", "e.h5", "--json")
        printed = self.one(result)
        self.assertEqual(printed["members"], 2)
        self.assertEqual(printed["provenance"]["arm"], "mxfp8")
