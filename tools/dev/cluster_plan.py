#!/usr/bin/python3
"""Simulates a sweep of many runs on a cluster from measured costs of one run, and says what
bounds it: processors, the scheduler, the metadata of the file system, array limits, the judge.

Usage: tools/dev/cluster_plan [options]

Examples:
  tools/dev/cluster_plan                               10,000 runs on 100 nodes of 64 cores
  tools/dev/cluster_plan --steps 5000 --per-element 4   longer runs, four in an element of the array
  tools/dev/cluster_plan --table                       Markdown table of fourteen cases

It is a discrete-event simulation with one queue for each thing that is shared. An element of the
array is one process on one core; it trains its runs one after another. The scheduler starts at most
so many elements a second. The metadata server answers so many operations a second, in the order in
which they come. A node fails at exponentially distributed times, comes back after a while, and its
elements are started again: finished runs are kept, one under way goes on from its last checkpoint.
Each run takes its fixed part and its steps, times a lognormal factor. The judge comes last.

MEASURED are costs of isoloss. ASSUMED are properties of a
cluster that nobody has measured here, with their source. Each is an option.
"""

import argparse
import collections
import dataclasses
import heapq
import math
import random

# Of isoloss, on a machine of two cores at 2.1 GHz or so; operations were counted by `strace -f -y`.
MEASURED = {
    "start_seconds": (0.13, "start of the program, corpus and plan of an element, processor time"),
    "fixed_seconds": (0.46, "a run of experiments/mxfp8_vs_bf16 without steps: evaluations, log"),
    "step_seconds": (0.0238, "one step of it, MXFP8, one worker, processor time"),
    "begin_operations": (45, "file system operations of a run up to its first step"),
    "end_operations": (18, "those from its last step to its finished log"),
    "checkpoint_operations": (26, "those of one checkpoint"),
    "refresh_operations": (7, "those of one partial log, the HDF5 file of a live run"),
    "scans": (0, "how often a run reads the whole folder; it was 3"),
    "entries_per_operation": (750, "entries of a folder in one getdents64"),
    "log_megabytes": (0.6, "a finished log"),
    "judge_log_seconds": (0.023, "reading and judging one log, user time"),
    "judge_fork_seconds": (0.0085, "more for one log: the process that reads it is made"),
    "judge_fork_seconds_per_gigabyte": (0.08, "more for that process, by what the judge holds then"),
    "judge_log_megabytes": (0.15, "memory of the judge for one log"),
}
ASSUMED = {
    "start_rate": (20.0, "elements that the scheduler starts in a second"),
    "metadata_rate": (5000.0, "metadata operations of the file system in a second; the paper of Dell on "
                              "Lustre reports 15,000 creations and 400,000 stats"),
    "array_size": (1000, "elements of one array: MaxArraySize 1001, slurm.conf(5) of Slurm 22.05"),
    "job_limit": (10000, "jobs that the scheduler holds, each element one: MaxJobCount, likewise"),
    "job_age": (300.0, "seconds in which an ended job still counts: MinJobAge, likewise"),
    "node_mtbf_hours": (5000.0, "hours between two failures of one node"),
    "node_down_seconds": (600.0, "seconds until a failed node is back"),
    "checkpoint_seconds": (600.0, "seconds between checkpoints, log.checkpoint_minutes"),
    "refresh_seconds": (600.0, "seconds between partial logs, log.refresh_seconds; an experiment's default is 5"),
    "spread": (0.1, "standard deviation of the logarithm of a run's time"),
}


# A run takes at most one part in so many of its time for partial logs (kPause of recorder.cc).
REFRESH_PAUSE = 20


@dataclasses.dataclass
class Element:
    """Runs of one element of the array that are not finished: seconds left of each."""
    left: list
    node: int = -1
    life: int = 0  # of its present execution: an event of an earlier one is void
    began: float = 0.0


class Server:
    """Answers operations one after another."""

    def __init__(self, rate):
        self.rate, self.free, self.total = rate, 0.0, 0.0
        self.offered = collections.Counter()  # by second
        self.longest_wait = 0.0

    def serve(self, now, operations):
        """When the last of them is answered."""
        self.offered[int(now)] += operations
        self.total += operations
        self.longest_wait = max(self.longest_wait, self.free - now)
        self.free = max(self.free, now) + operations / self.rate
        return self.free


