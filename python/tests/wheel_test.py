"""The wheel of a program that was built before: what it holds, and that pip installs it in a fresh
environment without network."""

import base64
import hashlib
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile
import unittest
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = pathlib.Path(os.environ["ISOLOSS_BINARY"]).resolve()
sys.path.insert(0, str(ROOT / "python/backend"))
import isoloss_backend  # noqa: E402
import portable  # noqa: E402

# Nothing of this test's surroundings reaches the installed package.
BARE = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "PIP_NO_INDEX": "1",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1"}


def run(*words, code=0, **environment):
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
                          encoding="utf-8", env={**BARE, **environment}, cwd="/")
    assert done.returncode == code, f"exit code {done.returncode}: {done.stdout}"
    return done.stdout


class Wheel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="isoloss-wheel-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        run("/usr/bin/python3", "-m", "venv", str(cls.folder / "venv"))
        cls.bin = cls.folder / "venv/bin"
        run(str(cls.bin / "pip"), "wheel", str(ROOT), "-w", folder.name,
            "--config-settings", f"program={BINARY}")
        cls.wheel, = cls.folder.glob("*.whl")
        run(str(cls.bin / "pip"), "install", str(cls.wheel))

    def test_holds_what_it_says(self):
        with zipfile.ZipFile(self.wheel) as wheel:
            files = {name: wheel.read(name) for name in wheel.namelist()}
        info = f"isoloss-{isoloss_backend.version()}.dist-info"
        record = files.pop(f"{info}/RECORD").decode().splitlines()

        expected = [f"{info}/RECORD,,"]
        for name, content in files.items():
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode()
            expected.append(f"{name},sha256={digest.rstrip('=')},{len(content)}")
        self.assertEqual(sorted(record), sorted(expected))
        self.assertEqual(files["isoloss/bin/isoloss"], BINARY.read_bytes())
        packed = {name for name in files if name.startswith("isoloss/")}
        modules = {f"isoloss/{file.name}" for file in (ROOT / "python/isoloss").glob("*.py")}
        self.assertLessEqual(modules, packed)
        self.assertIn(f"{info}/licenses/LICENSE", files)
        self.assertRegex(self.wheel.name, r"^isoloss-[\d.]+-py3-none-linux_\w+\.whl$")

    def test_equal_files_make_equal_wheels(self):
        again = isoloss_backend.build_wheel(self.folder / "venv", {"program": str(BINARY)})

        self.assertEqual((self.folder / "venv" / again).read_bytes(), self.wheel.read_bytes())

    def test_one_command_serves_program_and_python(self):
        command = str(self.bin / "isoloss")
        self.assertEqual(run(command, "--version"), run(str(BINARY), "--version"))
        self.assertIn("`gatee`", run(command, "gatee", code=2))
        self.assertRegex(run(command, "--help"), r"(?s)  gate .*Python:\n  recover .*  merge ")
        self.assertIn("isoloss merge run.h5 run.rank-0.h5", run(command, "merge", "--help"))
        self.assertIn("needs h5py", run(command, "recover", "a.journal", "a.h5", code=3))

    def test_python_finds_the_program_in_the_package(self):
        told = run(str(self.bin / "python"), "-c",
                   "import isoloss; from isoloss import program\n"
                   "print(isoloss.__version__, program.find())")

        version, found = told.split()
        self.assertEqual(version, isoloss_backend.version())
        self.assertTrue(found.startswith(str(self.folder)), found)

    def test_what_cannot_be_packed_is_refused(self):
        for settings, words in (({"programm": "x"}, "`programm` is no setting"),
                                ({"program": __file__}, "is no program"),
                                ({"program": "/bin/true"}, r"true: is .*, but the package is")):
            with self.subTest(words), self.assertRaisesRegex(SystemExit, words):
                isoloss_backend.build_wheel(self.folder, settings)


class Backend(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="isoloss-backend-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def test_a_missing_tool_is_named_with_the_remedy(self):
        told = run(sys.executable, "-c", "import isoloss_backend\nisoloss_backend.build_wheel('.')",
                   code=1, PATH=str(self.folder), PYTHONPATH=str(ROOT / "python/backend"))

        self.assertRegex(told, "^isoloss: cmake, ninja, pkg-config, a C.. compiler not found, "
                               ".*tools/dev/install_packages pip.*apt-get install .* cmake g")

    def test_a_folder_that_was_moved_is_configured_afresh(self):
        self.assertEqual(isoloss_backend.fresh_option(self.folder), [])
        for home, option in ((ROOT, []), (self.folder, ["--fresh"])):
            (self.folder / "CMakeCache.txt").write_text(f"CMAKE_HOME_DIRECTORY:INTERNAL={home}\n")
            self.assertEqual(isoloss_backend.fresh_option(self.folder), option)

    def test_libraries_are_those_that_are_not_of_glibc(self):
        libraries = dict(portable.libraries_of(BINARY))

        self.assertIn("libstdc++.so.6", libraries)
        self.assertTrue(all(file.is_file() for file in libraries.values()))
        self.assertFalse({"libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2"} & set(libraries))
        licences = dict(portable.licences_of(libraries.items()))
        self.assertIn("libstdc++6.txt", licences)
        self.assertIn(b"HDF5", licences["libhdf5-dev.txt"])

    def test_sources_build_where_they_are_unpacked(self):
        name = isoloss_backend.build_sdist(self.folder)

        with tarfile.open(self.folder / name) as archive:
            names = archive.getnames()
            archive.extractall(self.folder)
        root = self.folder / name.removesuffix(".tar.gz")
        self.assertTrue({f"{root.name}/{each}" for each in
                         ("PKG-INFO", "LICENSE", "lib/isoloss/LAYERS", "tools/isoloss/main.cc")}
                        <= set(names))
        self.assertFalse([each for each in names if re.match(r"[^/]+/(golden|build|tests)/", each)])
        run(sys.executable, "-c", "import sys, isoloss_backend\n"
            "isoloss_backend.build_wheel(sys.argv[1], {'program': sys.argv[2]})",
            str(self.folder), str(BINARY), PYTHONPATH=str(root / "python/backend"))
        self.assertTrue(list(self.folder.glob("*.whl")))


if __name__ == "__main__":
    unittest.main()
