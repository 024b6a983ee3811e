"""isoloss lab doctor says whether a machine is fit, and sees one that is not."""

import json
import os
import pathlib
import re
import stat

from program import ENVIRONMENT, FAIL, INVALID, PASS, ProgramTest
from terminal import on_terminal

TOPICS = ("program", "kernels", "arithmetic", "self-test", "libraries", "MPI", "launchers",
          "Slurm", "processors", "memory", "disk", "terminal")
LIBRARIES = {"HDF5", "zlib", "xxHash", "ISA-L", "Highway", "fmt", "nlohmann-json", "toml++",
             "Boost", "CLI11"}


class Doctor(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.result = cls.run_isoloss("doctor", "--json")
        cls.found = json.loads(cls.result.stdout)

    def checks(self, result):
        """Of a JSON object, by topic."""
        return {check["topic"]: check for check in json.loads(result.stdout)["checks"]}

    def fake(self, name, says):
        """A folder in which a program of that name says something."""
        path = self.write(f"bin-{name}/{name}", f"#!/bin/sh\nprintf '%b' '{says}'\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return str(path.parent)

    def test_a_fit_machine_passes_and_no_file_is_written(self):
        self.assertEqual(self.result.returncode, PASS, self.result.stdout)
        self.assertEqual(self.result.stderr, "")
        self.assertEqual(self.found["exit_code"], PASS)
        self.assertEqual([check["topic"] for check in self.found["checks"]], list(TOPICS))
        self.assertGreater(self.found["seconds"], 0)
        self.assertEqual([path.name for path in self.folder.iterdir()
                          if not path.name.startswith("bin-")], ["tiny.toml"])

    def test_versions_and_bits_are_named(self):
        checks = self.checks(self.result)
        self.assertEqual(set(checks["libraries"]["values"]), LIBRARIES)
        for name, version in checks["libraries"]["values"].items():
            self.assertRegex(version, r"^\d+\.\d+", name)
        self.assertRegex(checks["program"]["values"]["numerics_digest"], r"^[0-9a-f]{16}$")
        self.assertIn(checks["program"]["values"]["commit"], self.run_isoloss("--version").stdout)
        self.assertEqual(checks["self-test"]["health"], "ok")
        self.assertGreaterEqual(int(checks["self-test"]["values"]["trainings"]), 10)
        self.assertEqual(checks["self-test"]["values"]["wrong"], "0")
        self.assertIn("scalar", checks["kernels"]["values"]["available"])

    def test_a_device_that_multiplies_as_the_processor_passes(self):
        result = self.run_isoloss("doctor", "--gpu", "0.1", "--on", "emulation", "--json")

        self.assertEqual(result.returncode, PASS, result.stdout)
        checks = json.loads(result.stdout)["checks"]
        self.assertEqual({check["topic"] for check in checks}, {"products"})
        self.assertLessEqual({"fp32_chain", "hopper_bf16", "hopper_f13_promote128"},
                             {check["values"]["kind"] for check in checks})
        for check in checks:
            values = check["values"]
            self.assertEqual((check["health"], values["wrong"]), ("ok", "0"), check)
            self.assertEqual(int(values["elements"]), int(values["products"]) * 48 * 80)
            self.assertRegex(values["digest"], r"^[0-9a-f]{16}$")

        shown = self.run_isoloss("doctor", "--gpu", "0.1", "--on", "emulation").stdout
        self.assertRegex(" ".join(shown.split()), "Multiplication, and nothing else, is fit: ")

    def test_a_device_that_is_not_here_is_refused(self):
        result = self.run_isoloss("doctor", "--gpu", "1")
        if result.returncode == PASS:
            self.skipTest("there is a GPU")

        self.assertEqual(result.returncode, INVALID)
        self.assertIn("--gpu: ", result.stderr)

    def test_every_line_fits_and_says_what_to_do(self):
        shown = on_terminal(self.folder, ["doctor"], 60)
        plain = re.sub(r"\x1b\[[0-9;]*m", "", shown)
        for line in plain.splitlines():
            self.assertLessEqual(len(line), 60, line)
        for topic in TOPICS:
            self.assertRegex(plain, rf"(?m)^(ok|note|problem) +{topic} ")
        self.assertRegex(" ".join(plain.split()),
                         r"This machine is fit: .* ok, .*in \d+\.\d seconds \(exit code 0\)$")
        self.assertIn("\x1b[32mok", shown)
        for check in self.found["checks"]:
            self.assertEqual(check["health"] == "ok", check["remedy"] == "", check)

    def test_wrong_arithmetic_fails_the_self_test(self):
        library = os.environ.get("ISOLOSS_WRONG_ROUNDING")
        if not library:
            self.skipTest("ISOLOSS_WRONG_ROUNDING, which CTest sets, names no library")
        result = self.run_isoloss("doctor", "--json", environment={"LD_PRELOAD": library})

        self.assertEqual(result.returncode, FAIL)
        checks = self.checks(result)
        self.assertEqual(checks["arithmetic"]["health"], "problem")
        self.assertIn("LD_PRELOAD", checks["arithmetic"]["remedy"])
        self.assertEqual(checks["self-test"]["health"], "problem")
        self.assertRegex(checks["self-test"]["text"], r"\d+ of \d+ trainings differ")
        self.assertNotEqual(checks["self-test"]["values"]["wrong"], "0")

    def test_a_folder_that_takes_no_results_is_a_problem(self):
        closed = self.folder / "closed"
        closed.mkdir()
        closed.chmod(0o555)
        with self.unprivileged() as options:
            result = self.run_isoloss("doctor", "--out", "closed/runs", "--json", **options)

            self.assertEqual(result.returncode, FAIL)
            self.assertEqual(self.checks(result)["disk"]["health"], "problem")
            self.assertIn("--out", self.checks(result)["disk"]["remedy"])
        closed.rmdir()

    def test_launchers_say_their_version_and_hostile_ones_are_escaped(self):
        path = ":".join([self.fake("mpirun", r"mpirun (Open MPI) 9.8.7\nmore\n"),
                         self.fake("srun", r"slurm 22.05.8\n"),
                         self.fake("mpiexec", r"\033[2J\n")])
        result = self.run_isoloss("doctor", environment={
            "PATH": f"{path}:{ENVIRONMENT['PATH']}", "SLURM_JOB_ID": "77\x1b[2J",
            "SLURM_NTASKS": "4", "SLURM_JOB_NUM_NODES": "2"})

        text = re.sub(r"\s+", " ", result.stdout)
        self.assertNotIn("\x1b", text)
        self.assertIn("mpirun (Open MPI 9.8.7)", text)
        self.assertIn("mpiexec (says no version that is known)", text)
        self.assertIn(r"srun 22.05.8, inside job 77\x1b[2J of 2 nodes and 4 tasks", text)

    def test_what_is_not_there_or_forced_is_worth_a_note(self):
        modules = self.folder / "bin-modules"
        modules.mkdir()
        (modules / "isoloss_mpi_openmpi.so").write_text("no library")
        result = self.run_isoloss("doctor", "--json", environment={
            "PATH": "/nowhere", "ISOLOSS_MPI_MODULE_DIR": str(modules),
            "ISOLOSS_FORCE_KERNEL": "scalar", "LC_ALL": "C"})

        self.assertEqual(result.returncode, PASS)
        checks = self.checks(result)
        for topic in ("launchers", "MPI", "terminal"):
            self.assertEqual(checks[topic]["health"], "note", topic)
        self.assertIn("that of Open MPI does not", checks["MPI"]["text"])
        self.assertEqual(checks["Slurm"]["values"]["found"], "no")
        self.assertEqual(checks["kernels"]["values"]["used"], "scalar")
        self.assertEqual(checks["self-test"]["health"], "ok")
        if checks["kernels"]["values"]["available"] != "scalar":
            self.assertEqual(checks["kernels"]["health"], "note")
