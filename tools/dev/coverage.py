#!/usr/bin/python3
"""Measures which lines and branches between corpus and log `isoloss golden
check` runs, and fails if the share is below the recorded one.

Usage: tools/dev/coverage [--record] [--no-run]
  --record   write the shares and the lines that no golden runs to
             golden/coverage.txt in place of comparing with it
  --no-run   read what the last run counted

It builds library and program with gcov in build/coverage (once some ten
minutes on two cores), runs the suite, whose lanes run in several processes, and
merges what all of them count.

What counts: the files of MEASURED. What does not, by these rules alone:
  * a statement that throws or asserts (THROWING): ThrowError(...), Refuse(...)
    and the like, to its semicolon, and what stands before it in its block of an
    `if` or `else`; a function that is declared [[noreturn]]; a `catch`;
  * of branches, what the compiler adds to a line without a condition and for
    exceptions, and the direction of a condition that leads to such a statement
    and was not taken. A condition has two directions, in however many copies
    the compiler compiles it (templates, targets, inlined calls);
  * lines that hold no word of code, such as a closing brace;
  * the functions of BESIDE_THE_WAY.
"""

import argparse
import functools
import itertools
import json
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "coverage"
RECORD = ROOT / "golden" / "coverage.txt"
# The oracle is not measured, and counting would take it ten times as long.
FLAGS = ("-O1 -DNDEBUG --coverage -fprofile-update=atomic "
         "'-fprofile-exclude-files=.*isoloss/(oracle|step_checks)/.*'")

# Everything between corpus and log; of runlog what writes, of train what
# trains (parity and run_again compare runs; cost and memory say what a run would
# need). transport/operation names what failed, formats/format_range prints formats.
MEASURED = re.compile(
    r"(?:include|lib)/isoloss/(?:(corpus|formats(?!/format_range)|kernels|precision|optim|expert_parallel|"
    r"transport(?!/operation)|model|probes|checkpoint)/|"
    r"base/(crc32c|digest|double_double|exact_sum|matrix|"
    r"portable_math|rng|threads)\.|"
    r"train/(?!parity|run_again|cost|memory)|"
    r"config/(reader|writer|values)\.|"
    r"hdf5/trailer\.|"
    r"runlog/(journal|recorder|rows|rows_codec|run_lock|"
    r"schema_writer|tensor_dump|writer)\.)")
# Functions in these files that lie beside the way from corpus to log, and what
# they are for: (path, functions, purpose).
BESIDE_THE_WAY = (
    ("train/learner.cc", "GoOnFrom", "run_again"),
    ("train/continuation.cc", "FindOrigin", "run_again"),
    ("checkpoint/find.cc", "FindNewestUpTo", "run_again"),
    ("train/runner.cc", "SeedsIn FindOtherSeeds", "which seeds a verdict judges"),
    ("train/run_description.cc",
     "RunDifference LogDifference FinishedDifference KeyDifferences LineDifference "
     "IsLogged IsDumped", "what a refusal names"),
    ("config/reader.cc", "RejectUnknown FallbackRemedy InBrackets Holds",
     "what an error of an experiment names"),
    ("config/values.cc", "IntegersText WordsRule ToString",
     "what an error of an experiment names"),
    ("config/writer.cc", "Words", "digests of policies"),
    ("train/runner.cc", "DescribeLeftovers", "what a refusal names"),
    ("precision/resolved_recipe.cc", "NameParts", "what an error names"),
    ("formats/quantization.cc",
     "ScaleRuleByName WordsOf NumberAfter "
     "TakeCell TakeWord QuantizationByName", "show --what-if, tests with vectors"),
    ("formats/quantization.cc", "WrongScale WrongHistory WrongQuantization",
     "what a refusal names"),
    ("precision/wrong_precision.cc",
     "WrongPieces WrongAccumulation WrongPrecision WrongAttention WrongNormGains",
     "what a refusal names"),
    ("formats/mx_block.cc", "DequantizeMx", "comparisons of dumps"),
    ("kernels/scalar/rowwise.cc", "RmsNormBackwardLeaves RmsNormBackward "
     "RmsNormBackwardAdd SumOfSquares", "definitions that tests compare with"),
    ("hdf5/trailer.cc", "VersionWithoutHdf5", "readers"),
    ("runlog/run_lock.cc", "Holder", "what a refusal names"),
    ("transport/message.cc", "Name ExplainFields Damaged Where",
     "what an error names"),
    ("transport/rank_threads.cc", "FindUnexpected StuckRanks",
     "what an error names"),
    ("transport/frames.cc", "SayMissing", "what an error names"),
    ("transport/mpi_module.cc", "ErrorText", "what an error names"),
    ("base/executor.cc", "RethrowFirst", "errors"),
)
THROWING = re.compile(
    r"\b(Throw[A-Z]\w*|Fail|FailRule|FailAt|Reject|Refuse|Damaged|ReportLoss|"
    r"ReportReplica|EndJob|ISOLOSS_ASSERT)\(|\bthrow\b")
