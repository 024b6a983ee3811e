"""A page of 10,000 steps of 2 arms with 12 seeds: at most 5 MB, open in 2 seconds.
tools/dev/browser runs it; it measures time, so that CI does not."""

import shutil
import time
import unittest

import numpy as np

from page_test import PageTest
from program import PASS
from sealed_log import edited_log

STEPS, SEEDS = 10_000, 12
ARMS = ("bf16", "mxfp8")


class LargePage(PageTest):
    def make_runs(self):
        """Each seed of each arm, from one short run of each arm: its rows again and
        again, with noise."""
        noise = np.random.default_rng(1)
        (self.folder / "large").mkdir()
        for arm in ARMS:
            for seed in range(1, SEEDS + 1):
                path = self.folder / "large" / f"{arm}-seed{seed}.h5"
                shutil.copy(self.runs / f"{arm}-seed1.h5", path)
                with edited_log(path) as log:
                    log.attrs.modify("seed", np.int64(seed))
                    log.attrs.modify("steps_planned", np.int64(STEPS))
                    for column in log["steps"].values():
                        rows = column[()]
                        column.resize(STEPS, axis=0)
                        column[...] = np.resize(rows, STEPS)
                    log["steps/step"][...] = np.arange(1, STEPS + 1)
                    for name in ("loss_nats", "grad_norm"):
                        log[f"steps/{name}"][...] *= np.exp(noise.normal(0, 0.01, STEPS))

    def test_page_is_small_and_opens_at_once(self):
        self.make_runs()
        before = time.monotonic()
        result = self.run_isoloss("report", "large", "--out", "large.html")
        written = time.monotonic() - before
        self.assertEqual(result.returncode, PASS, result.stderr)
        size = (self.folder / "large.html").stat().st_size
        browser = self.browser
        browser.open(self.page_of_nothing())
        before = time.monotonic()
        browser.open(self.folder / "large.html")
        self.assertEqual(browser.run("document.documentElement.dataset.ready"), "true")
        # A chart's canvas has pixels when this returns.
        browser.run("isoloss.charts.loss.canvas.toDataURL().length")
        opened = time.monotonic() - before
        print(f"{len(ARMS)} arms x {SEEDS} seeds x {STEPS} steps: {size} bytes, "
              f"written in {written:.2f} s, open in {opened:.2f} s")
        self.assertEqual(browser.messages(), [])
        lines = browser.run("isoloss.charts.loss.lines.map((line) => line.values.length)")
        self.assertEqual(len(lines), len(ARMS) * (SEEDS + 1))
        self.assertEqual(len(set(lines)), 1)
        self.assertGreater(lines[0], 2000)
        self.assertLessEqual(size, 5_000_000)
        self.assertLess(opened, 2)

    def page_of_nothing(self):
        return self.write("nothing.html", "<title>nothing</title>")


if __name__ == "__main__":
    unittest.main()
