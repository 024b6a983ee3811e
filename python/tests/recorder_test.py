"""The recorder: its log is what the loop saw, and isoloss reads it."""

import contextlib
import fractions
import io
import itertools
import json
import math
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import unittest
import unittest.mock
import warnings

import h5py
import numpy as np
import torch
from torch.nn import functional

import isoloss
from isoloss import journal, run_log, tensors
from isoloss import __main__ as program
from xxh3_test import library

BINARY = os.environ["ISOLOSS_BINARY"]
ROOT = pathlib.Path(__file__).resolve().parents[2]


def main(arguments):
    """The exit code of python -m isoloss."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        return program.main(arguments)


def make(seed=1, **options):
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(40, 9), torch.nn.GELU(), torch.nn.Linear(9, 5))
    options = {"lr": 1e-2, "weight_decay": 0.1, **options}
    return model, torch.optim.AdamW(model.parameters(), **options)


def batch(step, rows=6):
    draw = torch.Generator().manual_seed(step)
    return torch.randn(rows, 40, generator=draw), torch.randint(5, (rows,), generator=draw)


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="isoloss-recorder-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.path = self.folder / "run.h5"

    def fresh(self):
        """A folder without logs, since no recording replaces one."""
        self.path = pathlib.Path(tempfile.mkdtemp(dir=self.folder)) / "run.h5"

    def show(self, path):
        done = subprocess.run([BINARY, "show", path, "--json"], text=True, capture_output=True,
                              check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def loop(self, recorder, model, optimizer, steps, schedule=None):
        """Trains, and returns what it saw."""
        seen = []
        for step in range(1, steps + 1):
            x, y = batch(step)
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(x), y)
            loss.backward()
            norm = math.sqrt(math.fsum(float(p.grad.double().square().sum())
                                       for p in model.parameters()))
            lr = optimizer.param_groups[0]["lr"]
            optimizer.step()
            if schedule:
                schedule.step()
            recorder.step(loss, tokens=len(y))
            seen.append((loss.item(), norm, lr))
        return seen


class Log(Case):
    def test_holds_what_the_loop_saw_and_isoloss_shows_it(self):
        model, optimizer = make()
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
        with isoloss.record(model, optimizer, self.path, steps=4, arm="a", seed=7) as recorder:
            seen = self.loop(recorder, model, optimizer, 4, schedule)

        shown = self.show(self.path)
        self.assertEqual(shown["provenance"]["tool_version"],
                         f"isoloss-recorder {isoloss.__version__} (torch {torch.__version__})")
        with h5py.File(self.path) as log:
            self.assertEqual(list(log["steps/loss_nats"]), [loss for loss, _, _ in seen])
            self.assertEqual(list(log["steps/lr"]), [lr for _, _, lr in seen])
            # Norms of four FP32 tensors, each good to some 2^-22 in torch.
            np.testing.assert_allclose(log["steps/grad_norm"], [norm for _, norm, _ in seen],
                                       rtol=2.0 ** -20)
            self.assertEqual(list(log["steps/step"]), [1, 2, 3, 4])
            self.assertEqual(list(log["steps/tokens_seen"]), [6, 12, 18, 24])
            self.assertTrue(log.attrs["complete"])
            self.assertEqual((log.attrs["arm"], log.attrs["seed"]), ("a", 7))
            self.assertEqual(log.attrs["parameters"], 40 * 9 + 9 + 9 * 5 + 5)
        self.assertFalse((self.folder / "run.journal").exists())

    def test_recording_changes_no_bit_of_the_training(self):
        trained = []
        for options in (None, {}, {"dump": range(1, 4), "statistics": [2], "digests": [2]}):
            model, optimizer = make()
            if options is None:
                for step in range(1, 4):
                    x, y = batch(step)
                    optimizer.zero_grad()
                    functional.cross_entropy(model(x), y).backward()
                    optimizer.step()
            else:
                path = self.folder / f"{len(trained)}.h5"
                with isoloss.record(model, optimizer, path, **options) as recorder:
                    self.loop(recorder, model, optimizer, 3)
            trained.append(torch.cat([p.detach().reshape(-1) for p in model.parameters()]))
            self.assertNotIn("step", optimizer.__dict__)

        self.assertTrue(torch.equal(trained[0], trained[1]))
        self.assertTrue(torch.equal(trained[0], trained[2]))

    def test_what_was_told_stands_in_it(self):
        model, optimizer = make()
        with isoloss.record(model, optimizer, self.path) as recorder:
            recorder.step(torch.tensor(1.25), tokens=10, lr=0.5, grad_norm=torch.tensor(3.5))
            recorder.event("checkpoint", "at 1")

        with h5py.File(self.path) as log:
            self.assertEqual([log[f"steps/{name}"][0] for name in ("loss_nats", "lr", "grad_norm")],
                             [1.25, 0.5, 3.5])
            self.assertEqual(list(log["events/kind"].asstr()), ["start", "checkpoint", "finish"])

    def test_counts_of_routers_and_what_follows_from_them(self):
        model, optimizer = make()
        ids = torch.tensor([[0, 1], [0, 2], [0, 1]])
        with isoloss.record(model, optimizer, self.path, steps=1) as recorder:
            for layer in ("layers.0", "layers.1"):
                isoloss.observe("router", layer, logits=torch.zeros(3, 4), expert_ids=ids)
            with torch.no_grad():  # an evaluation
                isoloss.observe("router", "layers.0", logits=torch.zeros(3, 4), expert_ids=ids)
            recorder.step(1.0, tokens=3, lr=0.1, grad_norm=1.0)

        self.show(self.path)
        with h5py.File(self.path) as log:
            self.assertEqual(log["moe/tokens_per_expert"][()].tolist(), [[[3, 2, 1, 0]] * 2])
            self.assertEqual(log["steps/expert_load_max_over_mean"][0], 2)
            self.assertEqual(log["steps/dead_experts"][0], 2)

    def test_norms_of_parameters_add_up(self):
        model, optimizer = make()
        with isoloss.record(model, optimizer, self.path, parameters=True) as recorder:
            self.loop(recorder, model, optimizer, 2)

        self.show(self.path)
        with h5py.File(self.path) as log:
            self.assertEqual(list(log["parameters/names"].asstr()),
                             [name for name, _ in model.named_parameters()])
            parts = log["parameters/grad_norm"][()]
            np.testing.assert_allclose(log["steps/grad_norm"], np.sqrt((parts ** 2).sum(1)),
                                       rtol=1e-15)

    def test_fp64_parameters_have_norms(self):
        model, optimizer = make()
        model[0].double()
        with isoloss.record(model, optimizer, self.path, weights=False) as recorder:
            for parameter in model.parameters():
                parameter.grad = torch.ones_like(parameter)
            recorder.step(1.0, tokens=3, lr=0.1)
        with h5py.File(self.path) as log:
            elements = sum(parameter.numel() for parameter in model.parameters())
            # Each of four FP32 norms and their sum is rounded.
            np.testing.assert_allclose(log["steps/grad_norm"], [elements ** 0.5], rtol=4 * 2.0 ** -24)

    def test_gradients_that_were_cleared_too_early_are_told(self):
        model = torch.nn.Linear(4, 4)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        with isoloss.record(model, optimizer, self.path, dump=[2]) as recorder:
            for step in (1, 2):
                model(torch.randn(5, 4)).mean().backward()
                if step == 1:
                    optimizer.step()
                optimizer.zero_grad()
                with warnings.catch_warnings(record=True) as told:
                    warnings.simplefilter("always")
                    recorder.step(1.0, tokens=1)
        self.assertIn("AdamW was not called, and gradients were cleared", str(told[0].message))

    def test_what_contradicts_itself_stands_in_the_file(self):
        model = torch.nn.Linear(4, 4)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        with isoloss.record(model, optimizer, self.path, dump=[1]) as recorder:
            model(torch.randn(5, 4)).mean().backward()
            # Numbers that are no expert's do not count.
            isoloss.observe("router", "r", expert_ids=torch.tensor([[0], [1], [1], [-1], [3]]),
                            bias=torch.zeros(3), top_k=1)
            optimizer.step()
            with self.assertWarnsRegex(UserWarning, "loads of router r add up to 3, but 5 tokens"):
                recorder.step(1.0, tokens=5)
        with h5py.File(self.path.with_name("run.rank-0.operations-000001.h5")) as file:
            self.assertIn("loads of router r add up to 3", file.attrs["contradictions"])

    def test_an_exception_leaves_a_log_that_is_not_complete(self):
        model, optimizer = make()
        with self.assertRaises(KeyError):
            with isoloss.record(model, optimizer, self.path, steps=9) as recorder:
                self.loop(recorder, model, optimizer, 2)
                raise KeyError("planted")

        with h5py.File(self.path) as log:
            self.assertFalse(log.attrs["complete"])
            self.assertEqual(list(log["events/kind"].asstr()), ["start", "abort"])

    def test_wrong_calls_say_what_to_do(self):
        model, optimizer = make()
        with isoloss.record(model, optimizer, self.path) as recorder:
            with self.assertRaisesRegex(isoloss.RecorderError, "Call step\\(\\) after"):
                recorder.step(1.0, tokens=1)
            with self.assertRaisesRegex(Exception, "Known types: linear"):
                isoloss.observe("product", "x")
            with self.assertRaisesRegex(Exception, "got `gate`, but has logits"):
                isoloss.observe("router", "x", gate=1)
            with self.assertRaisesRegex(journal.JournalError, "python -m isoloss recover"):
                with isoloss.record(model, optimizer, self.path):
                    pass

    def test_names_units_and_meanings_are_those_of_the_layout(self):
        schema = json.loads(subprocess.run([BINARY, "show", "--schema", "--json"], check=True,
                                           capture_output=True, text=True).stdout)
        groups = {group["name"]: group for group in schema["groups"]}
        for group, (description, fields) in run_log._GROUPS.items():
            self.assertTrue(groups[group]["meaning"].startswith(description), group)
            datasets = {dataset["name"]: dataset for dataset in groups[group]["datasets"]}
            for name, unit, meaning in fields:
                dataset = datasets[name]
                kind = run_log._type_of(name, unit)
                kind = {"<i8": "int64", "<f8": "float64"}.get(kind, "UTF-8 string")
                self.assertTrue(dataset["type"].startswith(kind), (group, name))
                self.assertEqual(dataset["unit"], unit, (group, name))
                self.assertTrue(dataset["meaning"].startswith(meaning), (group, name))
        # What a log has only if it was perturbed, or made of another one.
        absent = {"perturbation", "loss_values", "loss_thinned", "loss_half_unit", "lr_half_unit",
                  "top_k"}
        with h5py.File(self.written()) as log:
            for attribute in groups[""]["datasets"]:
                name = attribute["name"]
                self.assertTrue(name in log.attrs or name in absent, name)

    def written(self):
        model, optimizer = make()
        with isoloss.record(model, optimizer, self.path) as recorder:
            self.loop(recorder, model, optimizer, 1)
        return self.path


class Tensors(Case):
    def test_digests_are_those_of_the_definition(self):
        xxh3 = library()
        mask = (1 << 64) - 1

        def mix(x):
            x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & mask
            x = (x ^ x >> 27) * 0x94D049BB133111EB & mask
            return x ^ x >> 31

        def place(group, segment, position):
            golden = 0x9E3779B97F4A7C15
            key = mix(group + golden & mask)
            key = mix((key ^ segment) + golden & mask)
            return mix((key ^ position) + golden & mask)

        def digest(rows, places):
            total = sum(mix(xxh3(row.tobytes()) + place(*at) & mask)
                        for row, at in zip(rows, places)) & mask
            total = mix(total + 0x9E3779B97F4A7C15 & mask)
            return total - (1 << 64) if total >> 63 else total

        x = torch.randn(7, 13)
        x[2, 3], x[4, 4] = math.nan, -0.0
        clean = x.numpy().copy()
        clean.view(np.uint32)[2, 3] = 0x7FC00000
        ends = torch.tensor([3, 3, 7])
        in_groups = [(0, 0, i) for i in range(3)] + [(2, 0, i) for i in range(4)]
        for found, rows, places in (
                (tensors.digest_sum(x), clean, [(0, 0, i) for i in range(7)]),
                (tensors.digest_sum(x, first_row=70), clean, [(0, 0, 70 + i) for i in range(7)]),
                (tensors.digest_sum(x, ends), clean, in_groups),
                (tensors.digest_sum(x[:6].reshape(2, 3, 13)), clean[:6],
                 [(g, 0, i) for g in range(2) for i in range(3)])):
            self.assertEqual(tensors.finish_digest(found), digest(rows, places))

    def expected(self, x, ends):
        """From the meanings that `isoloss show --schema` prints, in rational numbers."""
        values = [float(v) for v in x.reshape(-1) if math.isfinite(v)]
        exact = [fractions.Fraction(v) for v in values]
        total, squares = sum(exact), sum(v * v for v in exact)
        mean = total / len(exact)
        variance = sum((v - mean) ** 2 for v in exact) / (len(exact) - 1)
        sizes = [abs(v) for v in values if v]

        def worst(blocks):
            ranges = [max(b) / min(b)
                      for b in ([abs(float(v)) for v in block if v and math.isfinite(v)]
                                for block in blocks) if b]
            return math.log2(max(ranges, default=1))

        along = [row[i:i + 32] for row in x for i in range(0, x.shape[1], 32)]
        down = [x[i:min(i + 32, end), j] for begin, end in itertools.pairwise([0, *ends])
                for i in range(begin, end, 32) for j in range(x.shape[1])]
        return [x.size, x.size - len(values), values.count(0.0), min(values), max(values),
                float(total), float(mean), float(variance), math.sqrt(variance),
                float(sum(map(abs, exact))), math.sqrt(squares), max(sizes),
                math.log2(max(sizes) / min(sizes)), worst(along), worst(down)]

    def test_statistics_are_those_of_the_definition(self):
        draw = torch.Generator().manual_seed(3)
        x = torch.randn(70, 37, generator=draw) * torch.randn(70, 1, generator=draw).exp() + 100
        x[1, 5], x[2, 6], x[3] = math.nan, math.inf, 0.0
        x[4, 0] = 1e-42  # subnormal

        for ends in (None, torch.tensor([20, 20, 70])):
            found = tensors.statistics(tensors.moments(x, ends))
            names = [name for name, _, _ in tensors.STATISTICS]
            wanted = self.expected(x.numpy(), ends.tolist() if ends is not None else [70])
            for name, a, b in zip(names, found, wanted):
                # Exact sums are rounded once, roots and logarithms a few times.
                self.assertAlmostEqual(a, b, delta=4 * 2.0 ** -53 * abs(b), msg=name)

    def test_parts_merge_to_the_whole_in_any_order(self):
        x = torch.randn(96, 33)
        parts = [tensors.moments(x[:32]), tensors.moments(x[32:64]), tensors.moments(x[64:])]

        for a, b, c in itertools.permutations(parts):
            self.assertEqual(tensors.merge_moments(tensors.merge_moments(a, b), c),
                             tensors.moments(x))

    def test_what_has_no_meaning_is_nan(self):
        for x in (torch.zeros(0, 4), torch.full((1, 2), math.nan), torch.zeros(2, 2)):
            values = dict(zip((name for name, _, _ in tensors.STATISTICS),
                              tensors.statistics(tensors.moments(x))))
            self.assertTrue(math.isnan(values["dynamic_range"]))
            self.assertEqual(values["l2_norm"], 0)
            self.assertEqual(math.isnan(values["mean"]), not bool((x == 0).any()))

    def test_the_log_has_them_at_the_chosen_steps(self):
        model, optimizer = make()
        with isoloss.record(model, optimizer, self.path, statistics=[1, 3],
                            digests=[3]) as recorder:
            self.loop(recorder, model, optimizer, 3)

        self.show(self.path)
        with h5py.File(self.path) as log:
            group = log["tensors"]
            names = list(group["names"].asstr())
            for name in ("0_weight", "0_activation", "0_output", "0_gradient", "0_wgrad", "2_dgrad",
                         "2_parameter", "2_update", "2.bias_update"):
                self.assertIn(name, names)
            self.assertEqual(list(group["step"]), [1, 3])
            self.assertTrue((group["digest"][0] == 0).all() and (group["digest"][1] != 0).all())
            x, _ = batch(3)
            at = names.index("0_activation")
            self.assertEqual(group["digest"][1, at], tensors.finish_digest(tensors.digest_sum(x)))
            self.assertEqual(group["l2_norm"][1, at],
                             math.sqrt(sum(fractions.Fraction(float(v)) ** 2
                                           for v in x.reshape(-1))))


LOOP = """
import sys
import isoloss, recorder_test
model, optimizer = recorder_test.make()
with isoloss.record(model, optimizer, sys.argv[1], steps=10**6) as recorder:
    for step in range(1, 10**6):
        recorder.step(1.0 / step, tokens=6, lr=0.1, grad_norm=step)
        print(step, flush=True)
