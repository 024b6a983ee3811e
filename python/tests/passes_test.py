"""What the recorder counts, and what it never replaces."""

import os
import unittest
import warnings

import h5py
import torch
from torch.utils.checkpoint import checkpoint

import isoloss
from isoloss import journal, run_log
from recorder_test import Case, main, make


class Layer(torch.nn.Module):
    """With a router of its own, which chooses two of four experts."""

    def __init__(self, name):
        super().__init__()
        self.name = name
        self.gate = torch.nn.Linear(8, 4, bias=False)
        self.up = torch.nn.Linear(8, 8, bias=False)

    def forward(self, x):
        weights, ids = self.gate(x).sigmoid().topk(2)
        isoloss.observe("router", self.name, logits=torch.zeros(1, 4), expert_ids=ids, top_k=2)
        return x + self.up(x) * weights.sum(-1, keepdim=True)


class Hooked(torch.autograd.Function):
    """Runs a function without a graph. A hook of a tensor runs it again, as in
    checkpoints that keep no output."""

    @staticmethod
    def forward(ctx, function, held, x):
        with torch.no_grad():
            ctx.held = held
            return function(x)

    @staticmethod
    def backward(ctx, gradient):
        x, y = ctx.held
        torch.autograd.backward(y, gradient)
        return None, None, x.grad


def by_tensor_hook(function, x):
    held = []

    def again(_):
        with torch.enable_grad():
            inner = x.detach().requires_grad_()
            held.extend((inner, function(inner)))
    output = Hooked.apply(function, held, x) * 1.0
    if output.requires_grad:
        output.register_hook(again)
    return output


def by_own_hooks(function, x):
    """Hooks of saved tensors whose names are not torch's."""
    kept = []

    def store(tensor):
        kept.append(tensor)
        return len(kept) - 1

    def load(place):
        if place == 0:
            with torch.enable_grad():
                function(x.detach().requires_grad_())
        return kept[place]
    with torch.autograd.graph.saved_tensors_hooks(store, load):
        return function(x)


def unpack(function, x):
    """Of a user, who chose the name of torch's hook."""
    return function(x)


class Checkpoints(Case):
    """Layers that run again in the backward pass are no more data."""

    def train(self, run, name, micro_batches=2):
        torch.manual_seed(1)
        model = torch.nn.ModuleList([Layer("first"), Layer("second")])
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        path = self.folder / f"{name}.h5"
        with isoloss.record(model, optimizer, path, statistics=[2], digests=[2],
                            dump=[2]) as recorder:
            for step in range(2):
                optimizer.zero_grad()
                for part in range(micro_batches):
                    x = torch.randn(16, 8, generator=torch.Generator().manual_seed(2 * step + part))
                    run(model, x.requires_grad_()).square().mean().backward()
                    with torch.no_grad():  # an evaluation
                        run(model, x)
                optimizer.step()
                recorder.step(1.0, tokens=16 * micro_batches)
        with h5py.File(path) as log, h5py.File(
                self.folder / f"{name}.rank-0.operations-000002.h5") as dump:
            self.assertEqual(log.attrs["top_k"], 2)
            return (log["moe/tokens_per_expert"][()].tolist(), list(log["tensors/names"].asstr()),
                    log["tensors/digest"][()].tolist(), log["tensors/l2_norm"][()].tolist(),
                    [(group.attrs["type"], group.attrs["module"], sorted(group))
                     for _, group in sorted(dump["operations"].items())])

    def test_each_token_counts_once_and_in_the_order_of_the_model(self):
        def plain(model, x):
            return model[1](model[0](x))

        def each(reentrant):
            return lambda model, x: checkpoint(model[1], checkpoint(
                model[0], x, use_reentrant=reentrant), use_reentrant=reentrant)

        def nested(outer, inner):
            return lambda model, x: checkpoint(each(inner), model, x, use_reentrant=outer)

        def around(wrapper):
            return lambda model, x: wrapper(model[1], wrapper(model[0], x))

        expected = self.train(plain, "plain")
        self.assertEqual({sum(layer) for step in expected[0] for layer in step}, {2 * 16 * 2})
        for name, run in (("hooks", each(False)), ("function", each(True)),
                          ("hooks-function", nested(False, True)),
                          ("function-hooks", nested(True, False)),
                          ("functions", nested(True, True)),
                          ("tensor-hook", around(by_tensor_hook)),
                          ("own-hooks", around(by_own_hooks)), ("unpack", around(unpack))):
            self.assertEqual(self.train(run, name), expected, name)


class Loads(Case):
    def record(self, ids, path, **options):
        model, optimizer = make()
        with isoloss.record(model, optimizer, path) as recorder:
            isoloss.observe("router", "r", logits=torch.zeros(1, 4), top_k=2, expert_ids=ids,
                            dropped=options.pop("dropped", 0))
            recorder.step(1.0, tokens=3, lr=0.1, grad_norm=1.0, **options)
        with h5py.File(path) as log:
            return list(log["events/kind"].asstr()), dict(log.attrs).get("top_k")

    def test_that_do_not_add_up_are_said(self):
        fits = torch.tensor([[0, 1]] * 3)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            self.assertEqual(self.record(fits, self.path), (["start", "finish"], 2))
            self.assertEqual(self.record(fits[:2], self.folder / "dropped.h5", dropped=2)[1], 2)
            self.assertEqual(self.record(fits[:2], self.folder / "routed.h5", routed=2)[1], None)
        for name, ids in (("twice", fits.repeat(2, 1)), ("fewer", fits[:2])):
            with self.assertWarnsRegex(UserWarning, r"add up to \d+, but 3 tokens with 2 slots"):
                kinds, _ = self.record(ids, self.folder / f"{name}.h5")
            self.assertEqual(kinds, ["start", "loads", "finish"])


