"""Completions are driven in the shells that they are for, and manual pages are set by groff and man.

What they offer is held against --help, which usage_test.py checks."""

import os
import pty
import re
import select
import shutil
import subprocess
import time

from program import BINARY, ENVIRONMENT, INVALID, PASS, USAGE, ProgramTest
from usage_test import commands_in, options_in

# tools/packages.txt has them: without one of them these tests fail.
SHELLS = ("bash", "zsh", "fish")
PATIENCE = 60

EXPORT_FORMATS = ["csv", "jsonl", "tensorboard", "wandb-csv", "wandb-jsonl",
                  "torchtitan"]


def names_in(help_text):
    """All options of a help, short ones too."""
    listed = help_text.partition("\nOptions:\n")[2].split("\n\n")[0]
    return {name for entry in re.findall(r"^  (-\S+)", listed, re.MULTILINE)
            for name in entry.split(",")}


def all_helps(test, *command):
    """Each command, a tuple of words, with its help; first the program's own."""
    text = test.run_isoloss(*command, "--help").stdout
    yield command, text
    for name in commands_in(text):
        yield from all_helps(test, *command, name)


class Scripts(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.scripts = {}
        for shell in SHELLS:
            script = cls.run_isoloss("completion", shell)
            if script.returncode != PASS:
                raise AssertionError(script.stderr)
            cls.scripts[shell] = cls.write(f"completion.{shell}", script.stdout)
        cls.write("text/one.toml", "")
        cls.write("text/two.h5", "")
        cls.write("text/three.journal", "")
        cls.write("text/a folder/four.toml", "")
        cls.helps = dict(all_helps(cls))

    def run_shell(self, shell, script, *arguments):
        """What a script prints that has read the completion; it may complain of nothing."""
        done = subprocess.run(
            [shell, *{"bash": ["--norc"], "zsh": ["-f"], "fish": ["--no-config"]}[shell], "-c",
             script, *arguments], cwd=self.folder / "text", stdin=subprocess.DEVNULL,
            capture_output=True, encoding="utf-8", timeout=PATIENCE, check=False,
            env={**ENVIRONMENT, "HOME": str(self.folder)})
        self.assertEqual((done.returncode, done.stderr), (0, ""), script)
        return done.stdout

    def test_the_shells_are_there(self):
        for shell in (*SHELLS, "groff", "man"):
            self.assertIsNotNone(shutil.which(shell), f"{shell} is in tools/packages.txt")

    def test_syntax_is_right(self):
        for shell in SHELLS:
            with self.subTest(shell=shell):
                done = subprocess.run([shell, "-n", self.scripts[shell]], capture_output=True,
                                      encoding="utf-8", check=False)
                self.assertEqual((done.returncode, done.stdout + done.stderr), (0, ""))

    def bash(self, *words):
        """What bash offers for the last of these words."""
        return self.run_shell("bash", f"""
            source {self.scripts["bash"]}
            COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
            $(complete -p isoloss | sed 's/.*-F \\([^ ]*\\).*/\\1/')  # what readline would call
            printf '%s\\n' "${{COMPREPLY[@]}}" """, "bash", "isoloss", *words).split("\n")[:-1]

    def fish(self, *words):
        line = " ".join(["isoloss", *words])
        shown = self.run_shell("fish", f"source {self.scripts['fish']}; complete -C '{line}'")
        return [offer.partition("\t")[0] for offer in shown.splitlines()]

    def zsh_arguments(self, *command):
        """What the function of a command hands to _arguments."""
        return self.run_shell("zsh", f"""
            compdef() {{ }}; _describe() {{ print -rl -- "${{(@P)4}}" }}
            _arguments() {{ print -rl -- "$@"; state=command }}
            source {self.scripts["zsh"]}
            _isoloss{"".join("_" + word for word in command)}""").splitlines()

    def test_every_option_of_every_command_is_offered(self):
        for command, text in self.helps.items():
            expected = names_in(text)
            self.assertIn("--help", expected)
            long = {name for name in expected if name.startswith("--")}
            with self.subTest(command=command):
                self.assertEqual(set(self.bash(*command, "-")), expected)
                self.assertEqual(set(self.fish(*command, "--")), long)
                self.assertEqual({re.match(r"\*?(-[\w-]*)", line)[1]
                                  for line in self.zsh_arguments(*command)
                                  if re.match(r"\*?-", line) and line != "-C"}, expected)

    def test_every_command_is_offered(self):
        for command, text in self.helps.items():
            names = commands_in(text)
            if not names:
                continue
            with self.subTest(command=command):
                self.assertEqual(self.bash(*command, ""), names)
                self.assertEqual(set(self.fish(*command, "")), set(names))
                self.assertEqual([line.partition(":")[0] for line in self.zsh_arguments(*command)
                                  if re.match(r"[\w-]+:", line)][-len(names):], names)

    def test_values_are_offered(self):
        for words, expected in (
                (["lab", "export", "--format", ""], EXPORT_FORMATS),
                (["lab", "export", "log.h5", "--format", "j"], ["jsonl"]),
                (["lab", "completion", ""], ["bash", "zsh", "fish"]),
                (["lab", "recipes", "te_n"], ["te_nvfp4"]),
                (["lab", "formats", "e4"], ["e4m3"]),
                (["run", "--mutant", "scale_f"], ["scale_floor"]),
                (["golden", "check", "--mutant", "scale_f"], ["scale_floor"]),
                (["verify", "--set", "train.ste"], ["train.steps="]),
                (["verify", "--seeds", ""], [])):
            with self.subTest(words=words):
                self.assertEqual(self.bash(*words), expected or [""])
                self.assertEqual(self.fish(*words), sorted(expected))

    def test_files_are_those_that_a_command_reads(self):
        for words, expected in (
                (["verify", ""], ["a folder", "one.toml"]),
                (["verify", "one.toml", ""], [""]),  # it takes one
                (["verify", "--policy", "o"], ["one.toml"]),
                (["verify", "--against", "two.h5", ""], ["a folder", "three.journal", "two.h5"]),
                (["show", "two.h5", ""], ["a folder", "three.journal", "two.h5"]),
                (["golden", "check", ""], ["a folder"]),
                (["verify", "one.toml", "--out", ""], ["a folder"])):
            with self.subTest(words=words):
                self.assertEqual(sorted(self.bash(*words)), expected)

    def test_bash_splits_at_equals_signs(self):
        self.assertEqual(self.bash("lab", "export", "--format", "="), EXPORT_FORMATS)
        self.assertEqual(self.bash("lab", "export", "--format", "=", "c"), ["csv"])
        self.assertEqual(self.bash("verify", "--set", "train.steps", "=", "5"), [""])
        self.assertEqual(self.bash("verify", "--set", "a", "=", "5", "one.t"), ["one.toml"])

    def completed(self, shell, typed, ready):
        """The command line that a person gets who types it and presses the tab key."""
        process, terminal = pty.fork()
        if process == 0:
            os.chdir(self.folder / "text")
            arguments = {"bash": ["--norc", "--noprofile", "-i"], "zsh": ["-f", "-i"]}[shell]
            os.execvpe(shell, [shell, *arguments],
                       {**ENVIRONMENT, "HOME": str(self.folder), "TERM": "dumb"})
        text = ""

        def read_until(what):
            nonlocal text
            deadline = time.monotonic() + PATIENCE
            while not re.search(what, text):
                self.assertLess(time.monotonic(), deadline, f"no `{what}` in {text!r}")
                if select.select([terminal], [], [], 0.1)[0]:
                    text += os.read(terminal, 65536).decode("utf-8", "replace")

        try:
            os.write(terminal, f"{ready}; echo RE''ADY\n".encode())
            read_until("READY")
            # Control-A goes to the begin of the line, where it becomes a harmless one.
            os.write(terminal, typed.encode() + b"\t\x01echo MA''RK \n")
            read_until(r"MARK .*\n")
            return re.search(r"MARK (.*?)\r?\n", text)[1].strip()
        finally:
            os.write(terminal, b"\x03\nexit\n")
            os.close(terminal)
            os.waitpid(process, 0)

    def test_in_a_terminal(self):
        ready = {"bash": f"source {self.scripts['bash']}",
                 "zsh": f"autoload -U compinit && compinit -u -D && source {self.scripts['zsh']}"}
        for shell, begin in ready.items():
            for typed, expected in (("isoloss veri", "isoloss verify"),
                                    ("isoloss golden ch", "isoloss golden check"),
                                    ("isoloss verify --no-or", "isoloss verify --no-oracle"),
                                    ("isoloss lab recipes te_n", "isoloss lab recipes te_nvfp4"),
                                    ("isoloss lab export --format js",
                                     "isoloss lab export --format jsonl"),
                                    ("isoloss verify --set train.ste",
                                     "isoloss verify --set train.steps="),
                                    ("isoloss verify on", "isoloss verify one.toml"),
                                    ("isoloss show tw", "isoloss show two.h5")):
                with self.subTest(shell=shell, typed=typed):
                    self.assertEqual(self.completed(shell, typed, begin), expected)

    def test_zsh_reads_it_from_its_path(self):
        self.write("functions/_isoloss", self.scripts["zsh"].read_text())
        ready = (f"fpath=({self.folder}/functions $fpath); autoload -U compinit && "
                 "compinit -u -D")
        self.assertEqual(self.completed("zsh", "isoloss veri", ready), "isoloss verify")

    def test_what_is_no_shell_is_refused(self):
        self.assert_refused(self.run_isoloss("completion", "zssh"), "`shell`", "bash, zsh, fish",
                            "Did you mean `zsh`?", code=USAGE)


class Pages(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        written = cls.run_isoloss("manual", "--out", "pages")
        if written.returncode != PASS:
            raise AssertionError(written.stderr)
        cls.pages = {page.stem: page for page in (cls.folder / "pages").iterdir()}

    def shown(self, page):
        """As a person reads it, without the bold and underlined letters that groff makes by
        backspaces or escapes."""
        done = subprocess.run(["man", "--warnings", "-l", page], capture_output=True,
                              encoding="utf-8", check=False, stdin=subprocess.DEVNULL,
                              env={**ENVIRONMENT, "MANWIDTH": "200", "MAN_KEEP_FORMATTING": "",
                                   "GROFF_NO_SGR": "1", "MANROFFOPT": "-rHY=0"})
        self.assertEqual((done.returncode, done.stderr), (0, ""), page)
        return re.sub(".\b", "", done.stdout)

    def test_every_command_has_a_page_with_every_option(self):
        helps = {"-".join(["isoloss", *command]): text for command, text in all_helps(self)}
        self.assertEqual(set(helps), set(self.pages))
        for name, text in helps.items():
            with self.subTest(page=name):
                shown = self.shown(self.pages[name])

                for heading in ("NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXIT STATUS",
                                "SEE ALSO", *(["EXAMPLE"] if "-" in name else [])):
                    self.assertRegex(shown, rf"(?m)^{heading}$")
                options = set(re.findall(r"(?m)^ {7}(?:-h, )?(--[a-z-]+)", shown))
                self.assertEqual(options, names_in(text) - {"-h"})
                for option, kind, said in options_in(text):
                    # The words of help, which breaks its lines elsewhere.
                    self.assertIn(" ".join(said.split()), " ".join(shown.split()), option)
                    if kind:
                        self.assertIn(f"{option} {kind[0]}", " ".join(shown.split()))
                for command in commands_in(text):
                    self.assertRegex(shown, rf"(?m)^ {{7}}{command}( |$)")

    def test_groff_warns_of_nothing(self):
        for page in self.pages.values():
            done = subprocess.run(["groff", "-ww", "-man", "-z", "-Tutf8", page],
                                  capture_output=True, encoding="utf-8", check=False)
            self.assertEqual((done.returncode, done.stdout + done.stderr), (0, ""), page)

    def test_an_example_can_be_copied(self):
        shown = self.shown(self.pages["isoloss-golden-update"])
        self.assertIn("--reason 'sums of the router in another order'", shown)

    def test_one_page_is_printed(self):
        for words, name in (([], "isoloss"), (["verify"], "isoloss-verify"),
                            (["golden", "check"], "isoloss-golden-check")):
            printed = self.run_isoloss("manual", *words)
            self.assertEqual(printed.stdout, self.pages[name].read_text())
        self.assert_refused(self.run_isoloss("manual", "golden", "chekc"), "`golden chekc`",
                            "Did you mean `golden check`?", code=INVALID)
        self.assert_refused(self.run_isoloss("manual", "verify", "--out", "x"), "`--out`",
                            code=USAGE)

    def test_what_is_no_page_is_not_replaced(self):
        self.write("mine/isoloss-run.1", "my notes\n")
        self.assert_refused(self.run_isoloss("manual", "--out", "mine"), "isoloss-run.1",
                            "no page of", code=INVALID)
        self.assertEqual((self.folder / "mine/isoloss-run.1").read_text(), "my notes\n")
        self.assertEqual(self.run_isoloss("manual", "--out", "pages").returncode, PASS)