OPENS_REFUSAL = re.compile(r"^\s*(if\b|\} else\b|else\b).*")
CATCHES = re.compile(r"^\s*\} catch \(.*\) \{$")
CONDITION = re.compile(r"\b(if|while|for|switch|case)\b|&&|\|\||\?")
# How many lines a condition may lie before the statement that it leads to.
REACH = 3


def statement_end(lines, first):
    """The line of the semicolon that ends the statement of line `first`."""
    depth = 0
    for number in range(first, len(lines)):
        text = re.sub(r'"(\\.|[^"\\])*"', '""', lines[number])
        depth += text.count("(") - text.count(")")
        if depth <= 0 and ";" in text:
            return number
    return first


def indentation(text):
    return len(text) - len(text.lstrip())


def block_before(lines, number):
    """The first line of the `if` or `else` block that line `number` ends; the
    line itself if there is none."""
    depth = indentation(lines[number])
    first = number
    while first > 0 and (not lines[first - 1].strip()
                         or indentation(lines[first - 1]) >= depth):
        first -= 1
    opener = first - 1
    while opener > 0 and not lines[opener].lstrip().startswith(("if", "}", "else")) \
            and indentation(lines[opener]) > depth - 4:
        opener -= 1
    return first if opener >= 0 and OPENS_REFUSAL.match(lines[opener]) else number


def throwing_lines(path):
    """Numbers, from 1, of the lines of statements that throw, of what leads to
    nothing else, and of what catches."""
    lines = path.read_text().splitlines()
    found = set()
    for number, text in enumerate(lines):
        if THROWING.search(text.split("//")[0]):
            found.update(range(block_before(lines, number) + 1,
                               statement_end(lines, number) + 2))
        if CATCHES.match(text):
            end = number + 1
            while indentation(lines[end]) > indentation(text) or not lines[end].strip():
                end += 1
            found.update(range(number + 1, end + 1))
        if "[[noreturn]]" in text:
            end = number
            while end < len(lines) and not lines[end].startswith("}") \
                    and not lines[end].startswith("  }"):
                if lines[end].rstrip().endswith(";") and "{" not in "".join(
                        lines[number:end + 1]):
                    break
                end += 1
            found.update(range(number + 1, end + 2))
    return found


def lines_beside(path):
    """Numbers, from 1, of the lines of the functions of BESIDE_THE_WAY."""
    names = [name for file, functions, _ in BESIDE_THE_WAY
             if str(path).endswith(file) for name in functions.split()]
    if not names:
        return set()
    lines = path.read_text().splitlines()
    begins = re.compile(r"^( {0,2})\S.*\b(" + "|".join(names) + r")\(.*")
    found = set()
    for first, text in enumerate(lines):
        match = begins.match(text)
        if not match or text.strip().startswith(("return", "//")):
            continue
        end = match.group(1) + "}"
        last = first
        # To the closing brace; a declaration ends before it.
        while last < len(lines) and not lines[last].startswith(end) and \
                not (lines[last].endswith(";") and "{" not in "".join(lines[first:last])):
            last += 1
        if last < len(lines) and lines[last].startswith(end):
            found.update(range(first + 1, last + 2))
    return found


def leads_to_throw(number, throwing):
    return any(line in throwing for line in range(number, number + REACH + 1))


def run(command, **options):
    print("+", " ".join(map(str, command)), file=sys.stderr)
    return subprocess.run(command, cwd=ROOT, **options)


def build_and_run():
    run(["tools/dev/install_packages", "coverage"], check=True)
    run(["cmake", "-S", ".", "-B", BUILD, "-G", "Ninja",
         "-DCMAKE_BUILD_TYPE=None", f"-DCMAKE_CXX_FLAGS={FLAGS}",
         # What the compiler says with other switches is none of this script.
         "-DISOLOSS_WARNINGS_AS_ERRORS=OFF",
         "-DISOLOSS_BUILD_TESTS=OFF", "-DISOLOSS_BUILD_BENCHMARKS=OFF"],
        check=True, stdout=subprocess.DEVNULL)
    run(["cmake", "--build", BUILD, "--target", "isoloss"], check=True)
    for counts in BUILD.rglob("*.gcda"):
        counts.unlink()
    result = run([BUILD / "bin" / "isoloss", "golden", "check", "--exact",
                  "--draft"])
    if result.returncode != 0:
        sys.exit(f"coverage: the suite ends with {result.returncode}, so what "
                 "it runs says nothing. See its output.")


