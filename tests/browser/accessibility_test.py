"""axe-core on report.html: no serious problem at any size, in any theme.
ISOLOSS_AXE names its axe.min.js, which tools/dev/browser installs. Pictures of
what it looked at go to the folder ISOLOSS_PICTURES, unless that is empty."""

import os
import pathlib

from browser import DESKTOP, PHONE, Browser
from page_test import EXPERIMENT
from program import ProgramTest

AXE = pathlib.Path(os.environ["ISOLOSS_AXE"])
PICTURES = os.environ.get("ISOLOSS_PICTURES", "")


class Accessibility(ProgramTest):
    def test_axe_finds_nothing_serious(self):
        experiment = self.write("page.toml", EXPERIMENT)
        self.run_isoloss("verify", experiment, "--out", "runs")
        for size in (DESKTOP, PHONE):
            for theme in ("light", "dark"):
                with self.subTest(size=size, theme=theme), \
                        Browser(self.folder / "runs/report.html", size, theme) as browser:
                    if PICTURES:
                        browser.picture(pathlib.Path(PICTURES) / f"{theme}-{size[0]}.png")
                    browser.open_everything()
                    browser.driver.execute_script(AXE.read_text())
                    found = browser.driver.execute_async_script(
                        "const done = arguments[0];"
                        "axe.run().then((found) => done(found.violations.map((one) =>"
                        " [one.impact, one.id, one.nodes.map((node) => node.html)])))")
                    serious = [one for one in found if one[0] in ("serious", "critical")]
                    self.assertEqual(serious, [])
