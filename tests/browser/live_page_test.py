"""report --watch: the page of a run that is being made takes its new steps."""

import re
import signal
import time
import urllib.error
import urllib.request

from browser import Browser
from live_run import Background, LiveRunTest
from program import INVALID, PASS, USAGE
from terminal import PATIENCE


class LivePage(LiveRunTest):
    def serve(self, *arguments):
        return Background(self.folder, "report", *arguments, "--watch", "--interval", "0.2")

    def address(self, server):
        server.wait_for("in a browser")
        return re.search(r"http://127\.0\.0\.1:\d+/[0-9a-f]{32}/", server.text)[0]

    def wait(self, script, what):
        """Until the JavaScript expression is true."""
        deadline = time.monotonic() + PATIENCE
        while not self.browser.run(script):
            self.assertLess(time.monotonic(), deadline, what)
            time.sleep(0.05)

    def test_page_takes_new_steps_until_the_server_ends(self):
        self.browser = Browser.shared()
        run, _ = self.start_run("live")
        with run, self.serve("live") as server:
            self.browser.open(self.address(server))
            self.assertIn("bf16-seed1", self.browser.element("#live-runs").text)
            self.assertIn("running", self.browser.element("#live-runs").text)
            points = "isoloss.charts.loss.lines[0].values.length"
            # What the reader did stays: charts are kept while they take new steps.
            self.browser.driver.execute_script(
                "window.chart = isoloss.charts.loss; isoloss.charts.loss.logY = true")
            for _ in range(2):
                before = self.browser.run(points)
                self.wait(f"{points} > {before}", "no new steps")
            self.assertTrue(self.browser.run("window.chart === isoloss.charts.loss"))
            # Together, lest new steps come in between.
            shown, step = self.browser.run(
                "[document.querySelectorAll('#live-runs td')[1].textContent, isoloss.data.live.runs[0].step]")
            self.assertEqual(shown, f"{step:,}")

            server.process.send_signal(signal.SIGINT)
            self.assertEqual(server.end(), PASS)
            self.wait("document.getElementById('live-note').textContent.includes('has ended')",
                      "the page does not see that the server has ended")
        # The request that nobody answered is all that it says.
        self.assertEqual([message for message in self.browser.messages()
                          if "net::ERR_CONNECTION_" not in message], [])

    def test_page_of_ended_runs_says_so_and_the_server_ends(self):
        self.browser = Browser.shared()
        self.make_logs("ended", "train.seeds=[1]")
        with self.serve("ended") as server:
            self.browser.open(self.address(server))
            self.wait("document.getElementById('live-note').textContent.includes('All runs have ended')",
                      "the page does not say that the runs have ended")
            self.assertEqual(server.end(), PASS)
            self.assertIn("isoloss report ended", server.text)
        self.assertEqual(self.browser.messages(), [])

    def test_hostile_names_of_live_runs_are_text(self):
        self.browser = Browser.shared()
        logs = self.make_logs("named", "train.seeds=[1]")
        name = "<img src=x onerror='hit=1'>"
        logs["bf16-seed1"].rename(self.folder / "named" / f"{name}.h5")
        with self.serve("named") as server:
            self.browser.open(self.address(server))
            self.wait("document.getElementById('live-runs').textContent !== ''", "no runs")
            self.assertIn(name, self.browser.element("#live-runs").text)
            self.assertEqual(self.browser.elements("main img"), [])
        self.assertEqual(self.browser.messages(), [])

    def test_what_is_asked_for_wrongly_is_refused(self):
        (self.folder / "empty").mkdir()
        with self.serve("empty") as server:
            address = self.address(server)
            port = re.search(r":(\d+)/", address)[1]
            result = self.run_isoloss("report", "empty", "--watch", "--port", port)
            self.assert_refused(result, port, "--port", code=INVALID)
            # Without the secret name there is nothing.
            with self.assertRaises(urllib.error.HTTPError):
                urllib.request.urlopen(f"http://127.0.0.1:{port}/data.json", timeout=PATIENCE)
            with urllib.request.urlopen(address + "data.json", timeout=PATIENCE) as answer:
                self.assertEqual(answer.headers["Cache-Control"], "no-store")
        self.assert_refused(self.run_isoloss("report", "empty", "nowhere", "--watch"),
                            "2 paths", code=INVALID)
        self.assert_refused(self.run_isoloss("report", "nowhere", "--watch"), "nowhere",
                            code=INVALID)
        for options in (("--watch", "--out", "x.html"), ("--port", "0"),
                        ("--watch", "--port", "65536")):
            self.assertEqual(self.run_isoloss("report", "empty", *options).returncode, USAGE)
