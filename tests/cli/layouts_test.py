"""layouts: steps of two parallel layouts of one model and batch."""

import json
import shutil

import h5py
import numpy

from layout_recorder import record
from program import FAIL, INVALID, PASS, ProgramTest

EXPERTS = {"experts": 4}
TENSOR, DATA, MICRO = {"tensor": 2}, {"data": 2}, {"micro": 2}
EXPERT_RANKS = {"data": 2, "expert_ranks": 2, **EXPERTS}

# A layout, the mistake in it, and the tensor that shows it first.
MISTAKES = (
    (TENSOR, "no_all_reduce", "layers.0.w2", "output", "all_reduce_missing"),
    (TENSOR, "shards_swapped", "layers.0.w2", "output", "shard_order"),
    (TENSOR, "bias_on_each_rank", "layers.0.w2", "output", "bias_on_each_rank"),
    (TENSOR, "doubled", "layers.0.w2", "output", "counted_on_each_rank"),
    (TENSOR, "averaged", "layers.0.w2", "output", "divided_by_ranks"),
    (TENSOR, "norm_per_shard", "layers.1.w1", "x", "norm_per_shard"),
    (DATA, "gradient_not_reduced", "layers.0.w1.weight", "gradient", "all_reduce_missing"),
    (DATA, "embedding_not_reduced", "embed.weight", "gradient", "all_reduce_missing"),
    (DATA, "gradient_summed", "embed.weight", "gradient", "counted_on_each_rank"),
    (DATA, "gradient_averaged_twice", "embed.weight", "gradient", "divided_by_ranks"),
    (MICRO, "micro_batches_lost", "embed.weight", "gradient", "micro_batches_lost"),
    (EXPERT_RANKS, "rows_dropped", "layers.0.w1", "rows of experts", "rows_lost"),
    (EXPERT_RANKS, "experts_clipped_apart", "layers.0.w1.weight", "gradient", "other_factor"),
)