class Refusals(Case):
    def test_nothing_is_replaced(self):
        model, optimizer = make()
        (self.folder / "target").write_text("kept")
        for place in ("file", "fifo", "folder", "link"):
            path = self.folder / f"{place}.h5"
            {"file": lambda: path.write_text("kept"), "fifo": lambda: os.mkfifo(path),
             "folder": path.mkdir,
             "link": lambda: path.symlink_to(self.folder / "target")}[place]()
            before = os.lstat(path)
            with self.assertRaisesRegex(isoloss.RecorderError, "Record to another path"):
                with isoloss.record(model, optimizer, path):
                    self.fail("trains")
            with self.assertRaisesRegex(run_log.LogError, "is not replaced"):
                run_log.replace_file(path, b"", replace=False)
            self.assertEqual(os.lstat(path).st_ino, before.st_ino)
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()),
                         ["fifo.h5", "file.h5", "folder.h5", "link.h5", "target"])

    def test_an_exception_of_any_text_is_what_its_caller_sees(self):
        model, optimizer = make()
        # The last is more than isoloss reads as one text.
        for number, text in enumerate(("a NUL: \0", "half a character: \ud800", "x" * (17 << 20))):
            path = self.folder / f"{number}.h5"
            with self.assertRaises(RuntimeError) as raised:
                with isoloss.record(model, optimizer, path) as recorder:
                    self.loop(recorder, model, optimizer, 1)
                    raise RuntimeError(text)
            self.assertTrue(str(raised.exception) == text)
            self.show(path)

    def test_a_name_of_any_text_ends_no_training(self):
        torch.manual_seed(1)
        model = torch.nn.Sequential()
        model.add_module("a\0b", torch.nn.Linear(40, 5))
        optimizer = torch.optim.AdamW(model.parameters())
        with isoloss.record(model, optimizer, self.path, parameters=True, digests=[1],
                            dump=[1]) as recorder:
            self.loop(recorder, model, optimizer, 1)
        self.show(self.path)
        with h5py.File(self.path) as log:
            self.assertEqual(log["parameters/names"].asstr()[0], "a\\x00b.weight")

    def recovered(self, path, steps, seed=1):
        """The path of a journal of a killed run, as its file."""
        model, optimizer = make(seed)
        with isoloss.record(model, optimizer, path, steps=9) as recorder:
            self.loop(recorder, model, optimizer, steps)
        rows = run_log.read_rows(path)
        found = path.with_suffix(".lines")
        found.write_bytes(b"".join(map(journal.encode, rows[:-1])))  # no end
        return rows, found

    def test_a_log_gives_way_only_to_more_of_its_run(self):
        rows, lines = self.recovered(self.path, 4)
        finished = self.path.read_bytes()
        _, other = self.recovered(self.folder / "other.h5", 4, seed=2)
        for source in (other, lines, self.path):  # of another run, without its end, itself
            self.assertEqual(main(["recover", str(source), str(self.path)]), 3, source)
            self.assertEqual(self.path.read_bytes(), finished)
        # A run that goes on while its log is made.
        grown = self.folder / "grown.h5"
        for count in (3, 4, len(rows)):
            lines.write_bytes(b"".join(map(journal.encode, rows[:count])))
            self.assertEqual(main(["recover", str(lines), str(grown)]), 0)
        self.assertEqual(run_log.read_rows(grown), rows)
        before = lines.read_bytes()
        self.assertEqual(main(["recover", str(lines), str(lines)]), 3)
        self.assertEqual(lines.read_bytes(), before)

    def test_forged_journals_are_refused(self):
        rows, lines = self.recovered(self.path, 2)
        out = self.folder / "out.h5"
        for at, key, value in ((2, "seconds", 0), (2, "tokens", 2 ** 70), (2, "loss", 10 ** 400),
                               (0, "seed", 2 ** 80), (0, "arm", 3), (0, "parameters", "1")):
            forged = [dict(row) for row in rows]
            forged[at][key] = value
            lines.write_bytes(b"".join(map(journal.encode, forged)))
            self.assertEqual(main(["recover", str(lines), str(out)]), 3, key)
        with open(lines, "wb") as file:
            file.truncate(20 << 30)
        with self.assertRaisesRegex(run_log.LogError, "rows of 21474836480 bytes"):
            run_log.read_rows(lines)
        with self.assertRaisesRegex(run_log.LogError, r"ranks \[0\] .* has 10000000000,"):
            run_log.merge([[{**rows[0], "ranks": 10 ** 10}, *rows[1:]]])
        self.assertFalse(out.exists())

    def test_what_is_printed_controls_no_terminal(self):
        self.assertEqual(run_log.printable("a\x1b[1m\nPASS\u202e ü"),
                         "a\\x1b[1m\\nPASS\\u202e ü")


if __name__ == "__main__":
    unittest.main()
