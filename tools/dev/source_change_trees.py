"""Builds of changed sources, for tools/dev/source_changes: a clone of the commit takes patches in
turn, and its program says what it makes of goldens and experiments."""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import threading
import time
import tomllib

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "source_changes"
# Folders of golden/curves whose experiments a rewrite is trained with anew. Their
# ensembles are golden/ensembles/NAME-ARM.h5.
EXPERIMENTS = ("dsv3_nano", "dsv3_small", "torchtitan_debug")
ARM = "mxfp8"
SEEDS = (1, 2, 3, 4, 5)
TIME_LIMIT_S = 600
# Exit codes of isoloss that are a verdict; any other is an error.
VERDICTS = {0: "pass", 1: "fail", 3: "invalid", 4: "inconclusive"}


class Fault(Exception):
    """What a person has to mend; the message says where and how."""


def git(*arguments, cwd=ROOT):
    return subprocess.run(["git", *arguments], cwd=cwd, check=True, text=True,
                          capture_output=True).stdout.strip()


def apply_command(patch, *options):
    return ["git", "apply", "-C1", "--whitespace=nowarn", *options, str(patch.path)]


def end(child):
    """First with the signal that has isoloss end its own child processes, of lanes."""
    for signum in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signum)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(timeout=15)
            return


class Commands:
    """Child processes, so that an interrupt ends them and nothing else."""

    def __init__(self):
        self.running = set()
        self.stopped = False
        self.lock = threading.Lock()

    def run(self, command, cwd, limit=None):
        """(exit code, output, errors); the code is None if it took too long."""
        with self.lock:
            if self.stopped:
                raise KeyboardInterrupt
            child = subprocess.Popen(command, cwd=cwd, text=True, errors="replace",
                                     stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                     stderr=subprocess.PIPE, start_new_session=True)
            self.running.add(child)
        try:
            output, errors = child.communicate(timeout=limit)
            code = child.returncode
        except subprocess.TimeoutExpired:
            end(child)
            output, errors = child.communicate()
            code = None
        with self.lock:
            self.running.discard(child)
            if self.stopped:
                raise KeyboardInterrupt
        return code, output, errors

    def stop(self):
        with self.lock:
            self.stopped = True
            for child in self.running:
                end(child)


class Tree:
    """A clone of the commit with a build of its own, which takes patches in turn."""

    def __init__(self, index, commit, commands):
        self.path = BUILD / f"tree-{index}"
        self.scratch = self.path / "build" / "judged"
        self.commit = commit
        self.commands = commands

    def required(self, *command):
        code, output, errors = self.commands.run(list(map(str, command)), self.path)
        if code != 0:
            raise Fault(f"{' '.join(map(str, command))} ends with {code}:\n{(output + errors)[-2000:]}")

    def prepare(self):
        if not (self.path / ".git").exists():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            git("clone", "--quiet", "--shared", "--no-checkout", ROOT, self.path)
        self.required("git", "checkout", "--quiet", "--force", "--detach", self.commit)
        launcher = ["-DCMAKE_CXX_COMPILER_LAUNCHER=ccache"] if shutil.which("ccache") else []
        self.required("cmake", "--preset", "release", "-DISOLOSS_BUILD_TESTS=OFF",
                      "-DISOLOSS_BUILD_BENCHMARKS=OFF", *launcher)
        self.build()

    def build(self):
        self.required("ninja", "-C", "build/release", "-j1", "isoloss")

    @contextlib.contextmanager
    def patched(self, patch):
        self.required("git", "checkout", "--quiet", "--force", ".")
        self.required("git", "clean", "--quiet", "-fd", "lib", "tools")
        self.required(*apply_command(patch))
        try:
            self.build()
            yield
        finally:
            git("checkout", "--quiet", "--force", ".", cwd=self.path)
            git("clean", "--quiet", "-fd", "lib", "tools", cwd=self.path)

    def isoloss(self, *arguments):
        """What a command of the built program says: its outcome, and its JSON if it has any."""
        begin = time.monotonic()
        code, output, errors = self.commands.run(
            ["build/release/bin/isoloss", *map(str, arguments), "--json"], self.path, TIME_LIMIT_S)
        said = {"seconds": round(time.monotonic() - begin, 1), "json": {}}
        with contextlib.suppress(json.JSONDecodeError):
            said["json"] = json.loads(output)
        if code is None:
            said["outcome"] = "timeout"
        elif code < 0:
            said["outcome"] = f"crash ({signal.Signals(-code).name})"
        elif code not in VERDICTS or not said["json"] or "error" in said["json"]:
            said["outcome"] = f"error (exit code {code})"
        else:
            said["outcome"] = VERDICTS[code]
        said["errors"] = [said["json"]["error"]["message"]] if "error" in said["json"] else \
            errors.strip().splitlines()[-1:]
        return said

    def check_golden(self, folder):
        """What `golden check` says of one folder: the tolerance gate's outcome, what it found,
        and whether a bit of a golden changed. Keeps logs and probes for `train`."""
        out = self.scratch / pathlib.Path(folder).name
        said = self.isoloss("golden", "check", "--draft", "--out", out, folder)
        one = (said["json"].get("goldens") or [{}])[0]
        found = [f"lane {lane['lane']}: {lane['why']}" for lane in one.get("lanes", [])
                 if lane["outcome"] == "fail"]
        found += [f"{arm['arm']}: {arm['levels']}" for arm in one.get("statistical", [])
                  if arm["outcome"] != "PASS"]
        if said["outcome"] not in VERDICTS.values():
            found = said["errors"]
        found = [text.replace(f"{self.scratch}/", "") for text in found]
        if out.name not in EXPERIMENTS:
            shutil.rmtree(out, ignore_errors=True)
        return {"where": folder, "outcome": said["outcome"], "drift": one.get("drift", False),
                "found": found, "seconds": said["seconds"]}

    def train(self, name, approved):
        """Trains SEEDS of an experiment and asks whether they are still what the logs in `approved`
        are. The oracle's part is the probe that check_golden left of the first of them."""
        folder = self.path / "golden" / "curves" / name
        experiment = tomllib.loads((folder / "experiment.toml").read_text())
        out = self.scratch / f"training {name}"
        if not (self.scratch / name).exists():  # the look at it was in an earlier call
            self.check_golden(f"golden/curves/{name}")
        ran = self.isoloss("run", folder / "experiment.toml", "--arm", ARM, "--seeds", seed_list(),
                           "--out", out)
        probes = sorted(self.scratch.glob(f"{name}/**/{ARM}-seed{SEEDS[0]}.probe.h5"))
        said = ran if ran["outcome"] != "pass" else self.isoloss(
            "gate", *sorted(out.glob("*.h5")), "--against", approved / name,
            *(["--probe", *probes] if probes else []),
            "--ensemble", f"golden/ensembles/{name}-{ARM}.h5",
            "--policy", folder / experiment["gate"]["policy"])
        found = [f"{c['level']} {c['name']}: {c['quantity']} {c['value']} {c['relation']} {c['limit']} "
                 f"{c['unit']} ({c['evidence']})" for c in said["json"].get("checks", [])
                 if c["gates"] and c["outcome"] != "PASS"]
        if said["outcome"] not in VERDICTS.values():
            found = said["errors"]
        found = [text.replace(f"{self.scratch}/", "") for text in found]
        drift = any(seed["step"] is not None for seed in said["json"].get("first_divergences", []))
        return {"where": f"training {name}", "outcome": said["outcome"], "drift": drift,
                "found": found, "seconds": ran["seconds"]}


def seed_list():
    return ",".join(map(str, SEEDS))
