"""report.html in a browser: what it draws is what logs and verdict.json hold,
and one can use it by mouse and by keyboard."""

import json
import pathlib
import struct
import tempfile
import unittest

import h5py
from selenium.webdriver import ActionChains
from selenium.webdriver.common.keys import Keys

from browser import DESKTOP, PHONE, Browser
from program import PASS, PLAIN_POLICY, TINY, ProgramTest
from read_with_h5py import seal

# Statistics at several steps, a null arm and a control: every part of the page
# has something to show.
EXPERIMENT = TINY.replace("[log]", """\
[arms.null]
recipe = "bf16"
perturb = "one_ulp"
[arms.control]
recipe = "mxfp4_floor"
[gate]
control = "control"
[log]
statistics_every = 5
routing = true""") + """\
[parallel]
ranks = 2
"""


def float32(value):
    """The nearest float32: what the page holds of a double of a log."""
    return struct.unpack("<f", struct.pack("<f", value))[0]


class PageTest(ProgramTest):
    """A test on the page that `isoloss verify` wrote, made once for all."""

    _made = {}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        if not PageTest._made:
            folder = tempfile.TemporaryDirectory(prefix="isoloss-browser-")
            unittest.addModuleCleanup(PageTest._made.clear)
            unittest.addModuleCleanup(folder.cleanup)
            cls.folder = pathlib.Path(folder.name)
            # The page shows no case of the oracle.
            result = cls.run_isoloss("verify", cls.write("page.toml", EXPERIMENT), "--out", "runs",
                                     *PLAIN_POLICY)
            if not (cls.folder / "runs/report.html").is_file():
                raise AssertionError(f"verify wrote no page: {result.stderr}")
            PageTest._made["runs"] = cls.folder / "runs"
        cls.runs = PageTest._made["runs"]
        cls.page = cls.runs / "report.html"
        cls.verdict = json.loads((cls.runs / "verdict.json").read_text())
        cls.browser = Browser.shared()


