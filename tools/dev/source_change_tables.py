"""Tables of what tools/dev/source_changes has judged, with exact limits of shares."""

import math


def binomial_tail(count, of, share):
    """Probability of `count` or more."""
    return sum(math.comb(of, k) * share ** k * (1 - share) ** (of - k) for k in range(count, of + 1))


def share_limits(count, of, alpha=0.05):
    """Exact two-sided limits of a share (Clopper and Pearson 1934)."""
    def solve(excess):
        low, high = 0.0, 1.0
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if excess(middle) < 0 else (low, middle)
        return low
    lower = 0.0 if count == 0 else solve(lambda p: binomial_tail(count, of, p) - alpha / 2)
    upper = 1.0 if count == of else solve(
        lambda p: alpha / 2 - 1 + binomial_tail(count + 1, of, p))
    return lower, upper


def share_text(count, of, alpha=0.05):
    if of == 0:
        return "0 of 0"
    lower, upper = share_limits(count, of, alpha)
    return f"{count} of {of} ({100 * count / of:.1f} %; {100 * lower:.1f} to {100 * upper:.1f} %)"


def short(text, length=160):
    text = " ".join(text.split()).replace("|", "/")
    return text if len(text) <= length else text[:length - 3] + "..."


def finding_of(one):
    where = one["where"].removeprefix("golden/curves/")
    return f"{where}: {one['outcome']}; {short('; '.join(one['found']))}"


def bug_lines(results, what):
    """`what` says what the bugs are. Open ones, of which not all looks were taken, count as not
    caught."""
    bugs = [r for r in results if r["kind"] == "bugs"]
    if not bugs:
        return []
    count = lambda outcome: sum(r["outcome"] == outcome for r in bugs)
    changed = sum(any(look["drift"] for look in r["looks"]) for r in bugs)
    lines = ["## Bugs", "", "| | |", "|---|---|",
             f"| caught by the tolerance gate | {share_text(count('caught'), len(bugs))} |",
             f"| changed a bit of a golden before that | {share_text(changed, len(bugs))} |",
             f"| inconclusive in a folder, caught in none | {count('inconclusive')} |",
             f"| pass as drift: only `--exact` stops them | {count('drift')} |",
             f"| survived: no golden changed | {count('survived')} |",
             f"| open: not caught by the looks taken so far | {count(None)} |", "",
             "| bug | outcome | where and by what |", "|---|---|---|"]
    for r in bugs:
        by = finding_of(r["looks"][-1]) if r["outcome"] == "caught" else what.get(r["name"], "")
        lines.append(f"| `{r['name']}` | {outcome_text(r)} | {by} |")
    return lines + [""]


def outcome_text(result):
    return result["outcome"] or f"open after {len(result['looks'])} looks"


def rewrite_lines(results):
    """Open ones, of which not all looks were taken, may still raise an alarm."""
    rewrites = [r for r in results if r["kind"] == "rewrites"]
    if not rewrites:
        return []
    looks = [look for r in rewrites for look in r["looks"]]
    trained = [look for look in looks if look["where"].startswith("training ")]
    bad = [look for look in looks if look["outcome"] != "pass"]
    alarms = [r for r in rewrites if any(look in bad for look in r["looks"])]
    changed = sum(any(look["drift"] for look in r["looks"]) for r in rewrites)
    # One-sided: the 95 % limit is the upper one of a two-sided 90 %.
    bound = share_limits(len(alarms), len(rewrites), 0.1)[1]
    alarmed = lambda among: f"{sum(look in bad for look in among)} of {len(among)}"
    lines = ["## Rewrites", "", "| | |", "|---|---|",
             f"| rewrites with an alarm | {len(alarms)} of {len(rewrites)} "
             f"(95 % upper bound {100 * bound:.1f} %) |",
             f"| open: not all looks taken | {sum(r['outcome'] is None for r in rewrites)} |",
             f"| change a bit of a golden | {changed} |",
             f"| alarms among checks of golden folders | "
             f"{alarmed([look for look in looks if look not in trained])} |",
             f"| alarms among experiments that were trained anew | {alarmed(trained)} |", "",
             "| rewrite | outcome | alarms |", "|---|---|---|"]
    for r in rewrites:
        raised = "<br>".join(finding_of(look) for look in r["looks"] if look in bad)
        lines.append(f"| `{r['name']}` | {outcome_text(r)} | {raised} |")
    return lines + [""]