class Cluster:
    """One sweep, from its submission to its last log."""

    def __init__(self, plan):
        self.plan = plan
        self.random = random.Random(plan.seed)
        self.events, self.count = [], 0
        self.server = Server(plan.metadata_rate)
        self.free = [plan.cores] * plan.nodes
        self.room = list(range(plan.nodes))  # nodes with free cores, the first ones first
        self.up = [True] * plan.nodes
        self.running = [set() for _ in range(plan.nodes)]
        self.waiting = collections.deque()  # submitted
        self.unsubmitted = collections.deque(self.elements())
        self.jobs = 1  # that the scheduler holds; the judge is the first
        self.submissions = self.arrays = self.failures = self.finished = 0
        self.next_start = self.work = self.lost = self.end = 0.0
        self.held_back = 0.0  # seconds in which cores were free and the scheduler's limit kept elements out
        self.blocked_since = None

    def elements(self):
        plan = self.plan
        whole = plan.fixed_seconds + plan.steps * plan.step_seconds
        self.durations = [whole * math.exp(self.random.gauss(0, plan.spread)) for _ in range(plan.runs)]
        for first in range(0, plan.runs, plan.per_element):
            yield Element(self.durations[first:first + plan.per_element])

    def at(self, time, call, *arguments):
        self.count += 1
        heapq.heappush(self.events, (time, self.count, call, arguments))

    def run(self):
        self.submit(0.0)
        for node in range(self.plan.nodes):
            self.plan_failure(0.0, node)
        while self.finished < self.plan.runs:
            now, _, call, arguments = heapq.heappop(self.events)
            call(now, *arguments)
        return self

    # ---- the scheduler -----------------------------------------------------

    def submit(self, now):
        """Whole arrays, as long as the scheduler takes them."""
        before = self.arrays
        while self.unsubmitted:
            size = min(self.plan.array_size, len(self.unsubmitted))
            if self.jobs + size > self.plan.job_limit:
                break
            self.jobs += size
            self.arrays += 1
            self.waiting.extend(self.unsubmitted.popleft() for _ in range(size))
        self.submissions += self.arrays > before
        if self.unsubmitted and not self.waiting and self.blocked_since is None:
            self.blocked_since = now
        if self.waiting and self.blocked_since is not None:
            self.held_back += now - self.blocked_since
            self.blocked_since = None
        self.dispatch(now)

    def dispatch(self, now):
        while self.waiting and self.room:
            node = self.room[-1]
            if not self.up[node] or self.free[node] == 0:
                self.room.pop()
                continue
            self.free[node] -= 1
            element = self.waiting.popleft()
            element.node = node
            element.life += 1
            self.running[node].add(id(element))
            self.next_start = max(now, self.next_start + 1 / self.plan.start_rate)
            self.at(self.next_start, self.start, element, element.life)

    def give_back(self, now, node):
        if not self.up[node]:
            return
        self.free[node] += 1
        if not self.room or self.room[-1] != node:
            self.room.append(node)
        self.dispatch(now)
        if self.unsubmitted and not self.waiting and self.blocked_since is None:
            self.blocked_since = now

    def purge(self, now):
        self.jobs -= 1
        if self.unsubmitted and self.jobs + min(self.plan.array_size, len(self.unsubmitted)) <= self.plan.job_limit:
            self.submit(now)

    # ---- an element --------------------------------------------------------

    def start(self, now, element, life):
        if element.life != life:
            return
        element.began = 0.0
        self.at(now + self.plan.start_seconds, self.begin_run, element, life)

    def begin_run(self, now, element, life):
        if element.life != life:
            return
        plan = self.plan
        scanned = plan.scans * math.ceil(self.finished / plan.entries_per_operation)
        ready = self.server.serve(now, plan.begin_operations + scanned)
        element.began = ready
        self.piece(ready, element, life, element.left[0], self.plan.refresh_seconds)

    def piece(self, now, element, life, left, pause):
        """Trains until the next partial log, or until the end. `left` seconds of training are to do."""
        if left <= pause:
            self.at(now + left, self.end_run, element, life)
        else:
            self.at(now + pause, self.refresh, element, life, left - pause)

    def refresh(self, now, element, life, left):
        if element.life != life:
            return
        done = self.server.serve(now, self.plan.refresh_operations)
        self.piece(done, element, life, left, max(self.plan.refresh_seconds, REFRESH_PAUSE * (done - now)))

    def end_run(self, now, element, life):
        if element.life != life:
            return
        plan = self.plan
        checkpoints = int(element.left[0] / plan.checkpoint_seconds)
        done = self.server.serve(now, plan.end_operations + checkpoints * plan.checkpoint_operations)
        self.at(done, self.next_run, element, life)

    def next_run(self, now, element, life):
        if element.life != life:
            return
        self.work += element.left.pop(0)
        self.finished += 1
        self.end = now
        if element.left:
            self.begin_run(now, element, life)
            return
        self.running[element.node].discard(id(element))
        self.at(now + self.plan.job_age, self.purge)
        self.give_back(now, element.node)

    # ---- failures ----------------------------------------------------------

    def plan_failure(self, now, node):
        hours = self.random.expovariate(1 / self.plan.node_mtbf_hours)
        self.at(now + 3600 * hours, self.fail, node)

    def fail(self, now, node):
        plan = self.plan
        self.up[node] = False
        self.free[node] = plan.cores
        hit = self.running[node]
        self.running[node] = set()
        self.failures += 1
        for element in self.by_id(hit):
            element.life += 1
            done = max(0.0, now - element.began) if element.began else 0.0
            kept = min(done, element.left[0]) // plan.checkpoint_seconds * plan.checkpoint_seconds
            self.lost += min(done, element.left[0]) - kept
            self.work += kept
            element.left[0] -= kept
            self.waiting.appendleft(element)
        self.at(now + plan.node_down_seconds, self.repair, node)
        self.dispatch(now)

    def by_id(self, ids):
        found = {id(a[0]): a[0] for _, _, _, a in self.events if a and isinstance(a[0], Element)}
        return [found[i] for i in ids if i in found]

    def repair(self, now, node):
        self.up[node] = True
        self.room.append(node)
        self.plan_failure(now, node)
        self.dispatch(now)


