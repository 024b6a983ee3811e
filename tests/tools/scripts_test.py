"""The shell scripts of tools, in a copy whose surroundings only write down that they were called."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SECTIONS = ("build", "test", "bench", "browser", "coverage", "neon", "fuzz", "deb", "pip", "recipes",
            "slurm")
SCRIPTS = ("tools/demo", "tools/test", "tools/dev/bench", "tools/dev/browser",
           "tools/dev/compile_time", "tools/dev/coverage", "tools/dev/deb",
           "tools/dev/format", "tools/dev/fresh", "tools/dev/fuzz", "tools/dev/gpu",
           "tools/dev/install_packages", "tools/dev/neon",
           "tools/dev/recipes", "tools/dev/sanitize", "tools/dev/slurm", "tools/dev/tidy",
           "tools/dev/torch2", "tools/dev/trainers")
# What could install, build, change or take long. An answer is what dpkg is asked for.
RECORDED = ("apt-get", "clang++-14", "clang-format-14", "clang-tidy-14", "cmake", "ctest",
            "debootstrap", "dpkg", "dpkg-query", "ninja", "npm", "sudo", "unshare")
RECORDER = """#!/bin/bash
echo "$(basename "$0") $*" >> "$ISOLOSS_TEST_CALLS"
case "$(basename "$0") $*" in
  "dpkg --print-architecture") echo amd64 ;;
  dpkg-query*) [ -z "$ISOLOSS_TEST_INSTALLED" ] || echo "amd64 installed" ;;
  "sudo "*) exec "$@" ;;
  "apt-get "*"$ISOLOSS_TEST_APT_FAILS"*) [ -z "$ISOLOSS_TEST_APT_FAILS" ] || exit 100 ;;
