"""watch: live pictures of runs, from their journals."""

import shutil
import signal
import time

from live_run import Background, LiveRunTest, visible
from program import INVALID, PASS, USAGE


class Watch(LiveRunTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.logs = cls.make_logs("logs")
        cls.journal = cls.killed_run("killed")

    @classmethod
    def killed_run(cls, out):
        run, journal = cls.start_run(out)
        with run:
            run.process.kill()
        return journal

    def test_once_shows_finished_runs(self):
        result = self.run_isoloss("watch", "logs", "--once")

        self.assertEqual(result.returncode, PASS, result.stderr)
        for name in self.logs:
            self.assertIn(name, result.stdout)
        self.assertIn("finished", result.stdout)
        self.assertNotIn("\x1b", result.stdout)

    def test_once_shows_a_journal_that_was_cut_anywhere(self):
        whole = self.journal.read_bytes()
        (self.folder / "torn").mkdir()
        torn = self.folder / "torn" / self.journal.name
        for size in (len(whole) - 1, len(whole) // 2, 16):
            torn.write_bytes(whole[:size])
            with self.subTest(size=size):
                for path in (torn, torn.parent):
                    result = self.run_isoloss("watch", path, "--once")

                    self.assertEqual(result.returncode, PASS, result.stderr)
                    self.assertIn("bf16-seed1", result.stdout)
                self.assertEqual(torn.read_bytes(), whole[:size],
                                 "watching changes nothing")

    def test_picture_has_numbers_bar_and_curve(self):
        result = self.run_isoloss("watch", self.journal, "--once", "--ascii")

        self.assertEqual(result.returncode, PASS, result.stderr)
        for text in (" of 100000", "loss ", "grad norm", "token/s", " left",
                     " %  ", "step 1", "start"):
            self.assertIn(text, result.stdout)
        self.assertTrue(result.stdout.isascii())

    def test_an_empty_folder_waits_but_not_with_once(self):
        (self.folder / "empty").mkdir()

        self.assert_refused(self.run_isoloss("watch", "empty", "--once"),
                            "empty", "0 journals")
        with Background(self.folder, "watch", "empty", "--interval",
                        "0.1") as watch:
            watch.wait_for("waiting")
            watch.process.send_signal(signal.SIGINT)
            self.assertEqual(watch.end(), PASS)

    def test_no_terminal_no_escapes_one_line_a_picture(self):
        with Background(self.folder, "watch", "killed", "--interval",
                        "0.05") as watch:
            watch.wait_for("\n")
            watch.wait_for("\n" + "bf16-seed1: running")
            watch.process.send_signal(signal.SIGTERM)
            self.assertEqual(watch.end(), PASS)
        self.assertNotIn("\x1b", watch.text)
        self.assertTrue(all(line.startswith("bf16-seed1: ")
                            for line in watch.text.splitlines()))

    def test_a_terminal_is_drawn_over_within_its_size(self):
        with Background(self.folder, "watch", "killed", "--interval", "0.05",
                        terminal=(20, 70)) as watch:
            watch.wait_for("\x1b[J")
            watch.wait_for("token/s")
            watch.process.send_signal(signal.SIGINT)
            self.assertEqual(watch.end(), PASS)
        for frame in watch.text.split("\x1b[J"):
            lines = frame.replace("\r", "").split("\n")
            self.assertLess(len(lines), 21)

    def test_no_line_wraps_in_a_narrow_terminal(self):
        for columns in (20, 30, 40):
            with Background(self.folder, "watch", "killed", "--interval",
                            "0.05", terminal=(20, columns)) as watch:
                watch.wait_for("\x1b[J")
                watch.wait_for("step")
                watch.process.send_signal(signal.SIGINT)
                self.assertEqual(watch.end(), PASS)
            for line in visible(watch.text).splitlines():
                self.assertLess(len(line), columns, line)

    def test_follows_a_run_to_its_end(self):
        (self.folder / "followed").mkdir()
        with Background(self.folder, "watch", "followed", "--interval",
                        "0.05") as watch:
            watch.wait_for("waiting")
            result = self.run_isoloss("run", self.tiny, "--out", "followed")
            self.assertEqual(result.returncode, PASS, result.stderr)
            self.assertEqual(watch.end(), PASS)
        last = watch.text.splitlines()[-1]
        for name in self.logs:
            self.assertIn(f"{name}: finished, step 20 of 20", last)

    def test_an_interrupted_run_has_ended(self):
        run, journal = self.start_run("interrupted")
        with run:
            run.process.send_signal(signal.SIGINT)
            run.end()

        with Background(self.folder, "watch", journal) as watch:
            self.assertEqual(watch.end(), PASS)
        self.assertIn("interrupted", watch.text)

    def test_a_journal_that_becomes_a_log(self):
        folder = self.folder / "becomes"
        folder.mkdir()
        journal = folder / "mxfp8-seed1.journal"
        shutil.copy(self.journal, journal)
        with Background(self.folder, "watch", journal, "--interval",
                        "0.05") as watch:
            watch.wait_for("running")
            journal.unlink()
            time.sleep(0.2)  # neither is there
            shutil.copy(self.logs["mxfp8-seed1"], folder)
            self.assertEqual(watch.end(), PASS)
        self.assertIn("finished", watch.text.splitlines()[-1])

    def test_what_is_no_run_is_refused(self):
        for path in ("tiny.toml", "missing", "missing.h5"):
            with self.subTest(path=path):
                self.assert_refused(self.run_isoloss("watch", path, "--once"),
                                    path)
        self.assert_refused(
            self.run_isoloss("watch", "logs", "--interval", "0"), "--interval",
            code=USAGE)

    def test_a_damaged_log_is_shown_and_is_no_success(self):
        (self.folder / "damaged").mkdir()
        log = self.folder / "damaged" / "mxfp8-seed1.h5"
        log.write_bytes(self.logs["mxfp8-seed1"].read_bytes()[:-100])

        result = self.run_isoloss("watch", "damaged", "--once")

        self.assertEqual(result.returncode, INVALID)
        self.assertIn("unreadable", result.stdout)