def judge_of(plan):
    """(seconds, gigabytes): logs are read one after another, and all stay."""
    gigabytes = plan.runs * plan.judge_log_megabytes / 1000
    fork = plan.judge_fork_seconds + plan.judge_fork_seconds_per_gigabyte * gigabytes / 2
    return plan.runs * (plan.judge_log_seconds + fork), gigabytes


def figures_of(plan):
    done = Cluster(plan).run()
    cores = plan.nodes * plan.cores
    whole = sum(done.durations)
    ideal = max(whole / cores, max(done.durations))
    seconds, gigabytes = judge_of(plan)
    bounds = {
        "processors": whole / cores,
        "longest element": max(sum(done.durations[i:i + plan.per_element])
                               for i in range(0, plan.runs, plan.per_element)),
        "starts": math.ceil(plan.runs / plan.per_element) / plan.start_rate,
        "metadata": done.server.total / plan.metadata_rate,
        "held back by the job limit": done.held_back,
    }
    return {
        "elements": math.ceil(plan.runs / plan.per_element),
        "arrays": done.arrays,
        "submissions": done.submissions,
        "makespan": done.end,
        "ideal": ideal,
        "busy": whole / cores / done.end,
        "peak_operations": max(done.server.offered.values()),
        "mean_operations": done.server.total / done.end,
        "longest_wait": done.server.longest_wait,
        "failures": done.failures,
        "lost_hours": done.lost / 3600,
        "log_gigabytes": plan.runs * plan.log_megabytes / 1000,
        "judge_seconds": seconds,
        "judge_gigabytes": gigabytes,
        "bound": max(bounds, key=bounds.get),
        "bounds": bounds,
    }


def print_figures(plan, of):
    run = plan.fixed_seconds + plan.steps * plan.step_seconds
    print(f"{plan.runs} runs of {run:.1f} s, {plan.per_element} in an element, on {plan.nodes} nodes of "
          f"{plan.cores} cores")
    print(f"  array jobs            {of['arrays']}, with {of['elements']} elements, in {of['submissions']} submission"
          f"{'s' if of['submissions'] != 1 else ''}")
    print(f"  makespan              {of['makespan']:.1f} s; ideal {of['ideal']:.1f} s")
    print(f"  busy share            {100 * of['busy']:.1f} %")
    print(f"  metadata operations   {of['mean_operations']:.0f} a second, {of['peak_operations']:.0f} in the "
          f"busiest one; longest wait {of['longest_wait']:.1f} s")
    print(f"  failed nodes          {of['failures']}; {of['lost_hours']:.2f} core hours computed again")
    print(f"  logs                  {of['log_gigabytes']:.1f} GB")
    print(f"  judge                 {of['judge_seconds']:.0f} s, {of['judge_gigabytes']:.2f} GB")
    print("  alone each would take " + ", ".join(f"{name} {seconds:.1f} s" for name, seconds in of["bounds"].items()))
    print(f"  what bounds it        {of['bound']}")


