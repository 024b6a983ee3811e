"""Verdicts and comparisons of logs: isoloss.gate and isoloss.compare."""

import html
import json
import os
import pathlib
import tempfile

from . import program
from .program import ProgramError

_ITSELF = "isoloss reads the program's JSON itself"
_ARMS = "the arms are what baseline= and candidate= name"


class Record(dict):
    """An object of JSON, whose keys are attributes, too."""

    def __getattr__(self, name):
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"no `{name}` is here, but {', '.join(self)}") from None

    def __dir__(self):
        return [*super().__dir__(), *self]


class _Result:
    """What the program found: its JSON by attributes and by items, and its text.

    json       the whole object
    text       what the program prints
    notes      what it says besides
    exit_code  0: pass or equal; 1: fail or not equal; 3: INVALID; 4: INCONCLUSIVE
    """

    def __init__(self, done, text_of_json):
        self.json = json.loads(text_of_json, object_hook=Record)
        self.text = done.text
        self.notes = done.notes
        self.exit_code = done.exit_code

    def __getattr__(self, name):
        if name == "json":  # not there yet
            raise AttributeError(name)
        return getattr(self.json, name)

    def __getitem__(self, key):
        return self.json[key]

    def __dir__(self):
        return [*super().__dir__(), *self.json]

    def __repr__(self):
        return self.text.rstrip("\n")

    def _repr_html_(self):
        page = self.page
        if page is None:
            return f"<pre>{html.escape(self.text)}</pre>"
        # Of its own origin: nothing of the notebook is in reach of the page's scripts.
        return (f'<iframe srcdoc="{html.escape(page)}" sandbox="allow-scripts" '
                'style="width: 100%; height: 640px; border: 0"></iframe>')


class Verdict(_Result):
    """What isoloss.gate returns.

    verdict  "PASS", "INCONCLUSIVE", "FAIL" or "INVALID"; of several candidates the severest
    passed   whether it is PASS
    page     the page of `isoloss report`, HTML
    json     docs/verdict.schema.json; of several candidates `verdicts` has one object for each
    """

    def __init__(self, done, folder):
        super().__init__(done, (folder / "verdict.json").read_text(encoding="utf-8"))
        self.page = (folder / "report.html").read_text(encoding="utf-8")
        self.verdict = self.json.outcome
        self.passed = self.exit_code == 0

    def __bool__(self):
        raise TypeError("a verdict has four outcomes. Ask for .passed, or .verdict, which is "
                        f"{self.verdict} here.")


class Comparison(_Result):
    """What isoloss.compare returns.

    equal  whether nothing differs
    page   the page of `isoloss report` with both, HTML; None if there is none
    """

    def __init__(self, done, text_of_json, files):
        super().__init__(done, text_of_json)
        self.equal = self.exit_code == 0
        self._files = files

    @property
    def page(self):
        with tempfile.TemporaryDirectory(prefix="isoloss-") as folder:
            page = pathlib.Path(folder) / "report.html"
            if program.run("report", *self._files, f"--out={page}").exit_code != 0:
                return None
            return page.read_text(encoding="utf-8")

    def __bool__(self):
        raise TypeError("a comparison is no yes or no. Ask for .equal.")


def _is_own(file):
    """Whether these may be logs of isoloss, which tell their arms themselves: HDF5, a journal, a
    folder of HDF5."""
    if os.path.isdir(file):
        return any(name.endswith(".h5") for name in os.listdir(file))
    with open(file, "rb") as opened:
        return file.endswith(".journal") or opened.read(8) == b"\x89HDF\r\n\x1a\n"


def _arms_of(files):
    """The arms that logs tell, where isoloss trained them."""
    own = [file for file in files if _is_own(file)]
    if not own:
        return set()
    done = program.run("show", *own, "--json")
    if done.exit_code != 0:
        raise done.error()
    shown = json.loads(done.text)
    told = [log["provenance"] for log in shown.get("logs", [shown]) if "provenance" in log]
    return {log["arm"] for log in told if log["experiment_digest"]}


