"""axe-core on report.html: no serious problem at any size, in any theme.
ISOLOSS_AXE names its axe.min.js, which tools/dev/browser installs. Pictures of
what it looked at go to the folder ISOLOSS_PICTURES, unless that is empty."""

import os
import pathlib

from browser import DESKTOP, PHONE
from page_test import PageTest

AXE = pathlib.Path(os.environ["ISOLOSS_AXE"])
PICTURES = os.environ.get("ISOLOSS_PICTURES", "")


class Accessibility(PageTest):
    def test_axe_finds_nothing_serious(self):
        for size in (DESKTOP, PHONE):
            for theme in ("light", "dark"):
                with self.subTest(size=size, theme=theme):
                    self.look(size, theme)

    def look(self, size, theme):
        self.browser.open(self.page, size, theme)
        if PICTURES:
            self.browser.picture(pathlib.Path(PICTURES) / f"{theme}-{size[0]}.png")
        self.browser.open_everything()
        self.browser.driver.execute_script(AXE.read_text())
        found = self.browser.driver.execute_async_script(
            "const done = arguments[0];"
            "axe.run().then((found) => done(found.violations.map((one) =>"
            " [one.impact, one.id, one.nodes.map((node) => node.html)])))")
        serious = [one for one in found if one[0] in ("serious", "critical")]
        self.assertEqual(serious, [])