class Page(PageTest):
    def setUp(self):
        self.browser.open(self.page)

    def tearDown(self):
        self.assertEqual(self.browser.messages(), [])

    def series(self, arm, seed, dataset):
        with h5py.File(self.runs / f"{arm}-seed{seed}.h5") as log:
            return log[dataset][()].tolist()

    def drawn(self, chart):
        """What a step chart was given to draw: label and values of each line."""
        return dict(self.browser.run(
            f"isoloss.charts['{chart}'].lines.map((line) => [line.label, Array.from(line.values)])"))

    def shown_steps(self):
        return self.browser.run("[isoloss.charts.loss.chart.scales.x.min, "
                                "isoloss.charts.loss.chart.scales.x.max]")

    def test_loss_of_every_run_is_drawn_at_every_step(self):
        lines = self.drawn("loss")
        for arm in ("bf16", "mxfp8", "null", "control"):
            for seed in (1, 2):
                logged = self.series(arm, seed, "steps/loss_nats")
                self.assertEqual(lines[f"{arm}, seed {seed}"],
                                 [float32(value) for value in logged])
        points = self.browser.run(
            "isoloss.charts.loss.chart.data.datasets.map((one) => one.data.length)")
        # Two seeds and their mean, of four arms, at 20 steps.
        self.assertEqual(points, [20] * 12)

    def test_other_charts_have_their_points(self):
        self.assertEqual({len(values) for values in self.drawn("grad-norm").values()}, {20})
        self.assertEqual({len(values) for values in self.drawn("expert-load").values()}, {20})
        # After step 0: steps 7, 14 and 20.
        self.assertEqual({len(values) for values in self.drawn("held-out").values()}, {3})
        difference = self.drawn("difference")
        self.assertEqual(len(difference["mxfp8, seed 2"]), 20)

    def test_numbers_of_the_verdict_are_those_of_verdict_json(self):
        self.assertEqual(self.browser.run("isoloss.data.verdicts"), [self.verdict])
        text = self.browser.run("document.querySelector('#verdict').textContent")
        self.assertIn(self.verdict["reading"]["headline"], text)
        # Not by the ids that verdict.json has.
        self.assertIn("final loss", self.browser.run(
            "[...document.querySelectorAll('#verdict details th[title]')].map((one) => one.textContent)"))
        for check in self.verdict["checks"]:
            self.assertIn(check["quantity"], text)
            if check["unit"] == "%" and check["value"] is not None:
                self.assertIn(f"{check['value']:+.3f} %", text)

    def test_paired_difference_gives_the_verdicts_mean(self):
        window = self.verdict["final_window"]
        pair = self.browser.run(
            "Array.from(isoloss.pairedDifference(isoloss.data, isoloss.data.pairs[0]).runs, "
            "(run) => [run.seed, Array.from(run.values.difference)])")
        for (seed, values), judged in zip(pair, window["seeds"]):
            self.assertEqual(seed, judged["seed"])
            of_window = values[window["first_step"] - 1:window["last_step"]]
            # The page divides the losses of each step, the verdict their means: the
            # two differ by the spread of the baseline's loss over the window times
            # that of the difference, both below a tenth here; and float32 rounds
            # two losses by 6e-8 each, 1.2e-5 %.
            self.assertAlmostEqual(sum(of_window) / len(of_window),
                                   judged["final_window_percent"],
                                   delta=0.1 * max(map(abs, of_window)) + 1.2e-5)

    def test_keys_read_values_and_zoom(self):
        box = self.browser.canvas_box("loss")
        box.send_keys(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
        readout = self.browser.run("isoloss.charts.loss.readout.textContent")
        mean = sum(float32(self.series("bf16", seed, "steps/loss_nats")[1]) for seed in (1, 2)) / 2
        self.assertIn("Step 2. ", readout)
        self.assertIn(f"bf16 (mean of 2 seeds): {mean:.4f}", readout)
        self.assertEqual(self.browser.run("document.getElementById('live').textContent"), readout)

        whole = self.shown_steps()
        box.send_keys("+")
        first, last = self.shown_steps()
        self.assertLess(last - first, whole[1] - whole[0])
        # All charts show the same steps.
        self.assertEqual(self.browser.run("isoloss.charts['grad-norm'].chart.scales.x.max"), last)
        box.send_keys("0")
        self.assertEqual(self.shown_steps(), whole)

    def test_dragging_zooms_and_a_double_click_shows_all(self):
        whole = self.shown_steps()
        box = self.browser.canvas_box("loss")
        ActionChains(self.browser.driver).move_to_element_with_offset(box, -200, 0) \
            .click_and_hold().move_by_offset(300, 0).release().perform()
        first, last = self.shown_steps()
        self.assertTrue(whole[0] < first < last < whole[1], (first, last))
        ActionChains(self.browser.driver).double_click(box).perform()
        self.assertEqual(self.shown_steps(), whole)

    def test_smoothing_and_scales(self):
        self.browser.element(".figure:has(#loss) select option[value='1']").click()
        logged = [float32(value) for value in self.series("bf16", 1, "steps/loss_nats")]
        # The mean of five steps around the tenth, in doubles.
        self.assertAlmostEqual(self.drawn("loss")["bf16, seed 1"][9], sum(logged[7:12]) / 5,
                               delta=1e-12)
        for button in self.browser.elements(".figure:has(#loss) button[aria-pressed='false']"):
            button.click()
        self.assertEqual(self.browser.run(
            "[isoloss.charts.loss.chart.scales.x.type, isoloss.charts.loss.chart.scales.y.type]"),
            ["logarithmic", "logarithmic"])

    def test_points_that_stand_for_steps_are_smoothed_over_as_many(self):
        def smoothed(stride, width):
            return self.browser.run(
                f"Array.from(isoloss.smoothed([1, {1 + stride}], [2, 4], {width}))")
        self.assertEqual(smoothed(1, 5), [3, 3])
        self.assertEqual(smoothed(3, 5), [2, 4])
        self.assertEqual(smoothed(3, 21), [3, 3])

    def test_means_are_of_equal_steps(self):
        self.assertEqual(self.browser.run(
            "(({steps, mean}) => [steps, Array.from(mean)])(isoloss.across(["
            "{steps: [7, 14, 20], values: {x: [1, 2, 3]}}, {steps: [7, 20], values: {x: [5, 9]}}], 'x'))"),
            [[7, 20], [3, 6]])

    def test_heat_map_leads_to_history_and_scales(self):
        with h5py.File(self.runs / "mxfp8-seed1.h5") as log:
            names = [name.decode() for name in log["tensors/names"][()]]
            tensor = names.index("layers.0.attention.wq_activation")
            sqnr = log["tensors/sqnr_db"][:, tensor].tolist()
            blocks = int(log["tensors/e8m0_histogram"][0, tensor].sum())
        label = "layers.0.attention.wq, activation, rows: "
        cell = self.browser.element(f".heat button[aria-label^='{label}']")
        self.assertEqual(cell.text, f"{sqnr[0]:.1f}")
        cell.click()
        self.assertEqual(self.drawn("tensor-history")["mxfp8"], [float32(value) for value in sqnr])
        counts = self.browser.run("isoloss.charts.scales.chart.data.datasets[0].data")
        self.assertEqual(sum(counts), blocks)

        self.browser.driver.switch_to.active_element.send_keys(Keys.ARROW_RIGHT)
        focused = self.browser.driver.switch_to.active_element.get_attribute("aria-label")
        self.assertIn("layers.0.attention.wq, activation, columns", focused)

    def test_theme_switches_charts_too(self):
        before = self.browser.run("isoloss.charts.loss.chart.data.datasets[0].borderColor")
        self.browser.element("#theme").click()
        self.assertEqual(self.browser.run("document.documentElement.dataset.theme"), "dark")
        self.assertNotEqual(
            self.browser.run("isoloss.charts.loss.chart.data.datasets[0].borderColor"), before)

    def test_nothing_is_asked_of_the_network(self):
        self.assertEqual(self.browser.run(
            "performance.getEntriesByType('resource').map((one) => one.name)"), [])


class Surroundings(PageTest):
    def test_page_fits_every_screen_in_both_themes(self):
        for size in (DESKTOP, PHONE):
            for theme in ("light", "dark"):
                with self.subTest(size=size, theme=theme):
                    self.browser.open(self.page, size, theme)
                    self.browser.open_everything()
                    self.assertEqual(
                        self.browser.run("document.documentElement.dataset.theme"), theme)
                    self.assertLessEqual(
                        self.browser.run("document.documentElement.scrollWidth"), size[0])
                    self.assertEqual(self.browser.messages(), [])

    def test_runs_with_nan_and_of_different_lengths(self):
        logs = self.make_logs("whole", "train.seeds=[1]")
        other = self.make_logs("short", "train.steps=9", "train.seeds=[1]")
        with h5py.File(other["mxfp8-seed1"], "r+") as log:
            log["steps/loss_nats"][3] = float("nan")
        seal(other["mxfp8-seed1"])

        result = self.run_isoloss("report", logs["bf16-seed1"], other["mxfp8-seed1"], "--out",
                                  "odd.html")

        self.assertEqual(result.returncode, PASS, result.stderr)
        self.browser.open(self.folder / "odd.html")
        self.assertEqual(self.browser.messages(), [])
        lengths = self.browser.run("isoloss.charts.loss.lines.map((line) => line.values.length)")
        self.assertEqual(lengths, [20, 9])
        self.assertIn("no verdict", self.browser.element("#verdict").text)

    def test_verdict_of_an_earlier_version_has_its_checks(self):
        earlier = {key: value for key, value in self.verdict.items() if key not in ("reading", "digest")}
        verdict = self.write("earlier.json", json.dumps(earlier))

        # The same run twice would count twice in the means.
        result = self.run_isoloss("report", self.runs, self.runs / "bf16-seed1.h5", "--verdict",
                                  verdict, "--out", "earlier.html", "--json")

        self.assertEqual(result.returncode, PASS, result.stderr)
        self.assertEqual(json.loads(result.stdout)["runs"], 8)
        self.browser.open(self.folder / "earlier.html")
        self.assertEqual(self.browser.messages(), [])
        shown = self.browser.run("document.querySelector('#verdict').textContent")
        self.assertIn(f"{len(self.verdict['checks'])} checks", shown)
        self.assertIn("An earlier version", shown)
        self.assertIn("bf16-seed1.h5 was given twice", shown)

    def test_paper_has_what_is_closed_on_the_screen(self):
        self.browser.open(self.page)
        is_open = "[...document.querySelectorAll('#verdict details')].map((one) => one.open)"
        before = self.browser.run(is_open)
        self.assertIn(False, before)

        self.browser.driver.execute_script("window.dispatchEvent(new Event('beforeprint'))")
        self.assertEqual(set(self.browser.run(is_open)), {True})
        self.browser.driver.execute_script("window.dispatchEvent(new Event('afterprint'))")
        self.assertEqual(self.browser.run(is_open), before)


if __name__ == "__main__":
    unittest.main()
