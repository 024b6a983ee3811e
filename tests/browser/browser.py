"""A headless Chromium that opens report.html as people do."""

import base64
import pathlib
import sys

from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By

SOURCE = pathlib.Path(__file__).parent.parent.parent
sys.path += [str(SOURCE / "tests/cli"), str(SOURCE / "tests/runlog")]

DESKTOP = (1280, 900)
PHONE = (390, 844)


class Browser:
    """One page at one size in one theme. Use it with `with`."""

    def __init__(self, page, size=DESKTOP, theme="light"):
        options = webdriver.ChromeOptions()
        # Root may not use the sandbox; the page is our own.
        for argument in ("--headless=new", "--no-sandbox", "--disable-gpu",
                         "--disable-dev-shm-usage"):
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self.driver = webdriver.Chrome(service=Service("/usr/bin/chromedriver"),
                                       options=options)
        self.resize(*size)
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {
            "features": [{"name": "prefers-color-scheme", "value": theme}]})
        self.driver.get(page if "://" in str(page)
                        else pathlib.Path(page).resolve().as_uri())

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.driver.quit()

    def run(self, script, *arguments):
        """Value of the JavaScript expression `script`."""
        return self.driver.execute_script(f"return {script}", *arguments)

    def element(self, selector):
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def elements(self, selector):
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def canvas_box(self, chart):
        """What takes the keys and the pointer of a chart."""
        return self.element(f".canvas-box:has(#{chart})")

    def messages(self):
        """What the console says; a sound page leaves it empty."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def picture(self, path):
        """The whole page, as PNG."""
        width = self.run("window.innerWidth")
        height = self.run("document.documentElement.scrollHeight")
        self.resize(width, height)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(
            self.driver.execute_cdp_cmd("Page.captureScreenshot", {})["data"]))

    def resize(self, width, height):
        # The width of a window has a least value; that of a page has not.
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {
            "width": width, "height": height, "deviceScaleFactor": 1,
            "mobile": width < 600})

    def open_everything(self):
        self.driver.execute_script(
            "for (const one of document.querySelectorAll('details')) one.open = true;"
            "document.querySelector('.heat button')?.click()")
