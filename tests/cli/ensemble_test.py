"""Null ensembles: what is built, that it is kept, and what is refused."""

import shutil

import h5py

from program import ProgramTest, TINY, INVALID, PASS, USAGE


class Ensemble(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.write("short.toml", TINY.replace("steps = 20", "steps = 6"))

    def build(self, *options, runs=3, steps=4, out="null.h5"):
        return self.run_isoloss("ensemble", "build", "short.toml", "--runs", runs,
                                "--steps", steps, "--out", out, *options)

    def content(self, name):
        found = {}
        with h5py.File(self.folder / name, "r") as file:
            file.visititems(lambda path, item: found.__setitem__(
                path, item[()].tobytes()) if isinstance(item, h5py.Dataset)
                and path.split("/")[-1] not in ("step_seconds", "tokens_per_second")
                and item.dtype != object else None)
        return found

    def test_benign_members_differ_from_their_reference_in_bits_alone(self):
        result = self.build()

        self.assertEqual(result.returncode, PASS, result.stderr)
        self.assertFalse((self.folder / "null.h5.members").exists())
        with h5py.File(self.folder / "null.h5", "r") as file:
            self.assertEqual(file.attrs["kind"], "benign")
            losses = file["steps/loss_nats"][()]
            references = file["reference_steps/loss_nats"][()]
            norms = file["parameters/grad_norm"][()]
            self.assertEqual(len(losses), 3 * 4)
            self.assertFalse((norms == file["reference_parameters/grad_norm"][()]).all())
            for loss, reference in zip(losses, references):
                self.assertAlmostEqual(loss, reference, delta=1e-2 * reference)

    def test_seeds_pair_the_arms_and_probe_them(self):
        result = self.build("--kind", "seeds", "--probe-steps", "1", "2", runs=2, out="seeds.h5")

        self.assertEqual(result.returncode, PASS, result.stderr)
        with h5py.File(self.folder / "seeds.h5", "r") as file:
            self.assertEqual(file.attrs["kind"], "seeds")
            self.assertEqual(sorted(set(file["precision/step"][()])), [1, 2])
            self.assertGreater(file["precision/relative_error"][()].max(), 0)

    def test_goes_on_where_it_was_interrupted(self):
        self.build(out="whole.h5")
        self.build(out="again.h5")
        self.assertEqual(self.content("whole.h5"), self.content("again.h5"))

        folder = self.folder / "again.h5.members"
        folder.mkdir()
        (folder / "plan.toml").write_text("another plan")
        result = self.build(out="again.h5")
        self.assertEqual(result.returncode, INVALID)
        self.assertIn("members of another plan", result.stderr)
        shutil.rmtree(folder)

    def test_does_not_depend_on_how_many_run_side_by_side(self):
        self.build("--workers", "1", out="one.h5")
        self.build("--workers", "2", out="two.h5")

        self.assertEqual(self.content("one.h5"), self.content("two.h5"))

    def test_refuses_what_makes_no_ensemble(self):
        for options, words, code in (
                (("--arm", "mxfp9"), ["no arm `mxfp9`", "bf16, mxfp8"], INVALID),
                (("--kind", "seeds", "--arm", "bf16"), ["is the baseline"], INVALID),
                (("--kind", "seeds", "--first-seed", "1"), ["one of the experiment's"], INVALID),
                (("--kind", "good"), ["good"], USAGE)):
            with self.subTest(options=options):
                self.assert_refused(self.build(*options), *words, code=code)
        self.assert_refused(self.build(steps=7), "--steps is 7", "has 6")