def _paths(logs, name):
    """Of one path or several."""
    paths = [logs] if isinstance(logs, (str, os.PathLike)) else list(logs)
    if not paths:
        raise ValueError(f"{name} has no logs, but at least one is needed")
    return [program.path_text(path) for path in paths]


def _sides(baseline, candidates):
    """The program's words for the logs, and the baseline's arm."""
    words, arms = [], []
    for name, files in {"baseline": baseline, **candidates}.items():
        told = _arms_of(files)
        words += files if told else [f"{name}={file}" for file in files]
        arms.append(told or {name})
    others = set().union(*arms[1:])
    if len(arms[0]) > 1 or arms[0] & others:
        raise ValueError(f"runs of isoloss tell their arms: the baseline's are "
                         f"{', '.join(sorted(arms[0]))}, the candidate's {', '.join(sorted(others))}, "
                         "but the baseline is one arm and no candidate is of it. Pass other logs.")
    return words, min(arms[0])


def _identity(file):
    """Another one after each writing, which puts a new file into the place; None: no file."""
    try:
        found = os.stat(file)
        return found.st_ino, found.st_mtime_ns
    except FileNotFoundError:
        return None


def gate(baseline, candidate, margin=None, **options):
    """The verdict of `isoloss gate` on logs of any program: does the candidate train as well as
    the baseline?

        verdict = isoloss.gate(baseline=["bf16-1.log", "bf16-2.log"],
                               candidate=["fp8-1.log", "fp8-2.log"], margin=0.25)
        verdict.passed, verdict.verdict, verdict.reading.headline

    baseline   a log, or several: one for each seed, in the order of the candidate's
    candidate  likewise; or a dictionary of several candidates by name
    margin     largest accepted difference of the final loss in percent; None: the program's
    options    those of the command: until=1000 is --until 1000, verbose=True is --verbose

    Errors   FileNotFoundError; ProgramError with the program's message if there is no verdict.
             INVALID is a verdict, too.
    """
    candidates = candidate if isinstance(candidate, dict) else {"candidate": candidate}
    logs, arm = _sides(_paths(baseline, "baseline"),
                       {name: _paths(logs, name) for name, logs in candidates.items()})
    words = program.options_of({"margin": margin, **options}, {
        "json": _ITSELF, "keys": "it gives no verdict", "baseline": _ARMS, "against": _ARMS})
    with tempfile.TemporaryDirectory(prefix="isoloss-") as scratch:
        folder = pathlib.Path(options.get("out") or scratch)
        before = _identity(folder / "verdict.json")
        done = program.run("gate", *logs, f"--baseline={arm}", *words,
                           *([] if options.get("out") else [f"--out={scratch}"]))
        # An earlier verdict is no result of this call.
        if _identity(folder / "verdict.json") == before or done.exit_code not in (0, 1, 3, 4):
            raise done.error()
        done.notes = [note for note in done.notes if scratch not in note]
        return Verdict(done, folder)


def compare(a, b, tolerance=None, **options):
    """What `isoloss compare` finds of two logs, two dumps of tensors or two folders of logs: the
    first step, and the first tensor in the order of computation, that differs.

        isoloss.compare("a.h5", "b.h5").first_difference.step

    tolerance  values agree if they differ by no more than this share; None: to the bit

    Errors   as of gate
    """
    files = [program.path_text(path) for path in (a, b)]
    words = program.options_of({"tolerance": tolerance, **options}, {"json": _ITSELF})
    told = program.run("compare", *files, *words, "--json")
    if told.exit_code not in (0, 1):
        raise told.error()
    return Comparison(program.run("compare", *files, *words), told.text, files)


__all__ = ["Comparison", "ProgramError", "Record", "Verdict", "compare", "gate"]
