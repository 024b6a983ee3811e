"""formats: what number formats can hold."""

import json

from program import INVALID, PASS, ProgramTest


class Formats(ProgramTest):
    def formats(self, *arguments, **options):
        result = self.run_isoloss("formats", *arguments, **options)
        self.assertEqual(result.returncode, PASS, result.stderr)
        return result.stdout

    def test_all_are_listed_with_range_and_source(self):
        text = self.formats()

        for words in ("e4m3", "1-4-3", "448", "2^-9", "int8", "two's complement", "tf32",
                      "OCP Microscaling Formats (MX) v1.0"):
            self.assertIn(words, text)
        listed = json.loads(self.formats("--json"))["formats"]
        self.assertEqual([line.split()[0] for line in text.splitlines()[1:] if line[0] != " "],
                         [one["name"] for one in listed])

    def test_one_is_shown_with_its_binades(self):
        text = self.formats("e4m3")

        self.assertIn("0x1.cp+8 = 448", text)
        self.assertIn("107.2 dB", text)
        self.assertIn("█", text)
        shown = json.loads(self.formats("e4m3", "--json"))
        self.assertEqual(shown["max"], 448)
        self.assertEqual(sum(binade["values"] for binade in shown["binades"]) * 2 + 1,
                         shown["values"])

    def test_drawn_with_7_bit_characters(self):
        self.formats("e5m2", "--ascii").encode("ascii")
        self.formats("e5m2", environment={"LC_ALL": "C"}).encode("ascii")

    def test_no_line_is_wider_than_80_columns(self):
        for name in ((), *((one["name"],) for one in json.loads(self.formats("--json"))["formats"])):
            for line in self.formats(*name).splitlines():
                self.assertLessEqual(len(line), 80, line)

    def test_an_unknown_name_is_refused_with_the_nearest(self):
        self.assert_refused(self.run_isoloss("formats", "e4m4"), "`e4m4`", "e4m3, e5m2",
                            "Did you mean `e4m3`?", code=INVALID)
