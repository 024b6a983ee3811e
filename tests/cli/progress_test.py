"""Bars on a terminal, plain lines elsewhere."""

from program import ProgramTest, PASS
from terminal import TerminalProgram

LONG = "a_rather_long_name_of_an_arm_that_some_people_like_to_give"


class Progress(ProgramTest):
    def test_no_bars_and_no_escape_codes_when_not_a_terminal(self):
        result = self.run_isoloss("verify", "tiny.toml", "--out", "out")

        for text in (result.stdout, result.stderr):
            self.assertNotIn("\x1b", text)
            self.assertNotIn("█", text)
        lines = sorted(result.stderr.splitlines())
        self.assertEqual([line.split(":")[0] for line in lines],
                         ["bf16-seed1", "bf16-seed2", "mxfp8-seed1",
                          "mxfp8-seed2"])
        for line in lines:
            self.assertRegex(
                line, r": 20 steps, last loss \d\.\d{4} nats; .*of tensors at "
                      r"1 steps took \S+ s, \S+ % of the run$")

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

    def test_drawings_fit_the_terminal_whatever_its_size(self):
        experiment = self.tiny.read_text().replace("arms.mxfp8", f"arms.{LONG}")
        self.write("long.toml", experiment)
        for columns, rows in ((200, 50), (80, 24), (40, 5), (24, 3), (8, 2)):
            with self.subTest(columns=columns, rows=rows):
                with TerminalProgram(
                        self.folder, "run", "long.toml", "--out", "fit",
                        "--set=parallel.workers=4", "--set=train.steps=500",
                        columns=columns, rows=rows) as program:
                    code = program.wait()

                self.assertEqual(code, PASS, program.text[-2000:])
                for frame in program.frames():
                    self.assertLess(len(frame), rows)
                    for line in frame:
                        self.assertLess(len(line), columns, line)
                self.assertEqual(program.screen(), "")