# What each row of the table changes.
ROWS = (
    {}, {"per_element": 2}, {"per_element": 16}, {"steps": 5000, "per_element": 2},
    {"steps": 50000, "per_element": 2},
    {"steps": 5000, "per_element": 2, "nodes": 10}, {"steps": 5000, "per_element": 16, "nodes": 1000},
    {"steps": 5000, "per_element": 16, "runs": 30000}, {"steps": 5000, "per_element": 16, "runs": 100000},
    {"steps": 5000, "per_element": 16, "runs": 100000, "scans": 3},
    {"steps": 5000, "per_element": 2, "metadata_rate": 500.0},
    {"steps": 5000, "per_element": 2, "refresh_seconds": 5.0},
    {"steps": 50000, "per_element": 2, "refresh_seconds": 5.0},
    {"steps": 50000, "per_element": 2, "node_mtbf_hours": 10.0},
)


def print_table(plan):
    print("| runs | nodes | s a run | in an element | other | arrays (submissions) | makespan, s | ideal, s | busy, % "
          "| metadata/s: mean, peak | judge: s, GB | bounded by |")
    print("|---|---|---|---|---|---|---|---|---|---|---|---|")
    for row in ROWS:
        one = argparse.Namespace(**{**vars(plan), **row})
        of = figures_of(one)
        other = ", ".join(f"{key} {value:g}" for key, value in row.items()
                          if key in ("scans", "metadata_rate", "refresh_seconds", "node_mtbf_hours")) or "–"
        seconds = one.fixed_seconds + one.steps * one.step_seconds
        print(f"| {one.runs:,} | {one.nodes:,} | {seconds:,.0f} | {one.per_element} | {other.replace('_', ' ')} | "
              f"{of['arrays']} ({of['submissions']}) | {of['makespan']:,.0f} | {of['ideal']:,.0f} | "
              f"{100 * of['busy']:.0f} | {of['mean_operations']:,.0f}, {of['peak_operations']:,.0f} | "
              f"{of['judge_seconds']:,.0f}, {of['judge_gigabytes']:.1f} | {of['bound']} |")


def positive(kind):
    def read(text):
        value = kind(text)
        if not value > 0:
            raise argparse.ArgumentTypeError(f"{text} is given, but it must be above 0")
        return value
    return read


def not_negative(kind):
    def read(text):
        value = kind(text)
        if not 0 <= value < math.inf:
            raise argparse.ArgumentTypeError(f"{text} is given, but it must be 0 or more, and finite")
        return value
    return read


# A rate or a time between events; all else may be 0.
DIVISORS = ("entries_per_operation", "start_rate", "metadata_rate", "array_size", "job_limit", "node_mtbf_hours",
            "checkpoint_seconds", "refresh_seconds")


def main():
    parser = argparse.ArgumentParser(
        prog="tools/dev/cluster_plan", description=__doc__.split("\n\nUsage")[0],
        epilog=__doc__[__doc__.index("Examples:"):], formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=positive(int), default=10000, help="runs of the sweep (default: 10000)")
    parser.add_argument("--nodes", type=positive(int), default=100, help="nodes (default: 100)")
    parser.add_argument("--cores", type=positive(int), default=64, help="cores of one (default: 64)")
    parser.add_argument("--per-element", type=positive(int), default=1,
                        help="runs of one element of the array, one after another (default: 1)")
    parser.add_argument("--steps", type=not_negative(int), default=140, help="steps of a run (default: 140)")
    parser.add_argument("--seed", type=int, default=1, help="of the simulation's random numbers (default: 1)")
    parser.add_argument("--table", action="store_true", help="print a table of variations in place of one sweep")
    for group, costs in (("measured", MEASURED), ("assumed", ASSUMED)):
        options = parser.add_argument_group(group)
        for name, (value, what) in costs.items():
            check = positive if name in DIVISORS else not_negative
            options.add_argument("--" + name.replace("_", "-"), type=check(type(value)), default=value,
                                 help=f"{what} (default: {value:g})")
    plan = parser.parse_args()
    if plan.array_size >= plan.job_limit:
        parser.error(f"--array-size is {plan.array_size}, but a scheduler that holds {plan.job_limit} jobs "
                     "(--job-limit) takes no such array beside the judge's job")
    if plan.table:
        print_table(plan)
    else:
        print_figures(plan, figures_of(plan))


if __name__ == "__main__":
    main()
