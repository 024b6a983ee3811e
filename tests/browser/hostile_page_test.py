"""Texts of files that try to be markup or code stay text: every string of a log
and a verdict."""

import json
import shutil

import h5py

from page_test import PageTest
from program import PASS
from sealed_log import edited_log

# Ends a script, begins another, a comment and an image; ends an attribute; line
# ends of JavaScript; what a template would fill in.
HOSTILE = "</script><script>hit=1</script><!--<img src=x onerror=hit=1>\"' \u2028${hit=1}&lt;"
# What the program computes with, so that other words would be refused.
FIXED_ATTRIBUTES = {"exchange", "routing", "perturbation"}
# Words of a closed list in verdict.json.
FIXED_KEYS = {"outcome", "question", "relation"}

def hostile(json_value, key=""):
    """All strings in it but words of closed lists."""
    if isinstance(json_value, dict):
        return {name: hostile(value, name) for name, value in json_value.items()}
    if isinstance(json_value, list):
        return [hostile(value, key) for value in json_value]
    fixed = key in FIXED_KEYS or key.endswith("_text") or key in ("levels", "verdict")
    return HOSTILE if isinstance(json_value, str) and not fixed else json_value


class HostilePage(PageTest):
    def hostile_log(self, arm):
        path = self.folder / "in" / f"{arm}-seed1.h5"
        path.parent.mkdir(exist_ok=True)
        shutil.copy(self.runs / path.name, path)
        text = h5py.string_dtype("utf-8")
        with edited_log(path) as log:
            for name, value in log.attrs.items():
                if isinstance(value, str) and name not in FIXED_ATTRIBUTES:
                    log.attrs.create(name, f"{arm}{HOSTILE}" if name == "arm" else HOSTILE,
                                     dtype=text)
            log["events/text"][...] = [HOSTILE] * len(log["events/text"])
            log["events/kind"][...] = [HOSTILE] * len(log["events/kind"])
            # Alike everywhere: a graph whose names do not fit together is refused.
            for name in ("graph/name", "graph/module", "graph/parameter", "graph/site",
                         "recipe/site", "tensors/names", "parameters/names"):
                log[name][...] = [value.decode().replace("layers", HOSTILE)
                                  for value in log[name][()]]
        return path

    def test_every_text_stays_text(self):
        logs = [self.hostile_log(arm) for arm in ("bf16", "mxfp8")]
        # A path may hold all of it but `/`.
        named = logs[1].with_name(HOSTILE.replace("/", "") + ".h5")
        logs[1].rename(named)
        forged = {key: value for key, value in hostile(self.verdict).items() if key != "digest"}
        verdict = self.write("hostile_verdict.json", json.dumps(forged))

        result = self.run_isoloss("report", logs[0], named, *self.runs.glob("probes/*.h5"),
                                  "--verdict", verdict, "--out", "hostile.html")

        self.assertEqual(result.returncode, PASS, result.stderr)
        page = (self.folder / "hostile.html").read_text(encoding="utf-8")
        sound = self.page.read_text(encoding="utf-8")
        self.assertEqual(page.lower().count("<script"), sound.lower().count("<script"))
        self.assertEqual(page.count("hit=1></"), 0)
        self.browser.open(self.folder / "hostile.html")
        self.browser.open_everything()
        self.assertEqual(self.browser.messages(), [])
        self.assertEqual(self.browser.run("typeof hit"), "undefined")
        self.assertEqual(self.browser.elements("main img, main script, main a[href^=javascript]"), [])
        shown = self.browser.run("document.getElementById('main').textContent")
        self.assertNotIn("can't be drawn", shown)
        for place, what in (("#verdict", "headline"), ("#tensors", "tensors"),
                            ("#provenance", "attributes")):
            self.assertIn("<script>hit=1</script>", self.browser.run(
                f"document.querySelector('{place}').textContent"), what)
        self.assertIn("<img", self.browser.run("document.title"))
