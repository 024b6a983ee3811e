"""Files that somebody prepared: nothing is passed over, nothing takes the
program down, nothing of the user's is destroyed, nothing reaches a terminal."""

import contextlib
import fcntl
import os
import pathlib
import shutil
import struct
import subprocess
import unittest

import h5py
import numpy as np

from program import BINARY, ENVIRONMENT, INVALID, PASS, ProgramTest
from sealed_log import edited_log, seal, TRAILER_BYTES

TEXT = h5py.string_dtype("utf-8")
GIB = 1 << 30
# Minutes, and gigabytes of scratch files: ISOLOSS_LARGE_FILES=1, as the test Cli.hostile_large does.
large = unittest.skipUnless(os.environ.get("ISOLOSS_LARGE_FILES"), "large files")


def swap_steps(log):
    steps = log["steps/step"][()]
    steps[[3, 4]] = steps[[4, 3]]
    log["steps/step"][...] = steps


def link_outside(log):
    del log["steps/loss_nats"]
    log["steps/loss_nats"] = h5py.ExternalLink("other.h5", "/steps/loss_nats")


def wrong_unit(log):
    log["steps/loss_nats"].attrs.create("unit", "x", dtype=TEXT)


def two_kinds(log):
    log.attrs.create("probe_schema_version", 1)
    swap_steps(log)


def replace(log, path, rows, **options):
    """An empty dataset of as many rows in the place of one, compressed: the
    file stays small."""
    old = log[path]
    attributes = dict(old.attrs)
    kind, row = old.id.get_type(), old.shape[1:]
    del log[path]
    layout = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    layout.set_chunk((1 << 14,) + row)
    layout.set_deflate(9)
    space = h5py.h5s.create_simple((rows,) + row,
                                   (h5py.h5s.UNLIMITED,) + row)
    new = h5py.Dataset(h5py.h5d.create(log.id, path.encode(), kind, space,
                                       dcpl=layout))
    for name, value in attributes.items():
        new.attrs.create(name, value, dtype=TEXT if isinstance(value, str) else None)
    return new


def pad(log):
    """Deflate's best ratio is allowed; the file must not be too small."""
    noise = np.random.default_rng(1).bytes(1 << 20)
    log["padding"] = np.frombuffer(noise, np.uint8)


def many_steps(rows):
    def change(log):
        for name in list(log["steps"]):
            new = replace(log, f"steps/{name}", rows)
            if name == "step":
                new[...] = np.arange(1, rows + 1)
        pad(log)
    return change


def many_events(log):
    for name in list(log["events"]):
        replace(log, f"events/{name}", 8_000_000)
    pad(log)


def many_members(log):
    for name in ("seed", "perturbation"):
        replace(log, f"members/{name}", 300_000)
    pad(log)


def many_attributes(log):
    for i in range(3000):
        log.attrs.create(f"a{i}", i)


def long_text(log):
    log.attrs.create("experiment_text", "\x1b" * (40 << 20), dtype=TEXT)


