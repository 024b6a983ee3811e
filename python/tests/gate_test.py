"""isoloss judges runs that the recorder recorded."""

import contextlib
import io
import json
import pathlib
import subprocess
import sys
import unittest

import h5py
import torch

import isoloss
from isoloss import run_log
from recorder_test import BINARY, Case, batch, main, make

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "examples"))
import moe_mxfp8  # noqa: E402

INVALID, FAIL, PASS, INCONCLUSIVE = 3, 1, 0, 4


class Gate(Case):
    def train(self, name, *options):
        path = self.folder / f"{name}.h5"
        with contextlib.redirect_stdout(io.StringIO()):
            moe_mxfp8.main([*options, "--steps", "4", "--out", str(path)])
        return path

    def dumps(self, log):
        return sorted(log.parent.glob(f"{log.stem}.rank-*.operations-*.h5"))

    def isoloss(self, *arguments):
        done = subprocess.run([BINARY, *map(str, arguments), "--json"], text=True,
                              capture_output=True, check=False)
        self.assertNotEqual(done.stdout, "", done.stderr)
        return done.returncode, json.loads(done.stdout)

    def gate(self, *arguments):
        """Exit code and checks by name."""
        code, verdict = self.isoloss("gate", *arguments)
        return code, {check["name"]: check for check in verdict["checks"]}, verdict


class TwoArms(Gate):
    def test_recorded_runs_are_judged_and_not_refused(self):
        logs = [self.train(f"{recipe}-{seed}", "--recipe", recipe, "--seed", str(seed))
                for recipe in ("bf16", "mxfp8_rceil") for seed in (1, 2)]

        code, checks, verdict = self.gate(*logs)

        self.assertIn(code, (PASS, FAIL, INCONCLUSIVE), verdict)
        for rule in ("seeds", "configuration", "steps", "domains", "schedule", "declared_change"):
            self.assertEqual(checks[rule]["outcome"], "PASS", rule)
        self.assertIn("final_window", checks)
        told = " ".join(verdict["warnings"])
        self.assertIn("isoloss-recorder", told)
        for recorded in ("configuration", "data", "initial weights"):
            self.assertNotIn(recorded, told)

    def test_what_was_recorded_must_be_equal(self):
        logs = [self.train("bf16", "--recipe", "bf16"), self.train("mxfp8")]

        def spoil(change):
            rows = run_log.read_rows(logs[1])
            change(rows)
            run_log.write_log(self.folder / "spoilt.h5", rows)
            return self.gate(logs[0], self.folder / "spoilt.h5")

        def other_batch(rows):
            rows[2]["batch"] += 1

        for name, rule, change in (
                ("weights", "configuration", lambda rows: rows[0].update(weights=1)),
                ("config", "configuration", lambda rows: rows[0].update(config="lr = 2")),
                ("batch", "steps", other_batch)):
            code, checks, verdict = spoil(change)
            self.assertEqual(code, INVALID, (name, verdict))
            self.assertEqual(checks[rule]["outcome"], "INVALID", name)

    def test_arms_and_seeds_that_nobody_told(self):
        paths = []
        for seed in range(4):
            path = self.folder / f"{seed}.h5"
            model, optimizer = make(seed % 2)
            optimizer.param_groups[0]["eps"] = 1e-8 if seed < 2 else 1e-7
            with isoloss.record(model, optimizer, path, steps=3) as recorder:
                self.loop(recorder, model, optimizer, 3)
            paths.append(path)

        code, checks, verdict = self.gate(*(f"{'ab'[i // 2]}={path}" for i, path in
                                            enumerate(paths)))

        self.assertNotEqual(code, INVALID, verdict)
        self.assertEqual(checks["seeds"]["outcome"], "PASS")
        self.assertEqual((verdict["baseline"]["arm"], verdict["candidate"]["arm"]), ("a", "b"))


class Regression(Gate):
    def test_equal_weights_are_known_to_be_equal(self):
        approved = self.train("approved", "--statistics", "3")
        (self.folder / "again").mkdir()
        again = self.train("again/approved", "--statistics", "3")

        code, checks, verdict = self.gate(again, "--against", approved)

        self.assertEqual(code, PASS, verdict)
        self.assertIn("so are the final weights", checks["written_digits"]["quantity"])

        rows = run_log.read_rows(again)
        rows[-1]["weights"] += 1
        run_log.write_log(again, rows)
        code, checks, verdict = self.gate(again, "--against", approved)
        self.assertNotIn("written_digits", checks)

        rows = run_log.read_rows(approved)
        name = next(iter(rows[3 + 1]["tensors"]))
        rows[3 + 1]["tensors"][name]["moments"]["max"] *= 2
        run_log.write_log(again, rows)
        code, checks, verdict = self.gate(again, "--against", approved)
        self.assertEqual((code, checks["recorded_statistics"]["outcome"]), (FAIL, "FAIL"), verdict)


class Origin(Case):
    def test_final_merged_and_recovered_logs_say_who_made_them(self):
        paths = []
        for rank in (0, 1):
            model, optimizer = make()
            with isoloss.record(model, optimizer, self.path, rank=rank, ranks=2) as recorder:
                for step in (1, 2):
                    x, y = batch(step)
                    recorder.step(1.5, tokens=6, lr=0.1, grad_norm=1.0, batch=[x, y])
                if rank == 0:
                    journal = recorder.journal_path.read_bytes()
            paths.append(recorder.path)
        (self.folder / "killed.journal").write_bytes(journal)
        merged, recovered = self.folder / "merged.h5", self.folder / "recovered.h5"
        self.assertEqual(main(["merge", str(merged), *map(str, paths)]), 0)
        self.assertEqual(main(["recover", str(self.folder / "killed.journal"), str(recovered)]), 0)
        weights = set()
        for path in (*paths, merged, recovered):
            with h5py.File(path) as log:
                self.assertEqual(log.attrs["origin"], "isoloss-recorder")
                self.assertEqual(len(log["steps/batch_digest"]), 2)
                weights.add(log.attrs["initial_weights_digest"])
                self.assertEqual(log.attrs["final_weights_digest"],
                                 "" if path == recovered else log.attrs["initial_weights_digest"])
        self.assertEqual(len(weights), 1)

    def test_digests_tell_weights_and_batches_apart(self):
        found = set()
        for change in ("", "value", "name", "shape"):
            model, _ = make()
            named = dict(model.named_parameters())
            if change == "value":
                named["0.bias"].data[0] += 1e-3
            if change == "name":
                named["other"] = named.pop("0.bias")
            if change == "shape":
                named["0.bias"] = named["0.bias"].detach().reshape(3, 3)
            found.add(isoloss.recorder.tensors.weights_digest(named.items()))
        self.assertEqual(len(found), 4)
        x, y = torch.tensor([[1, 2]]), torch.tensor([3])
        digest = isoloss.recorder.tensors.batch_digest
        self.assertEqual(digest([x, y], 0), digest([x.clone(), y], 0))
        self.assertEqual(len({digest([x, y], 0), digest([y, x], 0), digest([x, y], 1),
                              digest(x, 0), digest([x.float(), y + 1], 0)}), 5)


if __name__ == "__main__":
    unittest.main()
