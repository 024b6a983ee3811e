"""Command lines: help for all, one message for what is wrong."""

import pathlib
import re
import shlex
import subprocess

from program import BINARY, ProgramTest, INVALID, PASS, USAGE
from terminal import on_terminal

SOURCE = pathlib.Path(__file__).resolve().parents[2]

COMMANDS = ("verify", "gate", "compare", "check-tensors", "certify", "layouts", "golden", "init", "run", "submit", "watch", "show",
            "report", "import", "study", "lab")

# Types of values that a shell can complete, or that are free text.
TEXTS = ("TEXT", "PATTERN", "FILE", "FOLDER", "TOML", "HDF5", "LOG", "JSON", "RECIPE", "FORMAT",
         "PRESET", "KEY=VALUE", "K/N", "RUNS")

# No value of any option is longer in a message.
LONGEST = 400


def commands_in(help_text):
    """Names of the sub-commands that a help lists, group by group."""
    groups = re.findall(r"^(\w+):\n((?:  .*\n)+)", help_text, re.MULTILINE)
    return [name for title, listed in groups if title not in ("Options", "Positionals", "Example")
            for name in re.findall(r"^  ([a-z][\w-]*)", listed, re.MULTILINE)]


def options_in(help_text):
    """(name, type, what is said) of each option in a help."""
    listed = help_text.partition("\nOptions:\n")[2].split("\n\n")[0]
    entries = re.split(r"^  (?=-)", listed, flags=re.MULTILINE)[1:]
    for entry in entries:
        name, _, rest = entry.partition("\n")
        name, *text = re.split(r"\s{2,}", name, maxsplit=1)
        words = name.split(" ")
        said = " ".join([*text, rest]).split()
        yield words[0].split(",")[-1], words[1:], " ".join(said)


