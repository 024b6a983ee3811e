"""Readers of what isoloss writes for CI systems: parsers of others, and rules that
these systems publish."""

import html.parser
import re
import subprocess
import xml.etree.ElementTree

# What junit-10.xsd of Jenkins' xUnit plugin allows, as far as isoloss could write
# it: of each element the attributes that it must and may have, and its children.
# No Debian or npm package has the schema.
TEXT = (set(), {"type", "message"}, set())
JUNIT = {
    "testsuites": (set(), {"name", "time", "tests", "failures", "errors"}, {"testsuite"}),
    "testsuite": ({"name", "tests", "failures", "errors"},
                  {"group", "time", "skipped", "timestamp", "hostname", "id", "package", "file",
                   "log", "url"},
                  {"testsuite", "properties", "testcase", "system-out", "system-err"}),
    "properties": (set(), set(), {"property"}),
    "property": ({"name", "value"}, set(), set()),
    "testcase": ({"name"}, {"time", "classname", "group"},
                 {"skipped", "error", "failure", "system-out", "system-err"}),
    "skipped": TEXT, "error": TEXT, "failure": TEXT,
    "system-out": (set(), set(), set()),
    "system-err": (set(), set(), set()),
}
MIXED = {"skipped", "error", "failure", "system-out", "system-err"}


def junit_faults(text):
    """Where an XML file breaks those rules; a list of words."""
    root = xml.etree.ElementTree.fromstring(text)
    faults = [] if root.tag == "testsuites" else [f"the root is {root.tag}"]
    for element in root.iter():
        if element.tag not in JUNIT:
            faults.append(f"{element.tag} is no element")
            continue
        must, may, children = JUNIT[element.tag]
        found = set(element.attrib)
        faults += [f"{element.tag} has no {name}" for name in must - found]
        faults += [f"{element.tag} has {name}" for name in found - must - may]
        faults += [f"{element.tag} holds {child.tag}" for child in element
                   if child.tag not in children]
        if element.tag not in MIXED and (element.text or "").strip():
            faults.append(f"{element.tag} holds text")
    return faults


def _unescape(text, property_):
    # As the runner does it (ActionCommand.cs): `%25` comes last.
    for code, char in (("%0D", "\r"), ("%0A", "\n"), *((("%3A", ":"), ("%2C", ",")) if property_
                                                        else ()), ("%25", "%")):
        text = text.replace(code, char)
    return text


def workflow_commands(output):
    """(name, properties, data) of each command that GitHub's runner would obey in what
    a step printed. `::stop-commands::TOKEN` stops that up to `::TOKEN::`."""
    commands = []
    token = None
    for line in output.split("\n"):
        line = line.lstrip()
        if token is not None:
            if line.strip() == f"::{token}::":
                token = None
            continue
        if "##[" in line and not line.startswith("::"):
            commands.append(("##", {}, line))
        end = line.find("::", 2)
        if not line.startswith("::") or end < 0:
            continue
        name, _, rest = line[2:end].partition(" ")
        properties = dict(pair.split("=", 1) for pair in rest.strip().split(",") if "=" in pair)
        if name == "stop-commands":
            token = line[end + 2:]
            continue
        commands.append((name, {key: _unescape(value, True) for key, value in properties.items()},
                         _unescape(line[end + 2:], False)))
    return commands


class _Page(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.text, self.cells, self.rows = [], "", 0, []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        if tag == "tr":
            self.rows.append(0)
        elif tag in ("td", "th"):
            self.rows[-1] += 1

    def handle_data(self, data):
        self.text += data


def rendered(markdown):
    """Tags, text and cells of each row of a Markdown text as GitHub's own renderer
    makes it HTML (before GitHub removes what it takes for dangerous)."""
    page = _Page()
    page.feed(subprocess.run(
        ["cmark-gfm", "--unsafe", "-e", "table", "-e", "autolink", "-e", "strikethrough", "-e",
         "tasklist"], input=markdown, encoding="utf-8", stdout=subprocess.PIPE, check=True).stdout)
    return page