"""


class Kill(Case):
    def test_sigkill_loses_no_reported_step(self):
        for count in (1, 57):
            path = self.folder / f"{count}.h5"
            with subprocess.Popen([sys.executable, "-c", LOOP, path], stdout=subprocess.PIPE,
                                  cwd=pathlib.Path(__file__).parent,
                                  text=True) as process:
                for _ in range(count):
                    reported = int(process.stdout.readline())
                process.send_signal(signal.SIGKILL)
                reported = max([reported, *map(int, re.findall(r"(?m)^(\d+)\n",
                                                               process.stdout.read()))])
            self.assertFalse(path.exists())
            self.assertEqual(main(["recover", str(path.with_suffix(".journal")), str(path)]), 0)
            self.show(path)
            with h5py.File(path) as log:
                self.assertGreaterEqual(len(log["steps/step"]), reported)
                self.assertLessEqual(len(log["steps/step"]), reported + 1)
                self.assertEqual(list(log["steps/grad_norm"]), list(log["steps/step"]))
                self.assertFalse(log.attrs["complete"])

    def test_a_torn_or_changed_line_ends_the_journal(self):
        rows = [{"row": "header"}, {"row": "step", "loss": math.nan}, {"row": "step", "loss": 1.5}]
        data = b"".join(map(journal.encode, rows))
        ends = [len(b"".join(map(journal.encode, rows[:i + 1]))) for i in range(3)]

        for size in range(len(data) + 1):
            self.assertEqual(len(journal.decode(data[:size])), sum(end <= size for end in ends))
        for at in range(ends[0], ends[1]):
            damaged = bytearray(data)
            damaged[at] ^= 1
            self.assertEqual(len(journal.decode(bytes(damaged))), 1)

    def test_a_line_that_could_not_be_written_hides_no_other(self):
        path = self.folder / "x.journal"
        written = journal.Journal(path, {"row": "header"})
        write, calls = os.write, []

        def fail(file, data):
            calls.append(data)
            if len(calls) == 2:
                raise OSError("planted: no space")
            return write(file, data[:10])

        with unittest.mock.patch("os.write", fail), self.assertRaisesRegex(OSError, "planted"):
            written.append({"row": "step", "step": 1})
        written.append({"row": "step", "step": 2})
        written.close()

        self.assertEqual(run_log.read_rows(path), [{"row": "header"}, {"row": "step", "step": 2}])

    def test_steps_that_are_lost_are_told(self):
        header = {"row": "header", "first_step": 1}
        steps = [{"row": "step", "step": number, "loss": math.nan} for number in range(1, 6)]
        lines = [journal.encode(row) for row in (header, *steps)]

        def read(lines):
            rows, notes, lost = journal.whole(b"".join(lines), "x.journal")
            return [row["step"] for row in rows[1:]], " ".join(notes), lost

        self.assertEqual(read(lines), ([1, 2, 3, 4, 5], "", False))
        damaged = [*lines[:3], lines[3].replace(b"loss", b"Loss"), *lines[4:]]
        found, notes, lost = read(damaged)
        self.assertEqual((found, lost), ([1, 2], True))
        self.assertIn("line 4 of 6 is damaged", notes)
        self.assertIn("The 3 lines before it were read", notes)
        found, notes, lost = read([*lines[:3], *lines[4:]])
        self.assertEqual((found, lost), ([1, 2], True))
        self.assertIn("step 3 is missing", notes)
        for mended in ([*lines, lines[2]], [lines[0], *lines[:0:-1]]):
            self.assertEqual(read(mended)[::2], ([1, 2, 3, 4, 5], False))
            self.assertNotEqual(read(mended)[1], "")
        with self.assertRaisesRegex(journal.LogError, "step 1 stands in it twice"):
            read([*lines, journal.encode({**steps[0], "loss": 2.0})])

    def test_what_is_no_journal_is_refused(self):
        path = self.folder / "x.journal"
        path.write_bytes(b"no journal\n")
        self.assertEqual(main(["recover", str(path), str(self.path)]), 3)
        with h5py.File(self.path, "w"):
            pass
        self.assertEqual(main(["merge", str(self.folder / "out.h5"), str(self.path)]), 3)


if __name__ == "__main__":
    unittest.main()
