"""Bars on a terminal, plain lines elsewhere."""

from program import ProgramTest, PASS
from terminal import TerminalProgram

LONG = "a_rather_long_name_of_an_arm_that_some_people_like_to_give"


class Progress(ProgramTest):
    def test_no_bars_and_no_escape_codes_when_not_a_terminal(self):
        result = self.run_isoloss("verify", "tiny.toml", "--no-oracle", "--out", "out")

        for text in (result.stdout, result.stderr):
            self.assertNotIn("\x1b", text)
            self.assertNotIn("█", text)
        *lines, results = result.stderr.splitlines()
        self.assertEqual(results,
                         "isoloss: results are in out: verdict.json, "
                         "report.html.")
        lines.sort()
        self.assertEqual([line.split(":")[0] for line in lines],
                         ["bf16-seed1", "bf16-seed2", "mxfp8-seed1",
                          "mxfp8-seed2"])
        for line in lines:
            self.assertRegex(
                line, r": 20 steps, last loss \d\.\d{4} nats(; .*of tensors at "
                      r"1 steps took \S+ s, \d\d\.\d % of the run)?$")

    def test_bars_with_the_time_left_are_drawn_and_erased(self):
        with TerminalProgram(self.folder, "run", "tiny.toml", "--out", "bars",
                             "--set=train.steps=1500") as program:
            code = program.wait()

        self.assertEqual(code, PASS, program.text[-2000:])
        drawn = "\n".join("\n".join(frame) for frame in program.frames())
        self.assertRegex(
            drawn,
            r"(bf16|mxfp8)-seed[12] +[█░]{30}  +\d+/1500  loss \d\.\d{4}")
        self.assertRegex(
            drawn, r"\d+ % done, [0-3] of 4 runs finished, \d+:\d\d left")
        self.assertEqual(program.screen(), "")
        self.assertNotIn("\x1b", program.stdout)

    def test_a_narrow_terminal_keeps_the_time_left_and_the_loss(self):
        with TerminalProgram(self.folder, "run", "tiny.toml", "--out", "narrow",
                             "--set=train.steps=1500", columns=30) as program:
            self.assertEqual(program.wait(), PASS, program.text[-2000:])
        drawn = "\n".join("\n".join(frame) for frame in program.frames())
        self.assertRegex(drawn, r"(?m)^\d+ %.*, \d+:\d\d left$")
        self.assertRegex(drawn, r"(?m)loss \d\.\d{4}$")

    def test_plain_terminals_get_plain_text(self):
        with TerminalProgram(self.folder, "run", "tiny.toml", "--out", "dumb",
                             environment={"TERM": "dumb"}) as program:
            self.assertEqual(program.wait(), PASS)
        self.assertNotIn("\x1b", program.text)
        self.assertIn("bf16-seed1: 20 steps", program.text)
        with TerminalProgram(self.folder, "run", "tiny.toml", "--out", "ascii",
                             "--set=train.steps=1000",
                             environment={"LC_ALL": "C"}) as program:
            self.assertEqual(program.wait(), PASS)
        self.assertTrue(program.text.isascii())
        self.assertIn("##", program.text)

    def test_a_heartbeat_where_there_is_no_terminal(self):
        often = {"ISOLOSS_HEARTBEAT_SECONDS": "0.05"}
        run = self.run_isoloss("run", "tiny.toml", "--out", "beats",
                               "--set=train.steps=1000", environment=often)
        self.assertRegex(
            run.stderr,
            r"(?m)^\d+ % done, [0-4] of 4 runs finished, \d+:\d\d left; "
            r"(bf16|mxfp8)-seed[12] step \d+ of 1000, loss \d\.\d{4}")
        # The case that takes longest.
        probe = self.run_isoloss("probe", "tiny.toml", "--arm", "bf16", "--case", "tails",
                                 "--steps", "1", "--out", "beats", environment=often)
        self.assertRegex(probe.stderr, r"(?m)^probe bf16-seed1: \w+, step \d+$")
        parity = self.run_isoloss("parity", "tiny.toml", "--steps", "20",
                                  "--set=parallel.ranks=4", environment=often)
        self.assertRegex(parity.stderr, r"(?m)^parity bf16: on ")
        ensemble = self.run_isoloss("ensemble", "build", "tiny.toml", "--runs",
                                    "20", "--out", "e.h5", environment=often)
        self.assertRegex(ensemble.stderr,
                         r"(?m)^members: \d+ of 20(, \d+:\d\d left)?$")
        for result in (run, probe, parity, ensemble):
            self.assertEqual(result.returncode, PASS, result.stderr)
            self.assertNotIn("\x1b", result.stderr)
        silent = self.run_isoloss("run", "tiny.toml", "--out", "silent",
                                  environment={"ISOLOSS_HEARTBEAT_SECONDS": "0"})
        self.assertNotIn("% done", silent.stderr)

    def test_drawings_fit_the_terminal_whatever_its_size(self):
        experiment = self.tiny.read_text().replace("arms.mxfp8", f"arms.{LONG}")
        self.write("long.toml", experiment)
        for columns, rows in ((200, 50), (80, 24), (40, 5), (24, 3), (8, 2)):
            with self.subTest(columns=columns, rows=rows):
                with TerminalProgram(
                        self.folder, "run", "long.toml", "--out", f"fit{columns}",
                        "--set=parallel.workers=4", "--set=train.steps=500",
                        columns=columns, rows=rows) as program:
                    code = program.wait()

                self.assertEqual(code, PASS, program.text[-2000:])
                for frame in program.frames():
                    self.assertLess(len(frame), rows)
                    for line in frame:
                        self.assertLess(len(line), columns, line)
                self.assertEqual(program.screen(), "")
