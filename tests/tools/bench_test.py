"""The parts of tools/dev/bench that neither build nor measure."""

import io
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "dev"))

from benchmarks import BenchError, bars, files, history, machine, programs, scaling, steps, tables

GEMM = {counter: 0.9 for _, counter in tables.GEMM_ROWS}
GEMM.update(vs_openblas=1.1, vs_eigen=1.2, vs_onednn=1.0, vs_onednn_prepacked=1.1)


def some_figures():
    """What a complete run measures, every bar holding."""
    figures = {f"gemm/{m}x128x{k}": dict(GEMM) for m in (64, 256) for k in (128, 1024)}
    figures["accumulator/256x256x256"] = {"of_chain_hopper_bf16": 0.2}
    figures.update({f"threads2/{m}x128x128": {"speedup": 1.9} for m in (64, 256)})
    figures["threads2_fma/loop"] = {"speedup": 1.98}
    for routing in ("routed", "extreme"):
        figures[f"experts/{routing}"] = {"of_peak_bf16": 0.8, "of_peak_mxfp8": 0.75}
        figures[f"threads2_experts/{routing}/bf16"] = {"speedup": 1.9}
    for group in ("rows_l2", "transposing_l2", "rows_memory"):
        figures[f"{group}/e4m3_rceil"] = {"giga_elements_per_s": 7.0, "of_copy": 0.95}
    figures["rowwise/Add"] = {"giga_elements_per_s": 1.0, "of_copy": 0.5}
    one = figures["step/one_thread"] = {"mxfp8_over_bf16": 1.05, "peak_gflop_per_s": 200.0}
    for recipe, short in (("bf16", "bf16"), ("mxfp8_rceil", "mxfp8"), ("fp32", "fp32")):
        one.update({f"of_peak_{short}": 0.75, f"ms_{short}": 250.0})
        figures[f"step/threads2/{recipe}"] = {"speedup": 1.9, "ms": 130.0}
        figures[f"step/tokens4/{recipe}"] = {"time_ratio": 4.1}
        figures[f"memory/{recipe}"] = {"bytes_8": 2**27, "bytes_16": 2**28, "bytes_32": 2**29,
                                       "bytes_per_token": 65536.0, "growth": 1.0}
        if recipe != "fp32":
            figures[f"small_model/outside_gemms/{recipe}"] = {"share": 0.3}
            figures[f"small_model/side_by_side/{recipe}"] = {"of_sum": 0.97}
    for mode, ratio in (("fp32", 1.8), ("bf16", 2.5), ("mxfp8_usual", 9.0),
                        ("mxfp8_fastest", 3.5)):
        figures[f"torch/{mode}/threads1"] = {
            "torch_ms": 500.0, "ms": 250.0, "torch_of_peak": 0.3, "of_peak": 0.6, "ratio": ratio}
    for preset, costs in (("dsv3-small", {"cost_8": 0.04}),
                          ("dsv3-671b-topology", {"cost_8": 0.04, "cost_256": 0.2})):
        figures[f"exchange/{preset}/threads1"] = {"ms_one_rank": 250.0, **costs}
    for recipe in ("bf16", "mxfp8_rceil"):
        for axis in scaling.AXES:
            figures[f"growth/{recipe}/{axis}"] = {
                "from": 8, "to": 64, "bytes_per_parameter": 16.1,
                **{f"{what}_{figure}": value for what in ("time", "memory")
                   for figure, value in (("exponent", 1.01), ("deviation", 0.02),
                                         ("last_doubling", 2.02))}}
        figures[f"layer/{recipe}"] = {"of_peak": 0.75, "cpu_seconds": 10.0, "tera_flop": 2.1,
                                      "bytes": 12e9, "parameters": 586e6}
    for preset in ("dsv3-nano", "dsv3-small"):
        for recipe in ("bf16", "mxfp8_rceil"):
            figures[f"probe/{preset}/{recipe}"] = {"of_training": 3.5, "ms": 500.0}
    figures["verify/demo"] = {"seconds": 60.0}
    return figures


def failing(results):
    return [result["name"] for result in results if not result["holds"]]


