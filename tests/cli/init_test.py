"""isoloss init writes an experiment file that verify takes as it is, and harms no file."""

import array
import json
import os
import re
import shlex
import tomllib

from program import INVALID, PASS, USAGE, ProgramTest
from terminal import on_terminal

# 90 kB of words: dsv3-nano needs 28445 bytes for its fewest steps.
WORDS = " ".join(f"word{n * n % 997} {n}" for n in range(8000))[:90_000]


# Minutes that no machine needs: sizes depend on the text alone.
class Init(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.write("text/a.txt", WORDS)
        cls.result = cls.run_isoloss("init", "text", "--budget", "1e5", "--no-pilot", "--name", "trial")
        if cls.result.returncode != PASS:
            raise AssertionError(cls.result.stderr)
        cls.text = (cls.folder / "trial.toml").read_text()

    def init(self, *arguments):
        """The JSON object of a call that must work."""
        result = self.run_isoloss("init", *arguments, "--json")
        self.assertEqual(result.returncode, PASS, result.stderr)
        return json.loads(result.stdout)

    def test_it_says_what_it_costs_and_what_is_next(self):
        shown = self.result.stdout
        for words in ("wrote      trial.toml", "81000 tokens to train on, 9000 held out",
                      "4 arms x", "on this machine: training", "the oracle", "GFLOP/s",
                      "just now", "at least", "of logs", "The text is short",
                      "The learning rate is not tuned", "`isoloss study controls trial.toml --write`"):
            self.assertIn(words, re.sub(r"\n {13}", " ", shown))
        self.assertTrue(shown.endswith("\nNext:\n  isoloss verify trial.toml --dry-run\n"
                                       "  isoloss verify trial.toml\n"), shown)
        for line in shown.splitlines():
            self.assertLessEqual(len(line), 80, line)

    def test_a_text_is_read_at_most_four_times(self):
        steps = int(re.search(r"(?m)^steps = (\d+)$", self.text)[1])
        self.assertGreaterEqual(steps, 100)
        self.assertLessEqual(steps * 1024, 4 * 81_000)

    def test_what_it_says_is_what_the_dry_run_says(self):
        dry = self.run_isoloss("verify", "trial.toml", "--dry-run")

        self.assertEqual(dry.returncode, PASS, dry.stderr)
        for words in ("[arms.null]", "[arms.control]", "perturb = \"one_ulp\"",
                      "control = \"control\""):
            self.assertIn(words, dry.stdout)
        for what in ("memory", "disk"):
            said = re.search(rf"(?m)^  {what} +(.*)$", self.result.stdout)[1]
            self.assertIn(said, dry.stdout)

    def test_verify_takes_the_file_and_gives_a_verdict_of_all_arms(self):
        small = ("train.steps=6", "train.warmup_steps=2", "train.seeds=[1,2]", "model.dim=24",
                 "model.dense_hidden_dim=40", "train.sequences_per_batch=2", "log.eval_every=6",
                 "data.sequence_length=32", "log.eval_sequences=4")
        result = self.run_isoloss("verify", "trial.toml", "--no-oracle", "--out", "verified",
                                  *(f"--set={setting}" for setting in small))

        self.assertNotIn(result.returncode, (USAGE, INVALID), result.stderr)
        self.assertIn("mxfp8_rceil against bf16", result.stdout)
        logs = {path.name for path in (self.folder / "verified").glob("*.h5")}
        self.assertEqual(logs, {f"{arm}-seed{seed}.h5" for seed in (1, 2) for arm in
                                ("bf16", "mxfp8_rceil", "null", "control")})

    def test_the_power_of_its_plan_is_that_of_the_dry_run(self):
        made = self.init("text", "--budget", "1e5", "--no-pilot", "--out", "m.toml", "--margin", "0.1")
        text = (self.folder / "m.toml").read_text()
        dry = self.run_isoloss("verify", "m.toml", "--dry-run")

        self.assertEqual((made["margin_percent"], made["spread_measured"]), (0.1, False))
        self.assertIn("margin_percent = 0.1\n", text)
        self.assertIn(f"spread_percent = {made['spread_percent']:g}\n", text)
        # 24 seeds are the most: two equal recipes are not told from different ones by a tenth of a percent.
        self.assertLess(made["power"], 0.8)
        self.assertTrue(any("--margin 0." in note for note in made["notes"]), made["notes"])
        shown = re.sub(r"\n# +", " ", dry.stdout)
        self.assertIn(f"pass with probability {made['power']:.2f} (24 seed pairs, margin 0.1 %", shown)
        wider = re.sub(r"\n# +", " ", self.run_isoloss("verify", "m.toml", "--dry-run", "--margin", "0.5").stdout)
        self.assertIn("pass with probability above 0.95 (24 seed pairs, margin 0.5 %", wider)
        unknown = re.sub(r"\n# +", " ", self.run_isoloss("verify", "tiny.toml", "--dry-run").stdout)
        self.assertIn("unknown without gate.spread_percent", unknown)

    def test_a_sweep_tunes_the_rate_that_the_verdict_rests_on(self):
        self.write("brief.txt", WORDS[:29_000])  # read four times in 100 steps, the fewest

        result = self.run_isoloss("init", "brief.txt", "--budget", "1e5", "--out", "tuned.toml", "--json")

        self.assertEqual(result.returncode, PASS, result.stderr)
        made = json.loads(result.stdout)
        self.assertTrue(made["spread_measured"])
        self.assertFalse([note for note in made["notes"] if "not tuned" in note])
        written = tomllib.loads((self.folder / "tuned.toml").read_text())
        tuning = written["tuning"]
        best = min(zip(tuning["held_out"], tuning["rates"]))[1]
        self.assertEqual(written["train"]["lr"], best)
        self.assertRegex(result.stderr, r"control: 7 arms x 2 seeds of \d+ steps")
        # Chance says whether some part does about the margin. The note stands where none does.
        parts = [arm for arm in written["arms"] if arm.startswith("control_")]
        noted = any("study controls" in note for note in made["notes"])
        self.assertEqual(written["gate"]["control"], "control" if noted else [*parts, "control"])
        for part in parts:
            self.assertTrue(written["arms"][part]["include"])
        result = self.run_isoloss("verify", "tuned.toml", "--no-oracle", "--set", "train.seeds=[1,2]",
                                  "--out", "tuned")
        self.assertNotIn(result.returncode, (USAGE, INVALID), result.stderr)
        verdict = json.loads((self.folder / "tuned/verdict.json").read_text())
        checks = {check["name"]: check["outcome"] for check in verdict["checks"]}
        # A FAIL of chance would leave the rate unjudged.
        self.assertTrue(verdict["outcome"] == "FAIL" or checks["tuning"] == "PASS", checks)

    def test_no_file_is_replaced(self):
        os.symlink("nowhere", self.folder / "dangling.toml")
        (self.folder / "folder.toml").mkdir()
        before = self.text
        for out in ("trial.toml", "tiny.toml", "dangling.toml", "folder.toml"):
            with self.subTest(out=out):
                result = self.run_isoloss("init", "text", "--out", out)

                self.assert_refused(result, out, "is there already", "no file is replaced")
        self.assertEqual((self.folder / "trial.toml").read_text(), before)
        self.assertFalse((self.folder / "nowhere").exists())

    def test_hostile_names_are_quoted(self):
        name = "it's \"quoted\"\\ #[x] $(id) \u6f22"
        self.write(f"{name}/a.txt", WORDS)
        out = "-an 'odd' \"name\".toml"

        made = self.init(name, "--out=" + out, "--budget", "1e5", "--no-pilot")

        self.assertEqual([shlex.split(command)[2] for command in made["next"]], ["./" + out] * 2)
        dry = self.run_isoloss(*shlex.split(made["next"][0])[1:])
        self.assertEqual(dry.returncode, PASS, dry.stderr)

    def test_paths_hold_from_another_folder(self):
        (self.folder / "below").mkdir()
        made = self.init("text/a.txt", "--out", "below/e.toml", "--candidate", "mxfp4_floor",
                         "--budget", "1e5", "--no-pilot")

        self.assertEqual(made["arms"], ["bf16", "mxfp4_floor", "null"])
        text = (self.folder / "below/e.toml").read_text()
        self.assertIn(f'"{self.folder.resolve()}/text/a.txt"', text)
        self.assertNotIn("control =", text)

    def test_token_files_bring_their_vocabulary(self):
        tokens = array.array("H", (n * n % 300 for n in range(40_000)))
        (self.folder / "t.bin").write_bytes(tokens.tobytes())

        made = self.init("t.bin", "--tokens", "uint16", "--name", "tokens", "--budget", "1e5", "--no-pilot")

        self.assertEqual(made["corpus"]["training_tokens"], 36_000)
        text = (self.folder / "tokens.toml").read_text()
        self.assertIn(f"vocab_size = {max(tokens) + 1}\n", text)
        self.assertIn('token_type = "uint16"', text)
        as_bytes = self.run_isoloss("init", "t.bin", "--name", "bytes")
        self.assert_refused(as_bytes, "t.bin", "control characters", "--tokens uint16")

    def test_what_is_of_no_use_is_refused_and_nothing_is_left(self):
        self.write("empty.txt", "")
        self.write("short.txt", WORDS[:28_000])
        self.write("${HOME}/a.txt", WORDS)
        self.write("line\nbreak.txt", WORDS)
        os.mkfifo(self.folder / "pipe")
        self.addCleanup((self.folder / "pipe").unlink)
        before = sorted(self.folder.rglob("*"))
        for arguments, words in (
                (["pipe", "--tokens", "uint16"], ["pipe", "neither a file nor a folder"]),
                (["nowhere"], ["nowhere", "No such file", "Give files or folders"]),
                (["empty.txt"], ["0 tokens"]),
                (["short.txt"], ["holds 28000 tokens", "need 28445", "Give more text"]),
                (["${HOME}/a.txt"], ["${HOME}", "variable"]),
                (["line\nbreak.txt"], [r"line\nbreak.txt", "control characters"]),
                (["text", "--candidate", "bf16"], ["--candidate bf16", "baseline"]),
                (["text", "--candidate", "mxfp8_rciel"], ["mxfp8_rceil"]),
                (["text", "--preset", "nano"], ["dsv3-nano"]),
                (["text", "--name", "../up"], ["../up", "letters"]),
                (["text", "--out", "no/where.toml"], ["no/where.toml", "Make the folder"]),
                (["text", "--budget", "0.1", "--preset", "torchtitan-debug"], ["--budget 0.1", "100 steps of 4 seeds", "Give --budget", "--preset dsv3-nano"]),
                (["text/a.txt", "--tokens", "uint32"], ["text/a.txt", "--tokens"])):
            with self.subTest(arguments=arguments):
                result = self.run_isoloss("init", *arguments)

                self.assert_refused(result, *words)
                self.assertEqual(sorted(self.folder.rglob("*")), before)

    def test_an_unreadable_text_is_refused(self):
        closed = self.write("closed.txt", WORDS)
        closed.chmod(0)
        self.folder.chmod(0o777)
        with self.unprivileged() as options:
            result = self.run_isoloss("init", "closed.txt", **options)
        closed.unlink()

        self.assert_refused(result, "closed.txt", "Permission denied")

    def test_it_fits_narrow_terminals(self):
        shown = on_terminal(self.folder, ["init", "text", "--name", "narrow", "--budget", "1e5", "--no-pilot"],
                            60)
        for line in shown.splitlines():
            self.assertLessEqual(len(line), 60, line)