class Usage(ProgramTest):
    def help_of(self, *command):
        result = self.run_isoloss(*command, "--help")
        self.assertEqual(result.returncode, PASS, result.stderr)
        self.assertEqual(result.stderr, "")
        return result.stdout

    def all_commands(self, *above):
        """Each command and sub-command with its help."""
        for name in commands_in(self.help_of(*above)):
            yield (*above, name), self.help_of(*above, name)
            yield from self.all_commands(*above, name)

    def test_help_of_the_program_lists_every_command(self):
        text = self.help_of()
        self.assertEqual(tuple(commands_in(text)), COMMANDS)
        for name in COMMANDS:
            self.assertRegex(text, rf"(?m)^  {name} +[A-Z].*\n(  \w|\n)")  # in one line

    def test_a_command_that_lacks_its_sub_command_lists_them(self):
        for command in ((), ("study",), ("lab",), ("golden",), ("lab", "ensemble")):
            with self.subTest(command=command):
                result = subprocess.run([BINARY, *command], capture_output=True, text=True, check=False)
                self.assertEqual((result.returncode, result.stdout, result.stderr.strip()),
                                 (USAGE, "", self.help_of(*command).strip()))

    def test_help_is_a_command_too(self):
        for command in ((), ("run",), ("ladder",), ("golden", "check")):
            result = self.run_isoloss("help", *command)
            self.assertEqual((result.returncode, result.stdout), (PASS, self.help_of(*command)))

    def test_former_names_of_moved_commands_work(self):
        moved = [(above, name) for above in ("study", "lab") for name in commands_in(self.help_of(above))]
        self.assertEqual(len(moved), 15)
        for above, name in moved:
            self.assertEqual(self.help_of(name), self.help_of(above, name))

    def test_options_that_submit_gives_are_not_in_help(self):
        for command in (("verify",), ("study", "ladder")):
            self.assertNotIn("--only", self.help_of(*command))
            # Nor as nameless options that others exclude.
            self.assertNotRegex(self.help_of(*command), r"with\s+,|,\s+,")
            result = self.run_isoloss(*command, "tiny.toml", "--only", "a", "--list-runs", "b.json")
            self.assert_refused(result, "exclude each other", code=USAGE)

    def test_help_of_each_command_ends_with_the_exit_codes(self):
        for command, text in self.all_commands():
            with self.subTest(command=command):
                for code in ("0 pass", "1 fail", "2 usage", "3 invalid",
                             "4 inconclusive", "5 internal", "130 interrupted"):
                    self.assertIn(code, text)

    def test_help_of_each_command_has_an_example_that_is_right_for_it(self):
        for command, text in self.all_commands():
            with self.subTest(command=command):
                example = text.partition("Example:\n")[2].split("\n\n")[0]
                words = shlex.split(example.replace("\\\n", " "))
                self.assertEqual(words[:1 + len(command)],
                                 ["isoloss", *command])
                for word in words:
                    if word.startswith(("experiments/", "golden/")):
                        self.assertTrue((SOURCE / word).exists(), word)
                # Whatever files it misses here, its words are understood.
                result = self.run_isoloss(*words[1:])

                self.assertNotEqual(result.returncode, USAGE, result.stderr)

    def test_help_is_no_wider_than_80_columns_or_the_terminal(self):
        for command, text in self.all_commands():
            with self.subTest(command=command):
                longest = max(text.splitlines(), key=len)
                self.assertLessEqual(len(longest), 80, longest)
        for columns in (50, 60, 100):  # a word in it has 41
            with self.subTest(columns=columns):
                shown = on_terminal(self.folder, ["verify", "--help"], columns)
                longest = max(shown.splitlines(), key=len)
                self.assertLessEqual(len(longest), columns, longest)

    def test_wrong_arguments_are_usage_errors(self):
        for arguments, words in (
                (("veriyf", "tiny.toml"),
                 ["`veriyf`", *COMMANDS, "Did you mean `verify`?"]),
                (("golden", "chekc"), ["`chekc`", "Did you mean `check`?"]),
                (("laddr",), ["`laddr`", "Did you mean `study ladder`?"]),
                (("--frobnicate",), ["--frobnicate"]),
                (("verify",), ["`experiment`", "isoloss verify --help"]),
                (("verify", "tiny.toml", "--frobnicate"), ["--frobnicate"]),
                (("verify", "tiny.toml", "again.toml"),
                 ["`again.toml`", "it takes experiment"]),
                (("verify", "tiny.toml", "--out"), ["`--out`", "takes 1"]),
                (("verify", "tiny.toml", "--no-oracle=5"), ["`--no-oracle`", "takes none"]),
                (("run", "tiny.toml", "--set"), ["`--set`", "takes 1"]),
                (("run", "tiny.toml", "--resume", "--restart"),
                 ["`--resume`", "`--restart`", "one of them"]),
                (("run", "tiny.toml", "--dump-steps", "1"),
                 ["`--dump-steps`", "without `--dump`"]),
                (("gate",), ["`logs`", "Run logs"]),
                (("compare", "one.h5"), ["`logs` has 1 value", "takes 2"]),
                (("compare", "1.h5", "2.h5", "3.h5"), ["`logs` has 3 values", "takes 2"]),
                (("show",), ["`logs`", "isoloss show --help"])):
            with self.subTest(arguments=arguments):
                result = self.run_isoloss(*arguments)

                self.assert_refused(result, *words, code=USAGE)
                self.assertLess(len(result.stderr), LONGEST)

    def test_an_unknown_option_comes_with_the_nearest_one(self):
        for arguments, meant in (
                (("run", "tiny.toml", "--resum"), "`--resume`?"),
                (("run", "--resum"), "`--resume`?"),  # before what is missing
                (("probe", "tiny.toml", "--stepz", "4"), "`--steps`?"),
                (("run", "--stepz", "4", "e.toml"), "`--set train.steps=...`?"),
                (("run", "e.toml", "--warmup=4"),
                 "`--set train.warmup_steps=...`?"),
                (("ensemble", "build", "e.toml", "--top-k", "4"),
                 "`--set model.top_k=...`?")):
            with self.subTest(arguments=arguments):
                result = self.run_isoloss(*arguments)

                self.assert_refused(result, "none of its options", meant,
                                    code=USAGE)

    def test_a_misspelt_option_of_any_command_comes_with_the_right_one(self):
        for command, text in self.all_commands():
            for name, _, _ in options_in(text):
                misspelt = name + "z"
                with self.subTest(command=command, option=misspelt):
                    result = self.run_isoloss(*command, misspelt)

                    self.assert_refused(result, f"`{misspelt}`",
                                        f"Did you mean `{name}`?", code=USAGE)

    def test_a_value_that_an_option_refuses_comes_with_its_rule(self):
        """Of every command, every number and every choice."""
        seen = 0
        for command, text in self.all_commands():
            for name, kind, said in options_in(text):
                rule = re.search(r"\[(\S+) to (\S+)\]", said)
                if kind and "|" in kind[0]:
                    bad, words = ["x", "9" * 400], [kind[0].split("|")[0]]
                elif rule:
                    bad = ["x", "nan", "-1e999", "1e999", "9" * 400, "1,x"]
                    words = [f"from {rule[1]} to {rule[2]}"]
                else:
                    self.assertTrue(not kind or kind[0] in TEXTS,
                                    f"{command} {name} {kind} has no rule")
                    continue
                seen += 1
                for value in bad:
                    with self.subTest(command=command, option=name,
                                      value=value[:9]):
                        result = self.run_isoloss(*command, f"{name}={value}")

                        self.assert_refused(result, f"`{name}`", "must be",
                                            *words, code=USAGE)
                        self.assertLess(len(result.stderr), LONGEST)
        # run, compare, parity, probe, show, watch, ensemble, export
        self.assertGreaterEqual(seen, 15)

    def test_a_kernel_that_is_not_there_is_named_with_those_that_are(self):
        result = self.run_isoloss(
            "run", "tiny.toml", "--out", "out",
            environment={"ISOLOSS_FORCE_KERNEL": "mmx"})

        self.assert_refused(result, "ISOLOSS_FORCE_KERNEL", "`mmx`", "scalar",
                            code=INVALID)
        self.assert_no_files("out")
