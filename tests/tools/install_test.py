"""cmake --install, a project that finds what is installed (tests/consumer), and one that adds this
one as a folder of its own."""

import os
import pathlib
import re
import shutil
import tempfile
import unittest

from checked_run import run

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ["ISOLOSS_BUILD_DIR"])

PARENT = """\
cmake_minimum_required(VERSION 3.25)
project(parent LANGUAGES C CXX)
enable_testing()
add_subdirectory({root} isoloss)
"""


SEEKER = """\
cmake_minimum_required(VERSION 3.25)
project(seeker LANGUAGES C CXX)
find_package(isoloss ${HOW})
message(STATUS "isoloss_FOUND is ${isoloss_FOUND}")
if(isoloss_FOUND AND NOT TARGET isoloss::campaign)
  message(FATAL_ERROR "it has no targets")
endif()
"""


class InFolder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="isoloss-install-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)


class Installed(InFolder):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="isoloss-prefix-")
        cls.addClassCleanup(folder.cleanup)
        cls.prefix = pathlib.Path(folder.name)
        run("cmake", "--install", BUILD, "--prefix", cls.prefix, folder=cls.prefix)

    def test_the_program_and_its_modules_are_there(self):
        prefix = self.prefix

        version = run(prefix / "bin" / "isoloss", "--version",
                      folder=self.folder)
        self.assertTrue(version.startswith("isoloss "), version)
        built = {path.name for path in (BUILD / "lib/isoloss").glob("*.so")}
        installed = {path.name for path in (prefix / "lib/isoloss").glob("*")}
        self.assertEqual(installed, built)
        run("python3", ROOT / "tests/layers/search_path_test.py",
            prefix / "bin" / "isoloss",
            *(prefix / "lib/isoloss").glob("*.so"), folder=self.folder)

    def test_the_program_trains_an_installed_experiment(self):
        experiment = self.prefix / "share/isoloss/experiments/demo/experiment.toml"

        plan = run(self.prefix / "bin/isoloss", "verify", experiment, "--dry-run",
                   folder=self.folder)

        self.assertIn("mxfp8_rceil", plan)

    def test_headers_include_installed_ones_only(self):
        include = self.prefix / "include"
        headers = list(include.rglob("*.h"))

        missing = {name for header in headers
                   for name in re.findall(r'^#include "(.*)"', header.read_text(), re.MULTILINE)
                   if not (include / name).is_file()}

        self.assertEqual(missing, set())
        self.assertEqual({str(header.relative_to(include)) for header in headers},
                         {str(header.relative_to(ROOT / "include"))
                          for header in (ROOT / "include").rglob("*.h")})
        self.assertLessEqual(len(headers), 60)

    def test_the_program_looks_for_nothing_where_it_was_built(self):
        program = (self.prefix / "bin/isoloss").read_bytes()
        self.assertNotIn(str(BUILD / "lib").encode(), program)

    def test_exported_targets_name_no_folder_of_this_checkout(self):
        for file in self.prefix.rglob("isoloss*.cmake"):
            self.assertNotIn(str(ROOT), file.read_text(), file)
            self.assertNotIn(str(BUILD), file.read_text(), file)

    def seek(self, how, option="", variable=""):
        """What a project prints that looks for what is installed."""
        (self.folder / "CMakeLists.txt").write_text(SEEKER)
        return run("env", *filter(None, [variable]), "cmake", "-G", "Ninja", "-S", self.folder,
                   "-B", self.folder / "build", "--fresh", f"-DCMAKE_PREFIX_PATH={self.prefix}",
                   f"-DHOW={how}", *filter(None, [option]), folder=self.folder)

    def test_a_dependency_that_is_missing_stops_those_only_who_require_the_package(self):
        self.assertIn("isoloss_FOUND is 1", self.seek("QUIET"))
        # Of the packages that CMake finds, and of those that pkg-config finds.
        for missing, name in (({"option": "-DCMAKE_DISABLE_FIND_PACKAGE_fmt=ON"}, "fmt"),
                              ({"variable": "PKG_CONFIG_LIBDIR=/"}, "libhwy")):
            with self.subTest(name):
                self.assertIn("isoloss_FOUND is 0", self.seek("QUIET", **missing))
                with self.assertRaisesRegex(AssertionError, name):
                    self.seek("REQUIRED", **missing)

    def test_another_project_trains_and_judges_a_format_recipe_and_level_of_its_own(self):
        source = self.folder / "consumer"
        shutil.copytree(ROOT / "tests/consumer", source)
        build = self.folder / "build"
        run("cmake", "-G", "Ninja", "-S", source, "-B", build,
            f"-DCMAKE_PREFIX_PATH={self.prefix}", "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON",
            folder=self.folder)
        run("cmake", "--build", build, folder=self.folder)

        report = run(build / "consumer", self.folder / "runs", folder=self.folder)

        # The multiples of 1/32 beside 0.7 are 0.6875 and 0.71875; the largest value is 31.
        self.assertIn("e3m4: 0.7 is 0.6875, 100 is 31\n", report)
        # 31 / 40 is above 1/2: halves of 1.51, 40 and 4, 0.755 rounded to the nearest multiple of
        # 1/32, are doubled.
        self.assertIn("e3m4·te·pow2: 1.5, 40, 4\n", report)
        self.assertIn("recipes: bf16, e3m4_rceil\n", report)
        self.assertIn("PASS L0 recipe_ran: ", report)
        self.assertIn("PASS X1 last_loss: ", report)
        # Headers of the library compute, so that its users need its switch.
        self.assertIn("-ffp-contract=off", (build / "compile_commands.json").read_text())


class Included(InFolder):
    def test_a_project_that_adds_this_one_gets_no_tests_and_no_benchmarks(self):
        (self.folder / "CMakeLists.txt").write_text(PARENT.format(root=ROOT))
        build = self.folder / "build"

        run("cmake", "-G", "Ninja", "-S", self.folder, "-B", build,
            folder=self.folder)

        self.assertIn("Total Tests: 0",
                      run("ctest", "-N", "--test-dir", build, folder=self.folder))
        targets = re.findall(r"^(\w+): ", run(
            "ninja", "-C", build, "-t", "targets", "all", folder=self.folder),
            re.MULTILINE)
        self.assertIn("isoloss", targets)
        self.assertEqual(
            [name for name in targets if name.endswith(("_test", "_bench"))], [])


if __name__ == "__main__":
    unittest.main()
