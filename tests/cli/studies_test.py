"""Ladders and stress: they train what is missing, judge what is there, and refuse the rest."""

import json
import shutil
import signal
import subprocess
import time
import xml.etree.ElementTree

from sealed_log import edited_log
from program import BINARY, ProgramTest, TINY, INCONCLUSIVE, INTERRUPTED, INVALID, PASS, USAGE, in_one_line

LADDER = ("ladder", "small.toml", "--parameters", "0.008", "0.016", "0.03", "--tokens-per-parameter",
          "0.2", "--seeds", "4")
STRESS = ("stress", "small.toml", "--mode", "plain", "--mode", "aligned_gates", "--seeds", "2")


class Studies(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.write("small.toml", TINY + '[arms.null]\nrecipe = "bf16"\nperturb = "one_ulp"\n')

    def result_of(self, folder, kind):
        """The study's JSON; its picture must be one."""
        xml.etree.ElementTree.parse(self.folder / folder / f"{kind}.svg")
        found = json.loads((self.folder / folder / f"{kind}.json").read_text())
        self.assert_documented(f"{kind}.json", found)
        return found

    def logs(self, folder):
        return {path.relative_to(self.folder / folder): path.stat().st_mtime_ns
                for path in (self.folder / folder).rglob("*.h5")}

    def test_a_ladder_is_trained_once_and_judged_again(self):
        result = self.run_isoloss(*LADDER, "--out", "whole")
        self.assertIn(result.returncode, (PASS, INCONCLUSIVE), result.stderr)
        self.assertIn("16B@50B", result.stdout)
        self.assertIn("3 arms x 4 seeds", result.stderr)
        found = self.result_of("whole", "ladder")
        self.assertEqual([arm["role"] for arm in found["arms"]], ["candidate", "null"])
        for arm in found["arms"]:
            self.assertEqual([len(cell["gaps_nats"]) for cell in arm["cells"]], [4, 4, 4])
            self.assertEqual([size["name"] for size in arm["sizes"]], ["16B@50B", "671B@14.8T"])
        logs = self.logs("whole")
        self.assertEqual(len(logs), 3 * 3 * 4)

        again = self.run_isoloss(*LADDER, "--out", "whole")

        self.assertEqual(again.stdout, result.stdout)
        self.assertEqual(self.logs("whole"), logs)
        fewer = (*LADDER[:-1], "3", "--out", "whole", "--no-train", "--json")
        arms = json.loads(self.run_isoloss(*fewer).stdout)["arms"]
        self.assertEqual({len(cell["gaps_nats"]) for arm in arms for cell in arm["cells"]}, {3})
        # What diverges in both arms is no ladder without a gap.
        shutil.copytree(self.folder / "whole", self.folder / "fallen")
        for path in (self.folder / "fallen").rglob("*.h5"):
            with edited_log(path) as log:
                losses = log["steps/loss_nats"]
                losses[len(losses) // 2:] = 9.0
        fallen = json.loads(self.run_isoloss(*LADDER, "--out", "fallen", "--no-train", "--json").stdout)
        for arm in fallen["arms"]:
            self.assertNotIn("safe", [size["verdict"] for size in arm["sizes"]])
            self.assertIn("4 of 4 seeds diverged, and 4 of the baseline", " ".join(arm["doubts"]))
        # A damaged log is no run that is there.
        next((self.folder / "whole").rglob("*.h5")).write_bytes(b"no log")
        self.assert_refused(self.run_isoloss(*LADDER, "--out", "whole", "--no-train"), ".h5")

    def test_parts_make_the_same_ladder(self):
        for part in ("1/2", "2/2"):
            result = self.run_isoloss(*LADDER, "--out", "parts", "--part", part)
            self.assertEqual(result.returncode, PASS, result.stderr)
            self.assertIn("without --part", result.stderr)
        self.assertFalse((self.folder / "parts" / "ladder.json").exists())
        judged = self.run_isoloss(*LADDER, "--out", "parts", "--no-train", "--json")
        whole = self.run_isoloss(*LADDER, "--out", "together", "--json")
        self.assertEqual(json.loads(judged.stdout), json.loads(whole.stdout))

    def test_an_interrupted_study_is_judged_as_far_as_it_is_and_goes_on(self):
        long = [*LADDER, "--set", "train.sequences_per_batch=1", "--out"]
        long[long.index("0.03")] = "0.1"
        with subprocess.Popen([BINARY, *long, "cut"], cwd=self.folder, stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE) as process:
            while process.poll() is None and len(self.logs("cut")) < 3:
                time.sleep(0.001)
            process.send_signal(signal.SIGINT)
            _, message = process.communicate(timeout=60)
        self.assertEqual(process.returncode, INTERRUPTED, message)
        self.assertIn(b"--no-train", message)

        result = self.run_isoloss(*long, "cut", "--no-train")
        self.assertIn(result.returncode, (PASS, INCONCLUSIVE), result.stderr)

        whole = self.run_isoloss(*long, "uncut", "--json")
        cut = self.run_isoloss(*long, "cut", "--json")
        self.assertEqual(json.loads(cut.stdout), json.loads(whole.stdout))

    def test_one_size_has_sixteen_times_the_batch(self):
        # 20,000 tokens of 19 tokens a step are the first 1,024 steps or more; 64 is the least with 16 times the batch.
        ladder = (*LADDER[:2], "--parameters", "0.008", "0.016", "--tokens-per-parameter", "0.2", "2.5", "--seeds",
                  "2", "--set", "train.sequences_per_batch=1", "--out", "batch")
        dry = self.run_isoloss(*ladder, "--dry-run")
        self.assertRegex(dry.stdout, r"\n8K-2.5 .*\n8K-2.5-batch16 .*\n16K-2.5 ")
        steps = {line.split()[0]: int(line.split()[4]) for line in dry.stdout.splitlines()[1:6]}
        self.assertEqual(steps["8K-2.5-batch16"], -(-steps["8K-2.5"] // 16))

        result = self.run_isoloss(*ladder)

        self.assertIn("minus 8K-2.5:", result.stdout)
        found = self.result_of("batch", "ladder")
        for arm in found["arms"]:
            self.assertEqual([cell["name"] for cell in arm["cells"]], ["8K-0.2", "16K-0.2", "8K-2.5", "16K-2.5"])
            self.assertEqual((arm["large_batch"]["name"], arm["large_batch"]["twin"]), ("8K-2.5-batch16", "8K-2.5"))
            self.assertLess(arm["cells"][0]["active_parameters"], arm["cells"][0]["parameters"])
        logs = self.logs("batch")
        self.assertEqual(len(logs), 5 * 3 * 2)
        self.assertEqual(self.run_isoloss(*ladder).stdout, result.stdout)
        self.assertEqual(self.logs("batch"), logs)
        next(path for path in (self.folder / "batch").rglob("*.h5") if "batch16" in str(path)).unlink()
        self.assertIn("8K-2.5-batch16: 1 of 2 seeds are not trained yet",
                      in_one_line(self.run_isoloss(*ladder, "--no-train").stdout))

    def test_nothing_is_judged_where_nothing_is(self):
        for command in (LADDER, STRESS):
            result = self.run_isoloss(*command, "--out", "none", "--no-train")
            self.assert_refused(result, "none", "without --no-train")
            self.assertFalse((self.folder / "none").exists())

    def test_what_a_kill_left_before_the_plan_is_removed(self):
        ended = subprocess.Popen(["true"])
        ended.wait()
        self.write(f"killed/.plan.toml.{ended.pid}-0.tmp", "half of a plan")
        result = self.run_isoloss(*LADDER, "--out", "killed", "--no-train")
        self.assert_refused(result, "without --no-train")
        self.assertEqual(list((self.folder / "killed").iterdir()), [])

    def test_what_is_missing_is_said(self):
        self.run_isoloss(*LADDER, "--out", "holes", "--part", "1/4")
        result = self.run_isoloss(*LADDER, "--out", "holes", "--no-train")
        self.assertEqual(result.returncode, INCONCLUSIVE, result.stderr)
        self.assertIn("a line takes 3", in_one_line(result.stdout))

    def test_sizes_that_a_budget_does_not_hold_are_left_out_and_stay_so(self):
        narrow = (*LADDER[:2], "--parameters", "0.008", "3", "--tokens-per-parameter", "0.2",
                  "--seeds", "2", "--out", "narrow")
        first = self.run_isoloss(*narrow, "--budget", "0.3")
        self.assertIn("2 of 3 sizes are left out", in_one_line(first.stderr))
        second = self.run_isoloss(*narrow)
        self.assertIn("as they were when this ladder began", in_one_line(second.stderr))
        self.assertEqual(len(list((self.folder / "narrow" / "cells").iterdir())), 1)

    def test_stress_is_a_map(self):
        result = self.run_isoloss(*STRESS, "--out", "stress")
        self.assertIn(result.returncode, (PASS, INCONCLUSIVE), result.stderr)
        self.assertIn("is not told apart from mxfp8 in any mode", in_one_line(result.stdout))
        found = self.result_of("stress", "stress")
        self.assertEqual(found["reference"], "mxfp8")
        self.assertEqual({(result["mode"], result["arm"]) for result in found["results"]},
                         {(mode, arm) for mode in ("plain", "aligned_gates")
                          for arm in ("bf16", "mxfp8", "null", "mxfp8_floor", "mxfp8_e5m2_grads",
                                      "mxfp4_floor", "deepseek_v3_fp8_block_grads")})
        shutil.rmtree(self.folder / "stress" / "cells" / "aligned_gates")
        result = self.run_isoloss(*STRESS, "--out", "stress", "--no-train")
        self.assertIn("No finished run of aligned_gates is there.", in_one_line(result.stdout))

    def test_errors_at_real_width_are_held_against_a_prediction(self):
        for width in (16, 24, 32, 64):
            result = self.run_isoloss("run", "tiny.toml", "--set", f"model.dim={width}", "--set",
                                      "train.steps=2", "--out", f"width/{width}")
            self.assertEqual(result.returncode, PASS, result.stderr)
        folders = [f"width/{width}" for width in (16, 24, 32, 64)]

        result = self.run_isoloss("widths", *folders, "--arm", "mxfp8", "--out", "width")

        self.assertEqual(result.returncode, PASS, result.stderr)
        self.assertIn("95 % prediction intervals at width 64", in_one_line(result.stdout))
        found = self.result_of("width", "widths")
        self.assertEqual((found["width"], found["small_widths"]), (64, [16, 24, 32]))
        names = [operand["name"] for operand in found["operands"]]
        self.assertIn("moe.routed_experts.w2_activation", names)
        as_json = self.run_isoloss("widths", *folders, "--arm", "mxfp8", "--json")
        self.assertEqual(json.loads(as_json.stdout), found)
        self.assert_refused(self.run_isoloss("widths", *folders), "--arm")
        self.assert_refused(self.run_isoloss("widths", *folders, "--arm", "fp4"), "fp4")
        self.assert_refused(self.run_isoloss("widths", *folders, "--arm", "bf16"), "quantise")
        self.assert_refused(self.run_isoloss("widths", *folders[2:], "--arm", "mxfp8"), "number of widths is 1")

    def test_a_dry_run_writes_nothing(self):
        for command in (LADDER, STRESS):
            result = self.run_isoloss(*command, "--out", "dry", "--dry-run")
            self.assertEqual(result.returncode, PASS, result.stderr)
            self.assertRegex(result.stdout, r"of each, in all: [\d.]+ (s|min)\.\n")
            self.assertFalse((self.folder / "dry").exists())

    def test_a_folder_holds_one_study(self):
        self.run_isoloss(*STRESS, "--out", "one", "--part", "1/2")
        for command in (LADDER, (*STRESS, "--set", "train.lr=0.002")):
            self.assert_refused(self.run_isoloss(*command, "--out", "one"), "one", "--out")

    def test_wrong_options_are_refused(self):
        for options, words in ((("--at", "7B"), ["7B", "16B@50B"]),
                               (("--at", "16B@0"), ["16B@0"]),
                               (("--parameters", "1e-5"), ["parameters", "fifth"]),
                               (("--parameters", "0.008", "0.008"), ["--parameters", "once"]),
                               (("--part", "3/2"), ["3/2", "K/N"]),
                               (("--part", "1/9"), ["9 parts", "4"]),
                               (("--budget", "1e-6"), ["--budget"])):
            with self.subTest(options=options):
                self.assert_refused(self.run_isoloss(*LADDER[:2], "--seeds", "4", *options,
                                                     "--out", "wrong"), *words)
                self.assertFalse((self.folder / "wrong").exists())
        self.assert_refused(self.run_isoloss("stress", "small.toml", "--mode", "lr_11"), "lr_11", "lr_10")
        self.assert_refused(self.run_isoloss("stress", "small.toml", "--mode", "deep", "--mode", "deep"),
                            "deep", "once")
        self.assert_refused(self.run_isoloss("ladder", "small.toml", "--at", "16B", "--at", "16B@50B"),
                            "16B@50B", "once")
        for options in (("--margin", "0"), ("--tokens-per-parameter", "0"), ("--parameters", "-1")):
            self.assert_refused(self.run_isoloss(*LADDER[:2], *options), options[0], code=USAGE)
        for command in ("ladder", "stress"):
            self.assertEqual(self.run_isoloss(command, "small.toml", "--seeds", "1").returncode, USAGE)
            self.assertEqual(self.run_isoloss(command, "small.toml", "--no-train", "--part",
                                              "1/2").returncode, USAGE)
            self.assertEqual(self.run_isoloss(command, "none.toml").returncode, INVALID)