def counted():
    """What gcov says of the measured files: path -> line -> function -> (times
    that the line was run, times that each branch was taken). A template or an
    inline function is one function for each copy, whatever file compiled it."""
    gcov = shutil.which("gcov-12") or shutil.which("gcov")
    if gcov is None:
        sys.exit("coverage: gcov is missing. Install Debian's package gcc.")
    files = {}
    for notes in sorted(BUILD.glob("lib/**/*.gcno")):
        output = subprocess.run(
            [gcov, "--branch-probabilities", "--json-format", "--stdout", notes],
            cwd=BUILD, check=True, capture_output=True, text=True).stdout
        for document in filter(None, output.splitlines()):
            add_counts(json.loads(document), files)
    return files


def add_counts(document, files):
    for entry in document["files"]:
        path = pathlib.Path(BUILD, entry["file"]).resolve()
        # The build may still hold the notes of a file that is gone.
        if not path.is_relative_to(ROOT) or not path.exists() or \
                not MEASURED.match(str(path.relative_to(ROOT))):
            continue
        lines = files.setdefault(str(path.relative_to(ROOT)), {})
        for line in entry["lines"]:
            copies = lines.setdefault(line["line_number"], {})
            count, taken = copies.get(line.get("function_name", ""), (0, []))
            now = [branch["count"] for branch in line["branches"] if not branch["throw"]]
            copies[line.get("function_name", "")] = (
                count + line["count"], merged(taken, now))


def merged(a, b):
    """Sums, place by place, of lists that may differ in length."""
    return [x + y for x, y in itertools.zip_longest(a, b, fillvalue=0)]


def directions_of(text, copies):
    """How often each direction of the conditions of line `text` was taken: by
    any copy of the code, be it another function or one that was inlined."""
    taken = functools.reduce(merged, (taken for _, taken in copies.values()))
    if "switch" in text:
        return taken
    most = 2 * len(CONDITION.findall(text))
    return functools.reduce(merged, (taken[i:i + most] for i in range(0, len(taken), most)),
                            [])


def measure(files):
    """Shares in percent, and the lines that nothing ran, by file."""
    lines = branches = run_lines = run_branches = 0
    missed = {}
    for path, by_number in sorted(files.items()):
        text = (ROOT / path).read_text().splitlines()
        refused = throwing_lines(ROOT / path)
        beside = lines_beside(ROOT / path)
        for number, copies in sorted(by_number.items()):
            if number in refused or number in beside or \
                    not re.search(r"\w", text[number - 1]):
                continue
            lines += 1
            count = sum(times for times, _ in copies.values())
            if count == 0:
                missed.setdefault(path, []).append(number)
            else:
                run_lines += 1
            if not CONDITION.search(text[number - 1]):
                continue
            for taken in directions_of(text[number - 1], copies):
                if taken == 0 and count > 0 and leads_to_throw(number, refused):
                    continue
                branches += 1
                run_branches += 1 if taken else 0
    share = lambda part, whole: 100.0 * part / max(1, whole)
    return share(run_lines, lines), share(run_branches, branches), missed


def ranges(numbers):
    """[1, 2, 3, 7] becomes "1-3 7"."""
    parts = []
    for number in numbers:
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return " ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in parts)


def report(line_share, branch_share, missed):
    text = ("# What `isoloss golden check` runs of everything between corpus and "
            "log.\n# Written by tools/dev/coverage --record, which says what "
            "counts.\n"
            f"lines {line_share:.2f} %\nbranches {branch_share:.2f} %\n\n"
            "# Lines that no golden runs.\n")
    return text + "".join(f"{path}: {ranges(numbers)}\n"
                          for path, numbers in sorted(missed.items()))


def main():
    parser = argparse.ArgumentParser(
        prog="tools/dev/coverage",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--no-run", action="store_true")
    arguments = parser.parse_args()
    if not arguments.no_run:
        build_and_run()
    line_share, branch_share, missed = measure(counted())
    text = report(line_share, branch_share, missed)
    print(text)
    if arguments.record:
        RECORD.write_text(text)
        return
    if not RECORD.exists():
        sys.exit(f"coverage: {RECORD} is missing, so there is nothing to compare "
                 "with. Restore it, or record these shares with --record.")
    recorded = dict(re.findall(r"^(\w+) ([\d.]+) %$", RECORD.read_text(), re.M))
    for what, share in (("lines", line_share), ("branches", branch_share)):
        # Which steps a thread takes is chance: a tenth of a percent.
        if share < float(recorded[what]) - 0.1:
            sys.exit(f"coverage: the suite runs {share:.2f} % of the {what}, but "
                     f"{recorded[what]} % are recorded in {RECORD.name}. Extend "
                     "a golden, or record the new share with --record.")


if __name__ == "__main__":
    main()