class HostileTest(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.logs = cls.make_logs("logs")

    def changed(self, name, change, source=None):
        """A copy of a log, changed and sealed."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source or self.logs["mxfp8-seed1"], path)
        with edited_log(path) as log:
            change(log)
        return path

    def assert_harmless(self, text):
        """Nothing that a terminal would obey, and no forged line."""
        self.assertNotRegex(text, "[\x00-\x08\x0b-\x1f\x7f\x80-\x9f]")
        self.assertNotRegex(text, r"(?m)^(PASS|isoloss: PASS)")


class NothingIsPassedOver(HostileTest):
    def damaged(self, name, change):
        """A folder in which both logs of seed 2 are damaged."""
        folder = self.folder / name
        shutil.copytree(self.folder / "logs", folder)
        for arm in ("bf16", "mxfp8"):
            self.changed(f"{name}/{arm}-seed2.h5", change,
                         self.logs[f"{arm}-seed2"])
        return folder

    def test_every_command_names_a_damaged_log_of_a_folder(self):
        for change in (swap_steps, link_outside, wrong_unit, two_kinds):
            folder = self.damaged(change.__name__, change)
            for command in (("gate", folder), ("show", folder),
                            ("compare", folder, "logs"),
                            ("compare", "logs", folder),
                            ("export", folder, "--out", "tables"),
                            ("gate", "logs", "--against", folder),
                            ("gate", "logs", "--probe", folder),
                            ("gate", "logs", "--ensemble", folder)):
                if change is not two_kinds and command[2:3] in (
                        ("--probe",), ("--ensemble",)):
                    continue  # these are run logs, if bad ones
                with self.subTest(change=change.__name__, command=command):
                    self.assert_refused(self.run_isoloss(*command), str(folder),
                                        "seed2.h5")
            self.assert_no_files("tables")
            for options in (("--once",), ()):
                result = self.run_isoloss("watch", folder, *options)
                self.assertEqual(result.returncode, INVALID, result.stderr)
                self.assertIn("mxfp8-seed2", result.stdout)

    def test_watching_a_damaged_log_says_so(self):
        for change in (swap_steps, link_outside, wrong_unit):
            path = self.changed(f"watched/{change.__name__}.h5", change)
            for options in (("--once",), ()):
                self.assert_refused(
                    self.run_isoloss("watch", path, *options), str(path))
            path.unlink()


    def test_a_pipe_is_no_log(self):
        for name in ("pipe.h5", "pipe.journal"):
            path = self.folder / "pipes" / name
            path.parent.mkdir(exist_ok=True)
            os.mkfifo(path)
            for command in (("watch", "--once", path), ("watch", path),
                            ("watch", "--once", path.parent), ("show", path)):
                result = self.run_isoloss(*command)
                self.assertEqual(result.returncode, INVALID, result.stdout)
                self.assertIn("is a folder or",
                              result.stdout + result.stderr)
            path.unlink()


class NothingTakesItDown(HostileTest):
    def peak(self, *arguments):
        """Runs the program; returns its exit code, message and memory."""
        with open(self.folder / "err", "wb") as errors:
            process = subprocess.Popen(
                [BINARY, *map(str, arguments)], cwd=self.folder, env=ENVIRONMENT,
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors)
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        return (process.returncode, (self.folder / "err").read_text(),
                usage.ru_maxrss * 1024)

    def assert_bounded(self, *arguments, words=(), code=INVALID):
        found, message, memory = self.peak(*arguments)
        self.assertEqual(found, code, message)
        self.assertLess(memory, GIB, message)
        for word in words:
            self.assertIn(word, message)

    @large
    def test_small_files_that_hold_much(self):
        many = self.changed("many.h5", many_steps(6_000_000))
        for name, path, words in (
                ("steps", many, ["ISOLOSS_MEMORY_MIB"]),
                ("events", self.changed("events.h5", many_events),
                 ["with /events/"]),
                ("attributes", self.changed("attributes.h5", many_attributes),
                 ["attributes, but an object"]),
                ("text", self.changed("text.h5", long_text),
                 ["the strings of the file"])):
            with self.subTest(name=name):
                for command in (("show", path), ("compare", path, path),
                                ("gate", path, "--against", path)):
                    self.assert_bounded(*command, words=[str(path), *words])

    @large
    def test_several_files_are_counted_together(self):
        for i in range(4):
            self.changed(f"bombs/a-seed{i}.h5", many_steps(3_000_000))
        for command in (("show", "bombs"), ("gate", "bombs"),
                        ("watch", "bombs", "--once")):
            with self.subTest(command=command):
                self.assert_bounded(*command)
        self.assert_refused(self.run_isoloss("show", "bombs"),
                            "all files that are held", "ISOLOSS_MEMORY_MIB")

    @large
    def test_an_ensemble_of_many_members(self):
        result = self.run_isoloss("ensemble", "build", self.tiny, "--runs", 2,
                                  "--steps", 2, "--out", "null.h5")
        self.assertEqual(result.returncode, PASS, result.stderr)
        path = self.changed("members.h5", many_members, self.folder / "null.h5")
        self.assert_bounded("show", path, words=[str(path)])

    @large
    def test_a_dump_that_names_a_tensor_often(self):
        result = self.run_isoloss("run", self.tiny, "--out", "dumped", "--arm",
                                  "bf16", "--seeds", "1", "--dump", "*",
                                  "--dump-steps", "1")
        self.assertEqual(result.returncode, PASS, result.stderr)
        dump, = (self.folder / "dumped/dumps").glob("*.h5")

        def repeat(log):
            names = log["names"].asstr()[()]
            most = max(names, key=lambda name: log[name]["values"].size)
            del log["names"]
            log.create_dataset("names", data=np.array([most] * 30_000, object),
                               dtype=TEXT, maxshape=(None,))

        path = self.changed("repeated.h5", repeat, dump)
        self.assert_bounded("compare", path, path, words=["twice"])

    @large
    def test_the_limit_is_the_users(self):
        log = self.logs["mxfp8-seed1"]
        self.assert_refused(
            self.run_isoloss("show", self.changed("some.h5", many_steps(20_000)),
                             environment={"ISOLOSS_MEMORY_MIB": "1"}),
            "ISOLOSS_MEMORY_MIB")
        for value in ("0", "x", "-1", "1.5", ""):
            self.assert_refused(
                self.run_isoloss("show", log,
                                 environment={"ISOLOSS_MEMORY_MIB": value}),
                "ISOLOSS_MEMORY_MIB is", "must be a number of MiB")

    def test_keys_with_many_dots(self):
        dots = ".a" * 40_000
        log = self.logs["mxfp8-seed1"]
        for name, text in (("key", f"a{dots} = 1"), ("table", f"[a{dots}]"),
                           ("tables", f"[[a{dots}]]"),
                           ("inline", f"a = {{a{dots} = 1}}"),
                           ("quoted", "a" + '."a"' * 40_000 + " = 1"),
                           ("behind", f'x = {{a = """a"""", a{dots} = 1}}')):
            path = self.write(f"{name}.toml", text)
            (self.folder / "golden").mkdir(exist_ok=True)
            for file in ("suite.toml", "history.toml", "experiment.toml"):
                shutil.copy(path, self.folder / "golden" / file)
            for command in (("run", path, "--dry-run"),
                            ("gate", log, "--against", log, "--policy", path),
                            ("golden", "check", "golden")):
                with self.subTest(name=name, command=command[0]):
                    result = self.run_isoloss(*command)
                    self.assertEqual(result.returncode, INVALID)
                    self.assertIn("more than 16 parts", result.stderr)
        self.assert_refused(self.run_isoloss("run", self.tiny, "--set",
                                             f"a{dots}=1", "--dry-run"), "--set")

    def test_a_list_of_many_seeds(self):
        result = self.run_isoloss("run", self.tiny, "--dry-run", "--seeds",
                                  ",".join(["1"] * 60_000))
        self.assertEqual(result.returncode, INVALID)
        self.assertIn("train.seeds", result.stderr)
        for seeds in ("1,", ",1", "1,,2", "+", "+0", "+01", "+10000", "1 2"):
            self.assert_refused(
                self.run_isoloss("run", self.tiny, "--dry-run", "--seeds", seeds),
                "--seeds")


class NothingIsDestroyed(HostileTest):
    def test_a_table_replaces_a_table_of_its_kind_alone(self):
        log = self.logs["mxfp8-seed1"]
        for name, text, options in (
                ("notes.txt", "my notes\n",
                 ("--group", "exchange_pairs", "--format", "jsonl")),
                ("other.jsonl", '{"step":1,"mine":7}\n',
                 ("--group", "moe", "--format", "jsonl")),
                ("figures.csv", "step,my own figures\n1,2\n",
                 ("--group", "steps")),
                ("units.csv", "step[step],mine\n1,2\n", ("--group", "steps"))):
            path = self.write(name, text)
            result = self.run_isoloss("export", log, *options, "--out", path)
            self.assert_refused(result, name, "is there already")
            self.assertEqual(path.read_text(), text)
            path.unlink()
            for _ in range(2):
                again = self.run_isoloss("export", log, *options, "--out", path)
                self.assertEqual(again.returncode, PASS, again.stderr)

    def test_a_job_file_is_nobody_elses(self):
        for make in (os.link, os.symlink):
            victim = self.write(f"victim-{make.__name__}", "mine\n")
            out = self.folder / f"job-{make.__name__}"
            out.mkdir()
            make(victim, out / ".bf16-seed1.job")
            self.assert_refused(
                self.run_isoloss("run", self.tiny, "--out", out, "--arm", "bf16",
                                 "--seeds", "1"), ".bf16-seed1.job", "Remove it")
            self.assertEqual(victim.read_text(), "mine\n")


class NothingReachesATerminal(HostileTest):
    def test_names_of_files(self):
        name = "a\x1b[31mEVIL\nPASS"
        folder = self.folder / "names"
        folder.mkdir()
        evil = shutil.copy(self.logs["bf16-seed1"], folder / f"{name}.h5")
        log = shutil.copy(self.logs["mxfp8-seed1"], folder)
        damaged = folder / f"{name}2.h5"
        damaged.write_bytes(pathlib.Path(evil).read_bytes()[:-100])
        for command in (("show", damaged), ("gate", folder), ("show", evil),
                        ("watch", "--once", evil), ("watch", "--once", folder),
                        ("compare", log, evil), ("compare", evil, damaged),
                        ("gate", log, evil), ("export", damaged),
                        ("gate", log, "--against", evil),
                        ("export", evil, "--out", folder / name)):
            with self.subTest(command=command):
                result = self.run_isoloss(*command)
                self.assert_harmless(result.stdout)
                self.assert_harmless(result.stderr)
        damaged.unlink()
        result = self.run_isoloss("export", folder, "--out", "evil-tables")
        self.assertEqual(result.returncode, PASS, result.stderr)
        self.assert_harmless(result.stdout)

    def test_a_unit_with_lines(self):
        def change(log):
            log["steps/loss_nats"].attrs.create(
                "unit", "nat`\nisoloss: PASS\n`", dtype=TEXT)

        path = self.changed("unit.h5", change)
        self.assert_refused(self.run_isoloss("show", path), "nat`\\nisoloss")

    def test_what_a_job_says(self):
        folder = self.folder / "job"
        shutil.copytree(self.folder / "logs", folder)
        with self.locked(folder / ".x.job") as job:
            job.write("40\n\x1b[31mEVIL\x9b\nbf16-seed1\n")
            job.flush()
            result = self.run_isoloss("watch", "--once", folder)
        self.assertIn("2 runs", result.stdout)
        self.assert_harmless(result.stdout)

    @contextlib.contextmanager
    def locked(self, path):
        with open(path, "w+") as file:
            set_lock = 37  # F_OFD_SETLK
            fcntl.fcntl(file, set_lock,
                        struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 0, 0))
            yield file
