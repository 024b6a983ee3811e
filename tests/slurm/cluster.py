"""Jobs in the Slurm of tools/dev/slurm: submits lib/isoloss/sweeps/job.sh, and breaks things under it."""

import contextlib
import copy
import os
import pathlib
import re
import shutil
import signal
import subprocess
import threading
import time

FOLDER = pathlib.Path(os.environ.get("ISOLOSS_SLURM_FOLDER", "/nonexistent"))
SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "lib" / "isoloss" / "sweeps" / "job.sh"
# A job that waits longer hangs. Nothing else is said of time.
HANG_SECONDS = 300
STEP = re.compile(r"\[mxfp8-seed1\] step:\s*(\d+)  loss:\s*([0-9.]+)")


def call(*command):
    """Output of a command that must succeed. slurmctld may be busy for a while."""
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=HANG_SECONDS)
    if done.returncode != 0:
        raise AssertionError(f"{command}: {done.returncode}, {done.stderr}")
    return done.stdout.strip()


def wait_until(condition, what):
    """The first true value of condition()."""
    end = time.monotonic() + HANG_SECONDS
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.05)
    raise AssertionError(f"after {HANG_SECONDS} s still not: {what() if callable(what) else what}")


def send(pids, number):
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def processes():
    """(process id, its name, namespace of its host name), of all."""
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                yield (int(entry.name), (entry / "comm").read_text().strip(), os.readlink(entry / "ns/uts"))


def environment_of(pid):
    with contextlib.suppress(OSError):
        words = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        return dict(word.decode(errors="replace").split("=", 1) for word in words if b"=" in word)
    return {}


def daemon(name):
    return int((FOLDER / f"{name}.pid").read_text())


def on_node(node):
    """All processes on it, its slurmd among them."""
    namespace = os.readlink(f"/proc/{daemon(node)}/ns/uts")
    return [pid for pid, _, uts in processes() if uts == namespace]


def start_node(node):
    call(FOLDER / "start-node", node)


def stop_controller():
    pid = daemon("slurmctld")
    os.kill(pid, signal.SIGTERM)
    wait_until(lambda: not pathlib.Path(f"/proc/{pid}").exists(), "slurmctld ends")


def start_controller():
    call(FOLDER / "start-slurmctld")


def restore():
    """The cluster as it was at the beginning: nothing runs, all nodes are idle."""
    if subprocess.run(["scontrol", "ping"], capture_output=True).returncode != 0:
        start_controller()
    subprocess.run(["scancel", "--user=root"], capture_output=True)
    subprocess.run(["scancel", "--user=root", "--state=SUSPENDED"], capture_output=True)
    for node in ("n0", "n1", "n2"):
        if not pathlib.Path(f"/proc/{daemon(node)}").exists():
            start_node(node)
    for node in ("n0", "n1", "n2"):
        # Refused for a node that is up.
        subprocess.run(["scontrol", "update", f"NodeName={node}", "State=RESUME"], capture_output=True)
    idle = ["sinfo", "--noheader", "--Node", "--partition=low", "--states=idle", "--format=%N"]
    wait_until(lambda: len(call(*idle).split()) == 3, lambda: call("sinfo"))


class Job:
    """One submission of job.sh; several may work in one folder, one after the other."""

    def __init__(self, out, command, launcher, *options, tasks=2, script=SCRIPT, **environment):
        self.out, self.launcher = out, launcher
        self.output = out.parent / f"{out.name}.txt"
        variables = {"OUT": str(out), "LAUNCHER": launcher, "END_SECONDS": "10", "OMPI_ALLOW_RUN_AS_ROOT": "1",
                     "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "UCX_LOG_LEVEL": "fatal", **environment}
        self.number = subprocess.run(
            ["sbatch", "--parsable", f"--output={self.output}", f"--ntasks={tasks}", "--time=30", *options,
             str(script), *map(str, command)],
            env={**os.environ, **variables}, check=True, text=True, capture_output=True).stdout.strip()
        self.id = self.number

    def element(self, index):
        """The job of one element of an array, whose folder and output are named after it."""
        element = copy.copy(self)
        element.id = f"{self.number}_{index}"
        element.number = element.shown()["JobId"]
        element.out = self.out.with_name(f"{self.out.name}-{index}")
        element.output = self.output.with_name(f"{self.out.name}-{index}.txt")
        return element

    @property
    def state_folder(self):
        """Of the last attempt."""
        attempts = (self.out / f".slurm-{self.id}").glob("attempt-*")
        return max(attempts, key=lambda attempt: int(attempt.name.removeprefix("attempt-")), default=self.out)

    def text(self):
        return self.output.read_text(errors="replace") if self.output.exists() else ""

    def shown(self):
        """What scontrol says of it."""
        return dict(re.findall(r"(\w+)=(\S*)", call("scontrol", "--oneliner", "show", "job", self.id)))

    def steps(self):
        """[(step, loss)], as printed so far, in that order."""
        return STEP.findall(self.text())

    def wait_for_step(self, step):
        """Until this attempt has printed it."""
        def printed():
            attempt = self.text().rpartition(f"job {self.id}, attempt ")[2]
            return any(int(s) >= step for s, _ in STEP.findall(attempt))
        wait_until(printed, lambda: f"step {step} in: {self.text()[-3000:]}")

    def wait_for_new_step(self, size):
        """Until a step stands behind the first `size` characters of the output in a later attempt."""
        def printed():
            attempt = self.text()[size:].partition(", attempt ")[2]
            return STEP.search(attempt) or self.is_over()
        wait_until(printed, lambda: f"a new step in: {self.text()[-3000:]}")

    def is_over(self):
        return self.shown()["JobState"] in ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL")

    def wait_for_end(self):
        def state():
            return self.shown()["JobState"] if self.is_over() else None
        return wait_until(state, lambda: f"the end; {self.shown()}; {self.text()[-3000:]}")

    def rank(self, rank):
        return int((self.state_folder / f"pid.{rank}").read_text())

    def node(self, rank):
        return (self.state_folder / f"host.{rank}").read_text().strip()

    def launchers(self):
        name = self.launcher.split()[0]
        return [pid for pid, comm, _ in processes()
                if comm == name and environment_of(pid).get("SLURM_JOB_ID") == self.number]

    def left(self):
        """Processes of it."""
        return [(pid, name) for pid, name, _ in processes()
                if name != "slurmd" and environment_of(pid).get("SLURM_JOB_ID") == self.number]

    @contextlib.contextmanager
    def slowed(self):
        """Its processes get a tenth of the time, so that a run of seconds lasts until some clock strikes."""
        over = threading.Event()

        def beat():
            known = set()
            while not over.is_set():
                for rank in (0, 1):
                    with contextlib.suppress(OSError, ValueError):
                        known.add(self.rank(rank))
                send(known, signal.SIGSTOP)
                over.wait(0.18)
                send(known, signal.SIGCONT)
                over.wait(0.02)
        thread = threading.Thread(target=beat)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


@contextlib.contextmanager
def small_disk(folder, megabytes):
    """A file system of its own at `folder`."""
    folder.mkdir(parents=True)
    call("mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", folder)
    try:
        yield
    finally:
        call("umount", "--lazy", folder)
        shutil.rmtree(folder)
