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


class Probes(Gate):
    """check-tensors looks at some operations, and the gate reads what it found."""

    def probe(self, log, recipe):
        out = self.folder / f"{log.stem}.probe.h5"
        code, _ = self.isoloss("check-tensors", *self.dumps(log), "--recipe", recipe, "--out", out)
        return code, out

    def test_a_right_run_passes_and_a_mistake_fails_and_is_named(self):
        bf16 = self.train("bf16", "--recipe", "bf16", "--dump", "2,3")
        right = self.train("right", "--dump", "2,3")
        wrong = self.train("wrong", "--dump", "2,3", "--mistake", "floor_for_rceil", "--site",
                           "layers.1.moe.experts.w2")
        probes = {name: self.probe(log, recipe) for name, log, recipe in
                  (("bf16", bf16, "bf16"), ("right", right, "mxfp8_rceil"),
                   ("wrong", wrong, "mxfp8_rceil"))}
        self.assertEqual({name: code for name, (code, _) in probes.items()},
                         {"bf16": PASS, "right": PASS, "wrong": FAIL})

        code, checks, verdict = self.gate(bf16, right, "--probe", probes["right"][1], "--probe",
                                          probes["bf16"][1], "--out", self.folder / "verdict")

        levels = {level["id"]: level["outcome"] for level in verdict["levels"]}
        self.assertEqual((code, levels["L2"]), (INCONCLUSIVE, "PASS"), verdict)  # for one seed
        operations = 0
        for log in (*self.dumps(bf16), *self.dumps(right)):
            with h5py.File(log) as file:
                operations += len(file["operations"])
        self.assertIn(f"{operations} recorded operations of step 2 to 3",
                      checks["scope"]["quantity"])

        code, checks, verdict = self.gate(bf16, wrong, "--probe", probes["wrong"][1])
        self.assertEqual(code, FAIL, verdict)
        self.assertIn("layers.1.moe.experts.w2", checks["elements"]["evidence"])
        self.assertTrue(all("layers.1.moe.experts.w2" in finding
                            for finding in checks["elements"]["findings"]))

        # The probe of a right run does not speak for another one.
        code, checks, verdict = self.gate(bf16, wrong, "--probe", probes["right"][1])
        self.assertEqual((code, checks["probe"]["outcome"]), (INVALID, "INVALID"), verdict)

    def test_losses_of_all_ranks_bind_a_probe(self):
        model, optimizer = make()
        paths = []
        for rank, loss in ((0, 1.25), (1, 1.5)):
            with isoloss.record(model, optimizer, self.path, rank=rank, ranks=2, dump=[1, 2],
                                arm="b", seed=1) as recorder:
                for step in (1, 2):
                    x, y = batch(step)
                    isoloss.observe("dispatch", "d", tokens=x, source=torch.arange(3), rows=x[:3])
                    recorder.step(loss, tokens=3 - rank, lr=0.1, grad_norm=1.0, batch=[x, y])
            paths.append(recorder.path)
        merged, other, out = (self.folder / name for name in ("merged.h5", "other.h5", "probe.h5"))
        main(["merge", str(merged), *map(str, paths)])
        rows = run_log.read_rows(merged)
        rows[0]["arm"] = "a"
        rows[2]["loss"] += 1e-3
        rows[-1]["weights"] += 1
        run_log.write_log(other, rows)
        dumps = sorted(self.folder.glob("run.rank-*.operations-*.h5"))
        self.assertEqual(len(dumps), 4)
        for files, outcome in ((dumps, "PASS"), (dumps[:2], "INVALID")):
            code, _ = self.isoloss("check-tensors", *files, "--recipe", "bf16", "--out", out)
            self.assertEqual(code, PASS)
            _, checks, verdict = self.gate(other, merged, "--baseline", "a", "--probe", out)
            self.assertEqual(checks["probe"]["outcome"], outcome, verdict)


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
        self.assertEqual(checks["written_digits"]["outcome"], "INCONCLUSIVE")

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
                    x, y = batch(2 * step + rank)
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
        def digest(batch, rank):
            return isoloss.recorder.tensors.batch_digests(batch, rank)[0]

        self.assertEqual(digest([x, y], 0), digest([x.clone(), y], 0))
        self.assertEqual(len({digest([x, y], 0), digest([y, x], 0), digest([x, y], 1),
                              digest(x, 0), digest([x.float(), y + 1], 0)}), 5)


if __name__ == "__main__":
    unittest.main()
