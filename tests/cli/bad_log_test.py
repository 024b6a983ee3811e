"""Logs that can't be read or compared are exit code 3, whatever they hold."""

import shutil

from program import ProgramTest, INVALID


class BadLog(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.logs = cls.make_logs("logs")

    def gate(self, *logs, options=()):
        return self.run_isoloss("gate", *logs, "--out", "verdict", *options)

    def arm(self, name, logs=None):
        return [log for run, log in sorted((logs or self.logs).items())
                if run.startswith(name)]

    def assert_invalid(self, result, *words):
        """A report whose verdict is INVALID."""
        self.assertEqual(result.returncode, INVALID, result.stderr)
        self.assertIn(result.stderr, ("", "isoloss: results are in verdict: verdict.json, "
                          "report.html.\n"))
        text = " ".join(result.stdout.split())
        for word in (*words, "(exit code 3)"):
            self.assertIn(word, text)

    def test_a_log_cut_off_anywhere(self):
        whole = self.logs["mxfp8-seed1"].read_bytes()
        cut = self.folder / "cut.h5"
        for size in (0, 1, 8, 100, 1000, len(whole) // 2, len(whole) - 1):
            cut.write_bytes(whole[:size])
            others = [log for log in self.logs.values()
                      if log != self.logs["mxfp8-seed1"]]
            for command in (["show", cut], ["compare", others[0], cut],
                            ["gate", *others, cut]):
                with self.subTest(size=size, command=command[0]):
                    result = self.run_isoloss(*command)

                    self.assert_refused(result, str(cut))

    def test_what_is_no_log(self):
        for path, words in (("tiny.toml", ["training log"]),
                            ("missing.h5", ["No such file"]),
                            (".", ["cut.h5", "trailer"]),
                            ("/dev/null", ["device"])):
            for command in (["show", path], ["compare", path, path],
                            ["gate", path]):
                with self.subTest(path=path, command=command[0]):
                    result = self.run_isoloss(*command)

                    self.assert_refused(result, path, *words)

    def test_logs_of_another_experiment(self):
        others = self.make_logs("other", "name=other")

        result = self.gate(*self.arm("bf16"), *self.arm("mxfp8", others))

        self.assert_invalid(result, "experiment_name", "'other'", "'tiny'")

    def test_logs_of_another_configuration(self):
        others = self.make_logs("lr", "train.lr=0.002")

        result = self.gate(*self.arm("bf16"), *self.arm("mxfp8", others))

        self.assert_invalid(result, "config_digest")

    def test_logs_on_another_text(self):
        # The same sizes, so that only the digest of the text tells them apart.
        experiment = self.tiny.read_text()
        tokens = self.write("tokens.toml", experiment.replace(
            'source = "synthetic"', 'source = "tokens"\npaths = ["t.bin"]')
            .replace("noise_levels = 4\ntokens = 4000\n", ""))
        logs = []
        for folder, last in (("one", b"\1\0"), ("two", b"\2\0")):
            text = b"".join(bytes([i * i % 11, 0]) for i in range(3999))
            (self.folder / "t.bin").write_bytes(text + last)
            result = self.run_isoloss("run", tokens, "--out", folder)
            self.assertEqual(result.returncode, 0, result.stderr)
            logs.append({log.stem: log
                         for log in (self.folder / folder).glob("*.h5")})

        result = self.gate(*self.arm("bf16", logs[0]),
                           *self.arm("mxfp8", logs[1]))

        self.assert_invalid(result, "corpus_digest")

    def test_one_arm_only(self):
        for arm, words in (("bf16", ["all of arm `bf16`", "second arm"]),
                           ("mxfp8", ["none of the baseline `bf16`"])):
            with self.subTest(arm=arm):
                self.assert_refused(self.gate(*self.arm(arm)), *words)

    def test_a_baseline_that_no_log_has(self):
        result = self.gate(*self.logs.values(), options=["--baseline", "bf61"])

        self.assert_refused(result, "`bf61`", "Did you mean `bf16`?")

    def test_a_missing_seed_and_a_seed_given_twice(self):
        copy = self.folder / "copy.h5"
        shutil.copy(self.logs["mxfp8-seed1"], copy)
        all_logs = list(self.logs.values())

        missing = self.gate(*self.arm("bf16"), self.logs["mxfp8-seed1"])
        twice = self.gate(*all_logs, copy)
        same_file = self.gate(*all_logs, all_logs[0])

        for result in (missing, twice, same_file):
            self.assert_invalid(result, "(L0 seeds)", "exactly one run")
