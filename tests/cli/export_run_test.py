"""export: run logs in the forms in which training programs leave their runs."""

import csv
import fcntl
import io
import json
import os
import re
import struct
import subprocess

import h5py

import event_file
from program import ProgramTest, PASS

# torchtitan's tags, and the columns of /steps.
TAGS = {"loss_metrics/global_avg_loss": "loss_nats", "grad_norm": "grad_norm",
        "lr": "lr", "throughput(tps)": "tokens_per_second"}
EVAL_TAG = "validation_metrics/loss"


def rounded(value):
    """As FP32."""
    return struct.unpack("<f", struct.pack("<f", value))[0]


def bits(value):
    return struct.pack("<d", value)


class ExportRun(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.logs = cls.make_logs("logs")
        cls.log = cls.logs["mxfp8-seed1"]
        with h5py.File(cls.log) as log:
            cls.steps = {name: list(log["steps"][name]) for name in
                         ("step", "step_seconds", *TAGS.values())}
            cls.eval = dict(zip(map(int, log["eval/step"]),
                                map(float, log["eval/loss_nats"])))
            cls.start = log["events/unix_seconds"][0]

    def export(self, *arguments):
        result = self.run_isoloss("export", self.log, *arguments)
        self.assertEqual(result.returncode, PASS, result.stderr)
        self.assertEqual(result.stderr, "")
        return result.stdout

    def event_file_in(self, folder):
        (file,) = (self.folder / folder).iterdir()
        return file

    def test_event_file_holds_the_log_rounded_to_fp32(self):
        said = self.export("--format", "tensorboard", "--out", "events")

        file = self.event_file_in("events")
        self.assertEqual(said, f"events/{file.name}\n")
        self.assertEqual(file.name, "events.out.tfevents."
                         f"{int(self.start):010}.isoloss")
        events, versions = event_file.decode(file.read_bytes())
        self.assertEqual(versions, ["brain.Event:2"])
        for tag, column in TAGS.items():
            self.assertEqual(
                [(step, scalars[tag]) for _, step, scalars in events
                 if tag in scalars],
                [(step, rounded(value)) for step, value in
                 zip(self.steps["step"], self.steps[column], strict=True)])
        self.assertIn(0, self.eval)
        self.assertEqual({step: scalars[EVAL_TAG]
                          for _, step, scalars in events
                          if EVAL_TAG in scalars},
                         {step: rounded(value)
                          for step, value in self.eval.items()})

    def test_times_of_events_add_up_those_of_steps(self):
        self.export("--format", "tensorboard", "--out", "times")

        events, _ = event_file.decode(
            self.event_file_in("times").read_bytes())
        times = {step: time for time, step, _ in events}
        seconds = 0
        for step, more in zip(self.steps["step"], self.steps["step_seconds"]):
            seconds += more
            self.assertEqual(times[step], self.start + seconds)

    def test_event_files_are_the_same_each_time(self):
        self.export("--format", "tensorboard", "--out", "once")
        first = self.event_file_in("once").read_bytes()
        self.export("--format", "tensorboard", "--out", "once")

        self.assertEqual(self.event_file_in("once").read_bytes(), first)

    def test_two_runs_never_share_a_folder(self):
        self.export("--format", "tensorboard", "--out", "shared")
        other = self.event_file_in("shared").with_name(
            "events.out.tfevents.1700000000.host.1.0")
        self.event_file_in("shared").rename(other)

        self.assert_refused(
            self.run_isoloss("export", self.log, "--format", "tensorboard",
                             "--out", "shared"), other.name, "one run")
        self.assertEqual(self.event_file_in("shared"), other)

    def test_a_folder_of_logs_gives_one_each(self):
        for format, ending in (("tensorboard", ""), ("wandb-csv", ".csv"),
                               ("wandb-jsonl", ".jsonl"),
                               ("torchtitan", ".log")):
            with self.subTest(format=format):
                result = self.run_isoloss("export", "logs", "--format", format,
                                          "--out", f"all-{format}")
                self.assertEqual(result.returncode, PASS, result.stderr)
                made = list((self.folder / f"all-{format}").iterdir())
                self.assertEqual({path.name for path in made},
                                 {name + ending for name in self.logs})
                if format == "tensorboard":
                    for folder in made:
                        event_file.decode(
                            self.event_file_in(folder).read_bytes())

    def check_history(self, rows):
        """Of W&B: what a step has, to the bit; nothing where it has none."""
        self.assertEqual([int(row["_step"]) for row in rows],
                         sorted({*self.eval, *self.steps["step"]}))
        by_step = {int(row["_step"]): row for row in rows}
        for i, step in enumerate(self.steps["step"]):
            self.assertEqual(int(by_step[step]["trainer/global_step"]), step)
            for tag, column in TAGS.items():
                self.assertEqual(bits(float(by_step[step][tag])),
                                 bits(self.steps[column][i]))
        for step, row in by_step.items():
            self.assertEqual(row.get(EVAL_TAG) not in (None, ""),
                             step in self.eval)
            if step in self.eval:
                self.assertEqual(bits(float(row[EVAL_TAG])),
                                 bits(self.eval[step]))

    def test_wandb_csv_holds_the_bits_of_the_log(self):
        text = self.export("--format", "wandb-csv")
        self.export("--format", "wandb-csv", "--out", "history.csv")

        self.assertTrue(text.startswith("_step,"))
        self.check_history(list(csv.DictReader(io.StringIO(text))))
        self.assertEqual((self.folder / "history.csv").read_text(), text)

    def test_wandb_jsonl_holds_the_bits_of_the_log(self):
        text = self.export("--format", "wandb-jsonl")

        self.check_history([json.loads(line) for line in text.splitlines()])

    def test_torchtitans_lines_are_those_of_python(self):
        lines = self.export("--format", "torchtitan").splitlines()

        head = re.compile(r"\[titan\] \d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} - "
                          r"root - INFO - ")
        expected = []
        rows = {step: row for row, step in enumerate(self.steps["step"])}
        for step in sorted({*rows, *self.eval}):
            if step in rows:
                values = {name: column[rows[step]]
                          for name, column in self.steps.items()}
                expected.append(
                    f"step: {step:2}  loss: {values['loss_nats']:8.5f}  "
                    f"grad_norm: {values['grad_norm']:7.4f}  "
                    f"tps: {round(values['tokens_per_second']):,}")
            if step in self.eval:
                expected.append(f"validate step: {step:2}  "
                                f"loss: {self.eval[step]:7.4f}")
        self.assertEqual([head.sub("", line, count=1) for line in lines],
                         expected)
        self.assertTrue(all(head.match(line) for line in lines))

    def test_what_a_killed_export_left_is_no_run_and_is_removed(self):
        ended = subprocess.Popen(["true"])
        ended.wait()
        for format, folder in (("tensorboard", "killed"), ("wandb-csv", "")):
            with self.subTest(format=format):
                out = self.folder / (folder or "killed.csv")
                self.export("--format", format, "--out", out)
                file = self.event_file_in(folder) if folder else out
                stale = file.with_name(f".{file.name}.{ended.pid}-0.tmp")
                others = [file.with_name(f".{file.name}.{os.getpid()}-0.tmp"),  # of one that lives
                          file.with_name(f".{file.name}.{ended.pid}-1.tmp"),  # of one on another machine
                          file.with_name(f".another.{ended.pid}-0.tmp"), file.with_name(f".{file.name}.tmp")]
                for path in (stale, *others):
                    path.write_text("half")
                with open(others[1], encoding="utf-8") as locked:
                    fcntl.flock(locked, fcntl.LOCK_EX)
                    self.export("--format", format, "--out", out)
                self.assertEqual([path.exists() for path in (stale, *others)], [False] + [True] * 4)

    def test_files_of_others_are_not_replaced(self):
        for format in ("wandb-csv", "wandb-jsonl", "torchtitan"):
            with self.subTest(format=format):
                self.assert_refused(
                    self.run_isoloss("export", self.log, "--format", format,
                                     "--out", "tiny.toml"), "tiny.toml")
                self.assert_refused(
                    self.run_isoloss("export", self.log, "--format", format,
                                     "--out", self.log), "input")

    def test_wrong_arguments_are_refused(self):
        for format in ("tensorboard", "torchtitan", "wandb-csv"):
            with self.subTest(format=format):
                self.assert_refused(
                    self.run_isoloss("export", self.log, "--format", format,
                                     "--group", "steps"), "--group", format)
                self.assert_refused(
                    self.run_isoloss("export", "logs", "--format", format),
                    "--out")
                self.assert_refused(
                    self.run_isoloss("export", "tiny.toml", "--format", format,
                                     "--out", "never"), "tiny.toml")
        self.assertFalse((self.folder / "never").exists())
