"""Null ensembles: what is built, that it is kept, and what is refused."""

import signal
import subprocess
import time

import h5py

from program import BINARY, ProgramTest, TINY, INTERRUPTED, INVALID, PASS, USAGE


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

    def interrupted(self, out, *options, runs=40, experiment="short.toml"):
        """Stops a build once two members are kept; returns their folder."""
        folder = self.folder / (out + ".members")
        with subprocess.Popen(
                [BINARY, "ensemble", "build", experiment, "--runs", str(runs), "--steps", "4",
                 "--workers", "1", "--out", out, *options],
                cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
            while process.poll() is None and not (folder / "member-00002.h5").exists():
                time.sleep(0.001)
            process.send_signal(signal.SIGINT)
            _, message = process.communicate(timeout=60)
        self.assertEqual(process.returncode, INTERRUPTED, message)
        self.assertLess(len(list(folder.glob("member-*.h5"))), runs)
        return folder

    def test_goes_on_where_it_was_interrupted(self):
        self.build(runs=40, out="whole.h5")
        folder = self.interrupted("again.h5")
        kept = {path: path.stat().st_mtime_ns for path in folder.glob("member-*.h5")}
        self.assertGreaterEqual(len(kept), 2)

        result = self.build(runs=40, out="again.h5")

        self.assertEqual(result.returncode, PASS, result.stderr)
        self.assertIn(f"40 members of 4 steps, arm mxfp8, {len(kept)} of them kept",
                      result.stdout)
        self.assertEqual(self.content("whole.h5"), self.content("again.h5"))

    def test_goes_on_to_more_members_than_before(self):
        for kind in ("benign", "seeds"):
            with self.subTest(kind=kind):
                options = ("--kind", kind, "--probe-steps", "1")
                self.build(*options, runs=42, out=f"{kind}42.h5")
                self.interrupted(f"{kind}.h5", *options)

                result = self.build(*options, runs=42, out=f"{kind}.h5")

                self.assertEqual(result.returncode, PASS, result.stderr)
                self.assertNotIn(" 0 of them kept", result.stdout)
                self.assertEqual(self.content(f"{kind}42.h5"), self.content(f"{kind}.h5"))

    def test_does_not_mix_recipes_of_one_name(self):
        text = self.write("mine.toml", (self.folder / "short.toml").read_text()).read_text()
        folder = self.interrupted("mixed.h5", experiment="mine.toml")
        rule = 'recipe = "mxfp8_rceil"'
        self.write("mine.toml", text.replace(rule, rule + '\nexclude = ["layers.0.*"]'))

        def go_on():
            return self.run_isoloss("ensemble", "build", "mine.toml", "--runs", 40,
                                    "--steps", 4, "--out", "mixed.h5")

        result = go_on()
        self.assertEqual(result.returncode, INVALID)
        self.assertIn("members of another plan", result.stderr)
        # Nor does a member that was put there.
        (folder / "plan.toml").unlink()
        result = go_on()
        self.assertEqual(result.returncode, INVALID)
        self.assertIn("member-00001.h5: it is a member of another plan", result.stderr)
        self.assertIn("recipe", result.stderr)
        self.assertFalse((self.folder / "mixed.h5").exists())

    def test_finds_a_damaged_member_before_training(self):
        folder = self.interrupted("damaged.h5")
        member = folder / "member-00002.h5"
        whole = member.read_bytes()
        member.write_bytes(whole[:-1])
        before = sorted(folder.iterdir())

        self.assert_refused(self.build(runs=40, out="damaged.h5"), "member-00002.h5", "remove it")
        self.assertEqual(sorted(folder.iterdir()), before)

    def test_out_is_a_place_for_an_ensemble(self):
        (self.folder / "folder").mkdir()
        self.write("notes.h5", "mine")
        for out, words in (("folder", ["--out is a folder", "folder/ensemble.h5"]),
                           ("new/", ["--out is a folder"]),
                           ("notes.h5", ["--out is there and is no null ensemble"]),
                           ("notes.h5/null.h5", ["notes.h5", "Choose another --out"])):
            with self.subTest(out=out):
                self.assert_refused(self.build(out=out), *words)
        self.assertEqual((self.folder / "notes.h5").read_text(), "mine")
        self.assert_no_files("folder")
        self.assertEqual(self.build(out="twice.h5").returncode, PASS)
        self.assertEqual(self.build(out="twice.h5").returncode, PASS)

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

    def test_takes_all_steps_of_a_short_experiment(self):
        result = self.run_isoloss("ensemble", "build", "short.toml", "--runs",
                                  "1", "--out", "all_steps.h5")

        self.assertEqual(result.returncode, PASS, result.stderr)
        self.assertIn("1 members of 6 steps", result.stdout)

    def test_ranges_are_those_of_whole_numbers(self):
        for option in ("--steps", "--workers", "--runs", "--probe-steps", "--first-seed"):
            with self.subTest(option=option):
                result = self.build(option, "-1")
                self.assertEqual(result.returncode, USAGE)
                self.assertTrue(result.stderr.startswith("isoloss lab ensemble build: "),
                                result.stderr)
                self.assertLess(len(result.stderr), 160)
        self.assertIn("isoloss lab ensemble build --help",
                      self.run_isoloss("ensemble", "build").stderr)
        self.assertIn("`bild`", self.run_isoloss("ensemble", "bild").stderr)
