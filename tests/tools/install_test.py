"""cmake --install, and a project that adds this one as a folder of its own."""

import os
import pathlib
import re
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ["ISOLOSS_BUILD_DIR"])

PARENT = """\
cmake_minimum_required(VERSION 3.25)
project(parent LANGUAGES C CXX)
enable_testing()
add_subdirectory({root} isoloss)
"""


def run(*command, folder):
    result = subprocess.run([str(word) for word in command], cwd=folder,
                            capture_output=True, encoding="utf-8", timeout=300)
    if result.returncode != 0:
        raise AssertionError(f"{command}: {result.stdout}{result.stderr}")
    return result.stdout


class Install(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="isoloss-install-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def test_the_program_and_its_modules_are_installed(self):
        prefix = self.folder / "prefix"

        run("cmake", "--install", BUILD, "--prefix", prefix, folder=self.folder)

        version = run(prefix / "bin" / "isoloss", "--version",
                      folder=self.folder)
        self.assertTrue(version.startswith("isoloss "), version)
        built = {path.name for path in (BUILD / "lib/isoloss").glob("*.so")}
        installed = {path.name for path in (prefix / "lib/isoloss").glob("*")}
        self.assertEqual(installed, built)
        run("python3", ROOT / "tests/layers/search_path_test.py",
            prefix / "bin" / "isoloss",
            *(prefix / "lib/isoloss").glob("*.so"), folder=self.folder)

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