class Layouts(ProgramTest):
    def compare(self, options, other, *arguments, code):
        folders = []
        for side, chosen in (("a", options), ("b", {**options, **other})):
            shutil.rmtree(self.folder / side, ignore_errors=True)
            folders.append(record(self.folder / side, **chosen))
        return self.run_layouts(*folders, *arguments, code=code)

    def run_layouts(self, *arguments, code):
        result = self.run_isoloss("layouts", *map(str, arguments))
        self.assertEqual(result.returncode, code, f"{result.stdout}{result.stderr}")
        return result.stdout + result.stderr

    def first(self, options, other):
        return json.loads(self.compare(options, other, "--json", code=FAIL))["first"]

    def test_layouts_without_a_mistake_agree(self):
        shuffled = numpy.r_[24:48, 0:24]
        cases = ((TENSOR, {}), ({**DATA, **TENSOR, **MICRO}, {"steps": 2}),
                 ({**DATA, "mean": "global"}, {}), ({**DATA, "order": shuffled}, {}),
                 (DATA, EXPERTS), (EXPERT_RANKS, {**EXPERTS, "steps": 2}),
                 ({**EXPERT_RANKS, "order": shuffled}, EXPERTS))
        for seed, (other, options) in enumerate(cases, start=1):
            kind, width = ("bfloat16", 64) if seed % 2 else ("float32", 40)
            with self.subTest(other=other, kind=kind):
                self.compare({"seed": seed, "kind": kind, "width": width, **options}, other, code=PASS)

    def test_the_first_mistake_is_named_with_its_tensor(self):
        for seed, (layout, planted, *expected) in enumerate(MISTAKES, start=1):
            kind = "bfloat16" if seed % 2 else "float32"
            options = EXPERTS if "experts" in layout else {}
            with self.subTest(planted, kind=kind):
                found = self.first({"seed": seed, "kind": kind, **options},
                                   {**layout, "mistake": planted})
                self.assertEqual([found["module"], found["tensor"], found["mistake"]], expected,
                                 found["text"])

    def test_a_wrong_shard_is_told_as_a_rank_of_the_mesh(self):
        found = self.first({}, {**TENSOR, "mistake": "wrong_shard"})

        self.assertEqual((found["module"], found["tensor"]), ("layers.0.w1", "output"))
        self.assertEqual(found["where"], "columns 48..95 of 96 = rank 1 of tp")
        self.assertEqual(found["mistake"], "shard_order")
        self.assertIn("those of tp 0, 0", found["text"])

    def test_gradients_that_no_update_read_are_noted(self):
        self.compare({}, DATA, code=PASS)
        for file in self.folder.glob("?/*.h5"):
            with h5py.File(file, "a") as step:
                operations = step["operations"]
                kept = [name for name in operations if operations[name].attrs["type"] != "adamw"]
                for name in set(operations) - set(kept):
                    del operations[name]

        text = self.run_layouts(self.folder / "a", self.folder / "b", code=PASS)
        self.assertIn("nothing shows how gradients of 5 modules", " ".join(text.split()))

    def test_a_gradient_that_is_nan_everywhere_is_told(self):
        self.compare({}, DATA, code=PASS)
        for path in self.folder.glob("?/*.h5"):
            with h5py.File(path, "a") as file:
                for operation in file["operations"].values():
                    if operation.attrs["module"] == "layers.0.w1.weight":
                        operation["gradient"][...] = numpy.nan

        text = self.run_layouts(self.folder / "a", self.folder / "b", code=FAIL)
        self.assertIn("It is NaN everywhere in A and B.", text)
        self.assertNotIn("nan times", text)

    def test_a_recording_says_nothing_against_itself(self):
        folder = record(self.folder / "a")
        self.assertIn("are one recording", self.run_layouts(folder, folder / "run", code=INVALID))

    def test_means_over_parts_of_unequal_length_are_told(self):
        found = self.first({"tokens": 50}, {"data": 3})

        self.assertEqual(found["mistake"], "mean_of_means")

    def test_what_lies_between_operations_is_told_by_both(self):
        text = self.compare({}, {**TENSOR, "mistake": "norm_per_shard"}, code=FAIL)

        self.assertIn("It lies between layers.0.w2 (linear) and layers.1.w1 (linear).",
                      " ".join(text.split()))
        self.assertIn("FAIL: the first difference that no order of sums explains is x of layers.1.w1",
                      " ".join(text.split()))
        self.assertTrue(all(len(line) <= 80 for line in text.splitlines()), text)

    def test_ranks_that_read_the_same_data_are_told(self):
        found = self.first({}, {**DATA, "order": numpy.r_[0:24, 0:24]})

        self.assertEqual(found["mistake"], "other_tokens")
        self.assertIn("ranks 0 and 1 have the same labels", found["text"])

    def test_what_only_one_side_recorded_is_not_passed(self):
        self.compare({}, TENSOR, code=PASS)
        with h5py.File(self.folder / "b/run.rank-0.operations-000001.h5", "a") as file:
            del file["operations/000001/bias"]

        text = self.run_layouts(self.folder / "a", self.folder / "b", code=FAIL)
        self.assertIn("Only A recorded it.", text)

    def test_junit_has_a_case_for_each_tensor_that_is_not_explained(self):
        page = self.folder / "layouts.xml"
        self.compare({}, {**TENSOR, "mistake": "doubled"}, "--junit", page, code=FAIL)

        self.assertIn("layers.0.w2 output", page.read_text())

    def test_a_missing_rank_is_refused(self):
        self.compare({}, TENSOR, code=PASS)
        (self.folder / "b/run.rank-1.operations-000001.h5").unlink()

        text = self.run_layouts(self.folder / "a", self.folder / "b/run", code=INVALID)
        self.assertIn("step 1 has files of 1 of 2 ranks, but rank 1 is missing", text)

    def test_places_that_hold_no_run_are_refused(self):
        self.compare({}, {}, code=PASS)
        for place in (self.folder / "b/other", self.folder):
            text = self.run_layouts(self.folder / "a", place, code=INVALID)
            self.assertIn("Name their folder, or the run as FOLDER/NAME", text)
