"""A headless Chromium that opens report.html as people do."""

import base64
import functools
import pathlib
import sys
import tempfile
import unittest

from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By

SOURCE = pathlib.Path(__file__).parent.parent.parent
sys.path += [str(SOURCE / "tests/cli"), str(SOURCE / "tests/runlog")]

DESKTOP = (1280, 900)
PHONE = (390, 844)

ARGUMENTS = (
    "--headless=new", "--disable-gpu",
    # Root may not use the sandbox; the page is our own.
    "--no-sandbox",
    # A container's /dev/shm is small.
    "--disable-dev-shm-usage",
    # Where the network is closed, nothing waits for it.
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-quic", "--no-first-run", "--no-default-browser-check", "--disable-extensions",
    "--dns-prefetch-disable",
)


class Browser:
    """Shows one page at a time. Starting it costs seconds: take `shared`."""

    def __init__(self):
        self.profile = tempfile.TemporaryDirectory(
            prefix="isoloss-browser-", ignore_cleanup_errors=True)
        options = webdriver.ChromeOptions()
        for argument in (*ARGUMENTS, f"--user-data-dir={self.profile.name}"):
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self.driver = webdriver.Chrome(service=Service("/usr/bin/chromedriver"),
                                       options=options)

    @staticmethod
    @functools.cache
    def shared():
        """One for all tests of the process."""
        browser = Browser()
        unittest.addModuleCleanup(browser.quit)
        return browser

    def quit(self):
        self.driver.quit()
        self.profile.cleanup()
        self.shared.cache_clear()

    def open(self, page, size=DESKTOP, theme="light"):
        """`page`: a file or an address."""
        self.resize(*size)
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {
            "features": [{"name": "prefers-color-scheme", "value": theme}]})
        self.messages()
        self.driver.get(page if "://" in str(page)
                        else pathlib.Path(page).resolve().as_uri())

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
        """What the console has said since; a sound page leaves it empty."""
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