class Bars(unittest.TestCase):
    def test_hold_when_every_figure_is_good(self):
        results = bars.evaluate(some_figures())

        self.assertEqual(failing(results), [])
        self.assertTrue(bars.all_hold(results))
        self.assertEqual(results[0], {
            "name": "GEMM, both operands packed in the call, of FMA peak", "value": 0.9,
            "bar": ">= 0.85", "holds": True})

    def test_each_fails_by_itself_when_its_figure_is_beyond_the_limit(self):
        for bar in bars.BARS:
            beyond = bar.limit * (0.99 if bar.direction == ">=" else 1.01)
            results = bars.evaluate({}, bars=[bar._replace(figure=lambda _, v=beyond: v)])
            self.assertEqual(failing(results), [bar.name])
            at_limit = bars.evaluate({}, bars=[bar._replace(figure=lambda _, b=bar: b.limit)])
            self.assertTrue(at_limit[0]["holds"], "the limit itself holds")

    def test_every_counter_that_a_bar_reads_moves_it(self):
        good = bars.evaluate(some_figures())
        for result in good:
            bar = next(bar for bar in bars.BARS if bar.name == result["name"])
            worse = 0.5 if bar.direction == ">=" else 2.0
            figures = {name: {counter: worse * value for counter, value in counters.items()}
                       for name, counters in some_figures().items()}
            value = bars.evaluate(figures, bars=[bar])[0]["value"]
            self.assertNotEqual(value, result["value"], bar.name)

    def test_a_peer_may_be_faster_at_some_sizes_but_not_in_the_median(self):
        figures = some_figures()
        figures["gemm/64x128x128"]["vs_eigen"] = 0.9
        self.assertEqual(failing(bars.evaluate(figures)), [])

        for k in (128, 1024):
            figures[f"gemm/256x128x{k}"]["vs_eigen"] = 0.9
        self.assertEqual(failing(bars.evaluate(figures)), ["GEMM, Eigen's time over ours"])

    def test_a_missing_figure_is_an_error_but_not_in_a_quick_run(self):
        figures = some_figures()
        del figures["verify/demo"]

        with self.assertRaisesRegex(BenchError, "verify of the demo.*verify/demo was not measured"):
            bars.evaluate(figures)
        results = bars.evaluate(figures, complete=False)
        self.assertIsNone(results[-1]["holds"])
        self.assertTrue(bars.all_hold(results))

    def test_a_group_without_benchmarks_is_missing_not_empty(self):
        figures = {name: counters for name, counters in some_figures().items()
                   if not name.startswith("gemm/")}

        with self.assertRaisesRegex(BenchError, "gemm/.*of_peak_bf16"):
            bars.evaluate(figures)

    def test_a_value_that_is_not_finite_is_an_error(self):
        for value in (float("nan"), float("inf")):
            figures = some_figures()
            figures["verify/demo"]["seconds"] = value
            with self.assertRaisesRegex(BenchError, "a figure is finite"):
                bars.evaluate(figures)


class PowerLaw(unittest.TestCase):
    def test_is_found_with_what_deviates_from_it(self):
        exponent, deviation = scaling.power_law([(n, 3 * n ** 1.25) for n in (8, 16, 32, 64)])
        self.assertAlmostEqual(exponent, 1.25)
        self.assertAlmostEqual(deviation, 0)

        # Powers of 2: 0, 1, 3, where the line has -1/6, 4/3, 17/6.
        exponent, deviation = scaling.power_law([(1, 1), (2, 2), (4, 8)])
        self.assertAlmostEqual(exponent, 1.5)
        self.assertAlmostEqual(deviation, 1 - 2 ** (-1 / 3))


class Tables(unittest.TestCase):
    def test_are_well_formed(self):
        figures = some_figures()
        of_history = tables.of_history([a_run("aaa")])
        details = tables.details(figures)

        self.assertEqual(set(details), set(tables.DETAILS))
        for name, text in {"of_history": of_history, **details}.items():
            for block in re.sub(r"^## .*\n\n", "", text).rstrip("\n").split("\n\n"):
                widths = {line.count("|") for line in block.splitlines()}
                self.assertEqual(len(widths), 1, f"{name}: {block}")
                self.assertGreater(len(block.splitlines()), 2, name)

    def test_gemm_gives_medians_of_all_sizes_and_of_each_m(self):
        figures = some_figures()
        figures["gemm/64x128x128"]["of_peak_bf16"] = 0.4

        first = tables.gemm(figures).splitlines()[2]

        self.assertEqual(first, "| BF16, both operands packed in the call | 0.90 | 0.65 | 0.90 |")

    def test_bars_show_what_fails(self):
        figures = some_figures()
        figures["verify/demo"]["seconds"] = 91.0

        run = {**a_run("aaa"), "bars": bars.evaluate(figures)}
        self.assertIn("| verify of the demo, seconds | ≤ 90 | 91.00 | **no** |",
                      tables.bars([run]))


def a_run(commit, **values):
    return {"date": "2026-01-02T03:04:05Z", "commit": commit, "machine": {"processor": "one"},
            "bars": [{"name": "speed", "value": values.get("speed", 1.0), "bar": ">= 1",
                      "holds": values.get("speed", 1.0) >= 1}],
            "figures": {"step ms": values.get("ms", 100.0)}}


