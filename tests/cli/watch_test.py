"""watch: live pictures of runs, from their journals."""

import fcntl
import os
import shutil
import signal
import struct
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

    def test_pictures_leave_only_the_last_one_behind(self):
        with Background(self.folder, "watch", "killed", "--interval", "0.05",
                        terminal=(20, 70)) as watch:
            for _ in range(3):
                watch.wait_for("\x1b[J")
                watch.text = watch.text.replace("\x1b[J", "<drawn>", 1)
            watch.process.send_signal(signal.SIGINT)
            self.assertEqual(watch.end(), PASS)
        # All of them on the terminal's other screen, each over the one before.
        before, drawn = watch.text.split("\x1b[?1049h")
        self.assertEqual(before, "")
        drawn, after = drawn.split("\x1b[?1049l")
        self.assertNotIn("\n", drawn[:drawn.index("\x1b[H")])
        self.assertEqual(visible(after).count("bf16-seed1\n"), 1, after)

    def test_the_time_left_is_said_in_any_width(self):
        for columns in (20, 30, 40, 80):
            with Background(self.folder, "watch", "killed", "--interval",
                            "0.05", terminal=(20, columns)) as watch:
                watch.wait_for("\x1b[J")
                watch.process.send_signal(signal.SIGINT)
                self.assertEqual(watch.end(), PASS)
            self.assertRegex(visible(watch.text), r"\d:\d\d left\b")

    def test_a_terminal_that_knows_no_escapes_gets_none(self):
        with Background(self.folder, "watch", "killed", "--interval", "0.05",
                        terminal=(20, 70),
                        environment={"TERM": "dumb"}) as watch:
            watch.wait_for("bf16-seed1: running")
            watch.process.send_signal(signal.SIGINT)
            self.assertEqual(watch.end(), PASS)
        self.assertNotIn("\x1b", watch.text)

    def test_a_locale_without_unicode_gets_ascii(self):
        for path, command in (("killed", ("watch", "--once")), ("logs", ("gate",))):
            for locale in ("C", "POSIX", "en_US.ISO-8859-1"):
                result = self.run_isoloss(*command, path,
                                          environment={"LC_ALL": locale})
                self.assertTrue(result.stdout.isascii(), result.stdout)
            result = self.run_isoloss(*command, path,
                                      environment={"LC_ALL": "", "LC_CTYPE": "",
                                                   "LANG": "en_US.utf8"})
            self.assertFalse(result.stdout.isascii())

    def job(self, folder, *runs):
        """Says that a job makes these runs, as one does; ends with the file."""
        file = open(folder / f".{runs[0]}.job", "w", encoding="ascii")
        self.addCleanup(file.close)
        file.write("\n".join(("20", *runs)) + "\n")
        file.flush()
        # struct flock: type, whence, start, length, process
        fcntl.fcntl(file, fcntl.F_OFD_SETLK,
                    struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
        return file

    def test_waits_for_the_whole_job_also_between_runs(self):
        folder = self.folder / "between"
        folder.mkdir()
        shutil.copy(self.logs["bf16-seed1"], folder)
        job = self.job(folder, *sorted(self.logs))
        with Background(self.folder, "watch", "between", "--interval",
                        "0.1") as watch:
            watch.wait_for("25 % done, 1 of 4 runs finished")
            time.sleep(6)  # longer than a folder without a job is waited for
            self.assertIsNone(watch.process.poll(), watch.text)
            for log in self.logs.values():
                shutil.copy(log, folder)
            watch.wait_for("100 % done, 4 of 4 runs finished")
            job.close()
            self.assertEqual(watch.end(), PASS)

    def test_a_job_in_which_nothing_has_begun(self):
        folder = self.folder / "begun"
        folder.mkdir()
        self.job(folder, "bf16-seed1", "mxfp8-seed1")

        result = self.run_isoloss("watch", "begun", "--once")

        self.assertEqual(result.returncode, PASS, result.stderr)
        self.assertEqual(result.stdout.splitlines()[:2],
                         ["0 % done, 0 of 2 runs finished",
                          "2 waiting: bf16-seed1, mxfp8-seed1"])

    def test_a_job_that_was_killed_is_none(self):
        folder = self.folder / "killed_job"
        folder.mkdir()
        shutil.copy(self.logs["bf16-seed1"], folder)
        self.job(folder, "bf16-seed1", "mxfp8-seed1").close()

        result = self.run_isoloss("watch", "killed_job", "--once")

        self.assertNotIn("waiting", result.stdout)

    def test_a_job_says_what_it_will_make_and_cleans_up(self):
        run, journal = self.start_run("planned")
        with run:
            plan = journal.parent / ".bf16-seed1.job"
            self.assertEqual(plan.read_text(), "100000\nbf16-seed1\n")
            shown = self.run_isoloss("watch", "planned", "--once").stdout
            self.assertRegex(shown.splitlines()[0],
                             r"^0 % done, 0 of 1 runs finished, [\d:]+ left$")
            run.process.send_signal(signal.SIGINT)
            run.end()
        self.assertFalse(plan.exists())

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