esac
exit 0
"""


class Copy:
    """A copy of tools, with a PATH of recorders and of what a bare Debian has."""

    def __init__(self, folder, without=()):
        self.root = pathlib.Path(folder) / "copy of isoloss"
        shutil.copytree(ROOT / "tools", self.root / "tools",
                        ignore=shutil.ignore_patterns("__pycache__"))
        self.calls = pathlib.Path(folder) / "calls"
        self.path = pathlib.Path(folder) / "bin"
        self.path.mkdir()
        for tool in ("awk", "basename", "bash", "cat", "dirname", "env", "find", "grep", "id",
                     "nproc", "sed", "sort", "xargs"):
            (self.path / tool).symlink_to(shutil.which(tool))
        if "python3" not in without:
            # Not what PATH has, which may be a script that needs more tools.
            (self.path / "python3").symlink_to(os.path.realpath(sys.executable))
        for tool in set(RECORDED) - set(without):
            self.executable(self.path / tool, RECORDER)
        self.executable(self.root / "build/release/bin/isoloss", RECORDER)

    @staticmethod
    def executable(file, text):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        file.chmod(0o755)

    def run(self, script, *arguments, cwd=None, **environment):
        """(exit code, output, errors, calls)."""
        self.calls.write_text("", encoding="utf-8")
        done = subprocess.run(
            [self.root / script, *arguments], cwd=cwd or self.root, text=True,
            capture_output=True, check=False, stdin=subprocess.DEVNULL,
            env={"PATH": str(self.path), "ISOLOSS_TEST_CALLS": str(self.calls),
                 "ISOLOSS_TEST_INSTALLED": "1", "ISOLOSS_TEST_APT_FAILS": "", **environment})
        return (done.returncode, done.stdout, done.stderr,
                self.calls.read_text(encoding="utf-8").splitlines())


class CopyTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="isoloss-scripts-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.copy = Copy(folder.name)

    def copy_without(self, *tools):
        return Copy(tempfile.mkdtemp(dir=self.folder), without=tools)


class Scripts(CopyTest):
    def test_every_script_is_covered(self):
        found = {str(file.relative_to(ROOT)) for folder in ("tools", "tools/dev")
                 for file in (ROOT / folder).iterdir()
                 if file.is_file() and os.access(file, os.X_OK) and file.suffix == ""}
        self.assertEqual(found, set(SCRIPTS))

    def test_help_is_printed_and_nothing_is_called(self):
        for script in SCRIPTS:
            for option in ("--help", "-h"):
                with self.subTest(script=script, option=option):
                    code, output, errors, calls = self.copy.run(script, option, cwd="/")
                    self.assertEqual((code, errors, calls), (0, "", []))
                    self.assertIn(script, output)
                    self.assertRegex(output.lower(), "usage: " + script)
                    self.assertNotIn("set -euo", output)

    def test_help_shows_an_example_where_there_are_options(self):
        for script in ("tools/demo", "tools/test", "tools/dev/bench", "tools/dev/fresh",
                       "tools/dev/fuzz", "tools/dev/gpu", "tools/dev/neon", "tools/dev/sanitize",
                       "tools/dev/slurm", "tools/dev/torch2", "tools/dev/trainers"):
            self.assertRegex(self.copy.run(script, "--help")[1],
                             rf"(?m)^Examples?:\n +{script}", script)

    def test_unknown_options_are_refused_before_anything_is_called(self):
        for script in SCRIPTS:
            with self.subTest(script=script):
                code, output, errors, calls = self.copy.run(script, "--stepz", cwd="/")
                self.assertEqual((code, output, calls), (2, "", []))
                self.assertIn("--stepz", errors)
                self.assertRegex(errors, rf"{script}: |usage: {script}")

    def test_words_that_belong_to_no_option_are_refused(self):
        for script, *arguments in (("tools/demo", "my.toml"), ("tools/test", "quick"),
                                   ("tools/demo", "--json", "my.toml"),
                                   ("tools/test", "-V", "Cli"), ("tools/test", "--quick=1"),
                                   ("tools/test", "--quick", "--matrix"), ("tools/test", "--slurm", "--quick"),
                                   ("tools/dev/format", "lib"), ("tools/dev/tidy", "lib"),
                                   ("tools/dev/gpu", "--pack"), ("tools/dev/trainers", "--wheels"),
                                   ("tools/dev/gpu", "--pack", "x", "--device-only"),
                                   ("tools/dev/gpu", "--device-only"), ("tools/dev/fuzz", "0"), ("tools/dev/fuzz", "1", "2"),
                                   ("tools/dev/neon", "Gemm"), ("tools/dev/sanitize", "msan"),
                                   ("tools/dev/install_packages", "all"),
                                   ("tools/dev/install_packages", "build", "test"),
                                   ("tools/dev/install_packages",), ("tools/dev/fresh",),
                                   ("tools/dev/fresh", "format"),
                                   ("tools/dev/fresh", "tutorial", "--quick"),
                                   ("tools/dev/fresh", "pip", "--quick"),
                                   ("tools/dev/bench", "--filter", "("),
                                   ("tools/dev/bench", "--filter", "x", "--json", "bars")):
            with self.subTest(script=script, arguments=arguments):
                code, _, errors, calls = self.copy.run(script, *arguments)
                self.assertEqual((code, calls), (2, []))
                self.assertIn(script + ":", errors)

    def test_demo_passes_on_exactly_the_options_of_verify(self):
        helped = subprocess.run([os.environ["ISOLOSS_BINARY"], "verify", "--help"], text=True,
                                capture_output=True, check=True).stdout
        options = dict(re.findall(r"(?m)^  (?:-\w,)?(--[a-z-]+)( [A-Z]{2,}| [a-z]+\|)?", helped))
        self.assertIn("--set", options)
        del options["--help"]
        for option, value in options.items():
            arguments = [option, "x"] if value else [option]
            code, _, errors, calls = self.copy.run("tools/demo", *arguments)
            self.assertEqual(code, 0, errors)
            self.assertEqual(calls[-1].split(" experiment.toml")[0].split()[:2],
                             ["isoloss", "verify"])
            self.assertEqual(calls[-1].split()[3:], arguments)
            if not value:
                self.assertEqual(self.copy.run("tools/demo", option, "x")[0], 2, option)
        script = (ROOT / "tools" / "demo").read_text(encoding="utf-8")
        listed = re.findall(r'^verify_\w+="(.*)"$', script, re.MULTILINE)
        self.assertEqual(set(" ".join(listed).split()), set(options))

    def test_test_passes_on_options_of_ctest(self):
        for arguments in (["-R", "Cli.show"], ["-j1"], ["-j", "1", "-N"], ["--timeout", "5"],
                          ["--repeat", "until-fail:3"], ["--output-junit=x.xml"],
                          ["--rerun-failed", "--output-on-failure"]):
            code, _, errors, calls = self.copy.run("tools/test", "--quick", *arguments)
            self.assertEqual(code, 0, errors)
            self.assertRegex(calls[-1], "^ctest --preset quick --parallel [0-9]+ "
                             + re.escape(" ".join(arguments)) + "$")
        self.assertTrue(self.copy.run("tools/test", "--", "--debug")[3][-1].endswith(" --debug"))

    def test_programs_in_python_install_it_where_it_is_missing(self):
        python = os.path.realpath(sys.executable)
        for script in ("tools/dev/bench", "tools/dev/coverage"):
            copy = self.copy_without("python3")
            brings = f'{shutil.which("ln")} -sf "{python}" "{copy.path}/python3"\nexit 0\n'
            copy.executable(copy.path / "apt-get", RECORDER.replace("exit 0\n", brings))
            code, _, errors, calls = copy.run(script, "--stepz", ISOLOSS_TEST_INSTALLED="")
            self.assertRegex("\n".join(calls), "apt-get .*install .* python3( |$)", script)
            # Then the program itself refuses the option.
            self.assertEqual(code, 2, errors)
            self.assertIn("unrecognized arguments: --stepz", errors)

    def test_programs_in_python_say_what_is_missing(self):
        copy = self.copy_without("python3")
        for script, arguments, environment in (
                ("tools/dev/bench", ("--help",), {}), ("tools/dev/bench", ("--no-install",), {}),
                ("tools/dev/coverage", ("-h",), {}),
                ("tools/dev/bench", (), {"ISOLOSS_NO_INSTALL": "1"})):
            code, _, errors, calls = copy.run(script, *arguments, ISOLOSS_TEST_INSTALLED="",
                                              **environment)
            self.assertEqual((code, calls), (2, []), script)
            self.assertIn("python3 is not installed.", errors)

    def test_demo_and_test_share_one_build(self):
        built = {script: [call for call in self.copy.run(script)[3] if call.startswith("cmake")]
                 for script in ("tools/demo", "tools/test")}
        for script, calls in built.items():
            self.assertTrue(calls[0].startswith("cmake --preset release "), script)
            self.assertIn("cmake --build --preset release", calls[1])
            for call in calls:
                self.assertNotRegex(call, " -B|CMAKE_|WARNINGS|FLAGS|--clean", script)

    def test_demo_keeps_the_tests_of_a_configured_folder(self):
        def options():
            calls = self.copy.run("tools/demo")[3]
            return next(call for call in calls if call.startswith("cmake --preset"))
        self.assertIn("-DISOLOSS_BUILD_TESTS=OFF", options())
        (self.copy.root / "build/release/CMakeCache.txt").touch()
        self.assertEqual(options().strip(), "cmake --preset release")


class Packages(CopyTest):
    """tools/dev/install_packages."""

    SCRIPT = "tools/dev/install_packages"

    def test_installs_nothing_if_all_are_there(self):
        for section in SECTIONS:
            code, output, _, calls = self.copy.run(self.SCRIPT, section)
            foreign = section == "neon"  # the recorder has no package of arm64
            self.assertEqual(code, 0)
            self.assertEqual("apt-get" in "".join(calls), foreign, section)
            self.assertEqual(output == "", not foreign)

    @unittest.skipUnless(os.getuid() == 0, "as another user it asks sudo")
    def test_installs_what_is_missing_without_a_question(self):
        code, output, _, calls = self.copy.run(self.SCRIPT, "neon", ISOLOSS_TEST_INSTALLED="")
        self.assertEqual(code, 0)
        asked = [call for call in calls if call.startswith("apt-get")]
        self.assertRegex(asked[0], " update$")
        self.assertRegex(asked[1], " install -y --no-install-recommends .*cmake .*libhwy-dev:arm64")
        self.assertLess(calls.index("dpkg --add-architecture arm64"), calls.index(asked[0]))
        self.assertIn("Debian packages: ", output)

    @unittest.skipUnless(os.getuid() == 0, "as another user it asks sudo")
    def test_says_what_failed(self):
        for step in ("update", "install"):
            code, _, errors, _ = self.copy.run(self.SCRIPT, "build", ISOLOSS_TEST_INSTALLED="",
                                               ISOLOSS_TEST_APT_FAILS=step)
            self.assertEqual(code, 2)
            self.assertIn(f"apt-get {step} failed", errors)
            self.assertIn("libhdf5-dev", errors)

    def test_needs_root_or_sudo(self):
        bare = self.copy_without("sudo")
        bare.executable(bare.path / "user", "#!/bin/bash\necho 1000\n")
        (bare.path / "id").unlink()
        (bare.path / "user").rename(bare.path / "id")
        code, _, errors, calls = bare.run(self.SCRIPT, "build", ISOLOSS_TEST_INSTALLED="")
        self.assertEqual(code, 2)
        self.assertIn("only root may install them", errors)
        self.assertNotIn("apt-get", "".join(calls))

    def test_without_dpkg_it_says_what_to_do(self):
        for tool in ("dpkg", "dpkg-query", "apt-get"):
            bare = self.copy_without(tool)
            for script in ("tools/demo", "tools/test"):
                code, _, errors, calls = bare.run(script, ISOLOSS_TEST_INSTALLED="")
                self.assertEqual((code, calls), (2, []))
                self.assertIn(f"this machine has no {tool}, but the packages are those of Debian",
                              errors)
                self.assertNotIn("command not found", errors)
            code, _, errors, calls = bare.run("tools/demo", ISOLOSS_NO_INSTALL="1")
            self.assertEqual(code, 0, errors)
            self.assertEqual(calls[-1].split()[0], "isoloss")


if __name__ == "__main__":
    unittest.main()