class History(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.path = self.folder / "history.jsonl"

    def test_grows_by_a_line_a_run_and_leaves_no_other_file(self):
        self.assertEqual(files.read_history(self.path), [])

        for commit in ("aaa", "bbb"):
            files.append_history(self.path, a_run(commit))

        self.assertEqual([run["commit"] for run in files.read_history(self.path)], ["aaa", "bbb"])
        self.assertEqual(len(self.path.read_text().splitlines()), 2)
        self.assertEqual([path.name for path in self.folder.iterdir()], ["history.jsonl"])

    def test_a_damaged_line_is_named_and_nothing_is_written(self):
        for damage in ("{", "[]", '{"date": 1}', ""):
            text = json.dumps(a_run("aaa")) + "\n" + damage + "\n"
            self.path.write_text(text)
            with self.subTest(damage), self.assertRaisesRegex(BenchError, r"jsonl:2: is no run"):
                files.append_history(self.path, a_run("bbb"))
            self.assertEqual(self.path.read_text(), text)

    def test_a_folder_that_is_not_there_is_an_error(self):
        with self.assertRaisesRegex(BenchError, "cannot be written"):
            files.append_history(self.folder / "none" / "history.jsonl", a_run("aaa"))

    def test_comparison_shows_changes_of_the_last_two(self):
        runs = [a_run("old"), a_run("aaa"), a_run("bbb", speed=0.9, ms=110.0)]

        text = history.compare(runs)

        self.assertNotIn("old", text)
        self.assertRegex(text, r"speed +1 +0.9 +-10.0 % +NO LONGER HOLDS")
        self.assertRegex(text, r"step ms +100 +110 +\+10.0 %")
        self.assertNotIn("machines differ", text)
        self.assertRegex(history.compare(runs[::-1][:2]), "now holds")

    def test_comparison_is_with_the_run_before_on_the_same_processor(self):
        elsewhere = a_run("bbb")
        elsewhere["machine"] = {"processor": "two"}

        text = history.compare([a_run("aaa"), elsewhere, a_run("ccc")])

        self.assertIn("aaa", text)
        self.assertNotIn("bbb", text)

    def test_processors_stand_side_by_side_with_their_newest_runs(self):
        elsewhere = a_run("bbb", speed=0.5)
        elsewhere["machine"] = {"processor": "two"}

        text = tables.bars([a_run("aaa", speed=0.7), elsewhere, a_run("ccc")])

        self.assertRegex(text, r"\| bar \| limit \| one .* \| two .* \| holds \|")
        self.assertIn("| speed | ≥ 1 | 1.00 | 0.50 | yes |", text)
        self.assertNotIn("0.70", text)

    def test_of_the_history_the_last_machine_and_all_bars_are_told(self):
        text = tables.of_history([a_run("aaa"), a_run("bbb", speed=0.7)])

        for row in ("| processor | one |", "| commit | bbb |", "| date | 2026-01-02 |",
                    "| speed | ≥ 1 | 0.70 | **no** |"):
            self.assertIn(row, text)
        with self.assertRaisesRegex(BenchError, "no run"):
            tables.of_history([])

    def test_comparison_says_if_machines_differ_or_a_figure_is_new(self):
        after = a_run("bbb")
        after["machine"] = {"processor": "two"}
        after["figures"]["fresh"] = 3.0

        text = history.compare([a_run("aaa"), after])

        self.assertIn("machines differ", text)
        self.assertRegex(text, r"fresh +– +3 +not in both")

    def test_comparison_needs_two_runs(self):
        for runs in ([], [a_run("aaa")]):
            with self.assertRaisesRegex(BenchError, f"has {len(runs)} run"):
                history.compare(runs)

    def test_key_figures_are_medians_of_grids_and_all_others(self):
        kept = history.key_figures(some_figures())

        self.assertEqual(kept["gemm of_peak_bf16"], 0.9)
        self.assertEqual(kept["step/one_thread mxfp8_over_bf16"], 1.05)
        self.assertFalse(any("128x128" in name for name in kept))


class Programs(unittest.TestCase):
    OUTPUT = {"context": {"num_cpus": 2}, "benchmarks": [
        {"run_name": "gemm/64x128x128/iterations:3/manual_time", "real_time": 1.0,
         "iterations": 3, "time_unit": "ns", "of_peak_bf16": 0.9}]}

    def test_output_becomes_figures(self):
        context, figures = programs.read_output(json.dumps(self.OUTPUT), "gemm_bench")

        self.assertEqual(context, {"num_cpus": 2})
        self.assertEqual(figures, {"gemm/64x128x128": {"of_peak_bf16": 0.9}})

    def test_a_failed_or_absent_benchmark_is_an_error(self):
        failed = json.loads(json.dumps(self.OUTPUT))
        failed["benchmarks"][0].update(error_occurred=True, error_message="eigen differs")
        with self.assertRaisesRegex(BenchError, "gemm/64x128x128: eigen differs"):
            programs.read_output(json.dumps(failed), "gemm_bench")
        with self.assertRaisesRegex(BenchError, "no benchmark ran"):
            programs.read_output(json.dumps({"context": {}, "benchmarks": []}), "gemm_bench")

    def test_a_command_that_fails_shows_its_output(self):
        with self.assertRaisesRegex(BenchError, "ended with code 3:\nbad luck"):
            programs.run([sys.executable, "-c", "print('bad luck'); exit(3)"])

    def test_progress_is_plain_lines_where_there_is_no_terminal(self):
        stream = io.StringIO()
        progress = programs.Progress(stream)

        progress.part("gemm_bench")
        progress.show("1 of 2")

        self.assertRegex(stream.getvalue(), r"^\[ +0 s\] gemm_bench\n$")


ECHO = """
import sys
print('{"ready": "x"}', flush=True)
for line in sys.stdin: print('{"wall_ms": 2}', flush=True)
"""


class Steps(unittest.TestCase):
    def test_server_answers_a_step_at_a_time(self):
        with steps.Server([sys.executable, "-c", ECHO]) as server:
            self.assertEqual(server.ready, {"ready": "x"})
            self.assertEqual([server.step() for _ in range(3)], [{"wall_ms": 2}] * 3)

    def test_a_server_that_ends_or_babbles_is_an_error_with_its_last_words(self):
        for program in ("import sys; sys.exit('no torch')", "print('hello'); exit('no torch')"):
            with self.subTest(program), self.assertRaisesRegex(BenchError, "no torch"):
                steps.Server([sys.executable, "-c", program])
        with self.assertRaisesRegex(BenchError, "does not start"):
            steps.Server(["/nowhere/step_server"])

    def test_a_server_that_ends_between_steps_is_an_error(self):
        program = "print('{}', flush=True); input(); print('{}', flush=True); exit('tired')"
        with steps.Server([sys.executable, "-c", program]) as server:
            server.step()
            with self.assertRaisesRegex(BenchError, "tired"):
                server.step()


CPUINFO = """\
processor : 0
vendor_id : AuthenticAMD
cpu family : 26
model : 2
model name : EPYC
stepping : 1
flags : fpu avx2 fma avx512f

processor : 1
model name : another
"""


class Machine(unittest.TestCase):
    def test_is_named_by_its_first_processor(self):
        contexts = {"gemm_bench": {"num_cpus": 2, "openblas": "OpenBLAS 0.3, core SkylakeX",
                                   "host_name": "secret", "executable": "/a/b",
                                   "caches": [{"type": "Data", "level": 1, "size": 49152},
                                              {"type": "Instruction", "level": 1, "size": 32768},
                                              {"type": "Unified", "level": 2, "size": 1048576}]}}
        torch = {"torch": "1.13", "capability": "avx512", "openblas_core": "SkylakeX",
                 "blas": ["/usr/lib/openblas-openmp/libopenblas.so"]}

        description = machine.describe(contexts, torch, CPUINFO)

        self.assertEqual(description["processor"],
                         "AuthenticAMD EPYC, family 26, model 2, stepping 1")
        self.assertEqual(description["instruction sets"], "avx2, fma, avx512f")
        self.assertEqual(description["caches"], "L1d 48 KB, L2 1024 KB")
        self.assertEqual(description["OpenBLAS"], "0.3, core SkylakeX")
        self.assertEqual(description["PyTorch"],
                         "1.13, avx512, OpenBLAS SkylakeX (OpenMP build)")
        words = " ".join(map(str, description.values()))
        self.assertNotIn("secret", words)
        self.assertNotIn("/a/b", words)
        self.assertNotIn("/usr", words)

    def test_of_an_unknown_kind_is_described_all_the_same(self):
        description = machine.describe({}, {}, "")

        self.assertIn("unknown", description["processor"])


class CommandLine(unittest.TestCase):
    def run_bench(self, *arguments):
        return subprocess.run([sys.executable, ROOT / "tools" / "dev" / "bench.py", *arguments],
                              capture_output=True, encoding="utf-8", check=False)

    def test_help_has_examples(self):
        done = self.run_bench("--help")

        self.assertEqual(done.returncode, 0)
        self.assertIn("tools/dev/bench --quick", done.stdout)

    def test_unknown_options_are_refused(self):
        done = self.run_bench("--speed")

        self.assertEqual(done.returncode, 2)
        self.assertIn("--speed", done.stderr)

    def test_tables_of_a_part_are_refused(self):
        for part in (("--quick",), ("--filter", "gemm")):
            done = self.run_bench(*part, "--tables", "figures.md")

            self.assertEqual(done.returncode, 2)
            self.assertIn("--tables writes every figure", done.stderr)


if __name__ == "__main__":
    unittest.main()
