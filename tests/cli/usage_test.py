"""Command lines: help for all, one message for what is wrong."""

from program import ProgramTest, INVALID, PASS, USAGE

COMMANDS = ("verify", "run", "gate", "compare", "show", "watch", "export")


class Usage(ProgramTest):
    def test_help_of_each_command_has_an_example_and_the_exit_codes(self):
        for command in COMMANDS:
            with self.subTest(command=command):
                result = self.run_isoloss(command, "--help")

                self.assertEqual(result.returncode, PASS)
                self.assertEqual(result.stderr, "")
                self.assertIn(f"Example:\n  isoloss {command} ", result.stdout)
                for code in ("0 pass", "1 fail", "2 usage", "3 invalid",
                             "4 inconclusive", "5 internal", "130 interrupted"):
                    self.assertIn(code, result.stdout)

    def test_help_of_the_program_lists_every_command(self):
        result = self.run_isoloss("--help")

        self.assertEqual(result.returncode, PASS)
        for command in COMMANDS:
            self.assertIn(f"\n  {command} ", result.stdout)

    def test_wrong_arguments_are_usage_errors(self):
        for arguments, words in (
                ((), ["isoloss --help"]),
                (("veriyf", "tiny.toml"),
                 ["`veriyf`", *COMMANDS, "Did you mean `verify`?"]),
                (("--frobnicate",), ["--frobnicate"]),
                (("verify",), ["experiment", "isoloss verify --help"]),
                (("verify", "tiny.toml", "--frobnicate"), ["--frobnicate"]),
                (("verify", "tiny.toml", "again.toml"), ["again.toml"]),
                (("verify", "tiny.toml", "--out"), ["--out"]),
                (("run", "tiny.toml", "--set"), ["--set"]),
                (("gate",), ["logs"]),
                (("compare", "one.h5"), ["logs", "2"]),
                (("compare", "1.h5", "2.h5", "3.h5"), ["logs", "3"]),
                (("show",), ["log", "isoloss show --help"])):
            with self.subTest(arguments=arguments):
                result = self.run_isoloss(*arguments)

                self.assert_refused(result, *words, code=USAGE)

    def test_a_kernel_that_is_not_there_is_named_with_those_that_are(self):
        result = self.run_isoloss(
            "run", "tiny.toml", "--out", "out",
            environment={"ISOLOSS_FORCE_KERNEL": "mmx"})

        self.assert_refused(result, "ISOLOSS_FORCE_KERNEL", "`mmx`", "scalar",
                            code=INVALID)
        self.assert_no_files("out")
