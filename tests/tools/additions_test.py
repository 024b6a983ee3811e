"""Adding one thing takes what CONTRIBUTING.md says, at most three places: a level of the gate, a
sub-command, a study, a transport and a tensor statistic are added to a scratch copy of the tree, one at a time.

The program is linked from what the build made, in which only the new file and the files that read the
registry are compiled again. A statistic changes what nearly every file includes, so that the files which
it touches are compiled and nothing is linked.
"""

import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import tempfile
import unittest

from checked_run import run

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ["ISOLOSS_BUILD_DIR"])
MOST_PLACES = 3

LEVEL = """\
#include "isoloss/gate/evidence.h"
#include "isoloss/gate/level.h"
#include "isoloss/gate/verdict.h"

namespace isoloss::gate {

extern constinit const Level kLevel_l7_added = {
    .id = LevelId::l7_added,
    .name = "L7",
    .question = "is it asked?",
    .needs = Needs::kRuns,
    .decides = Decides::kNeither,
    .run = [](const Evidence&, const Policy&) -> LevelFindings {
      return {.checks = {{.name = "added",
                          .outcome = Outcome::kPass,
                          .quantity = "asked"}}};
    }};

}  // namespace isoloss::gate
"""
COMMAND = """\
#include <cstdio>

#include "commands.h"

namespace isoloss::cli {

extern constinit const Command kCommand_added = {
    "added", "Says that it is there", "isoloss added",
    [](CLI::App&) -> Action {
      return [] {
        std::puts("it is there");
        return ExitCode::kPass;
      };
    }};

}  // namespace isoloss::cli
"""
STUDY = """\
#include "isoloss/studies/study.h"

namespace isoloss::studies {
namespace {

class Added : public Study {
 public:
  std::vector<Option> Options() override {
    return {{.name = "--number", .value = &number_}};
  }
  Plan MakePlan(const Request& /*request*/) override {
    return {.kind = "added", .folder = {}, .cells = {}, .text = {}};
  }
  std::optional<Answer> Judge(const Plan& /*plan*/, bool /*may_train*/) override {
    Answer answer;
    answer.document.Put("number", number_);
    return answer;
  }

 private:
  double number_ = 0;
};

}  // namespace

extern constinit const StudyKind kStudy_added = {
    "added", "Says that it is there", "isoloss study added", nullptr,
    []() -> std::unique_ptr<Study> { return std::make_unique<Added>(); }};

}  // namespace isoloss::studies
"""
TRANSPORT = """\
#include "isoloss/transport/process_transport.h"
#include "isoloss/transport/registry.h"

namespace isoloss::transport {

extern constinit const TransportKind kTransport_added = {
    .name = "added",
    .spans_processes = false,
    .make = [](const TransportOptions& options,
               Executor& executor) -> std::unique_ptr<Transport> {
      return std::make_unique<ProcessTransport>("added", options, executor, 0,
                                                nullptr);
    }};

}  // namespace isoloss::transport
"""


def sources_of(file):
    """The sources that are compiled with this one: those of a batch, or itself."""
    if file.parent.name != "Unity" or not file.exists():
        return [file]
    return [pathlib.Path(path) for path in
            re.findall(r'^#include "(.+)"$', file.read_text(encoding="utf-8"), re.M)]


class Scratch:
    """A copy of the tree, and which of its files were changed."""

    def __init__(self, folder):
        self.root = pathlib.Path(folder) / "tree"
        self.objects = pathlib.Path(folder) / "objects"
        self.objects.mkdir()
        for part in ("include", "lib", "tools"):
            shutil.copytree(ROOT / part, self.root / part)
        self.places = []
        with open(BUILD / "compile_commands.json", encoding="utf-8") as file:
            self.commands = {source: entry["command"] for entry in json.load(file)
                             for source in sources_of(pathlib.Path(entry["file"]))}

    def create(self, path, text):
        assert not (self.root / path).exists()
        (self.root / path).write_text(text, encoding="utf-8")
        self.places.append(path)

    def append(self, path, line, after=None):
        """Adds a line to a file's end, or behind the one that holds `after`."""
        file = self.root / path
        text = file.read_text(encoding="utf-8")
        if after is None:
            text = text.rstrip("\n") + f"\n{line}\n"
        else:
            end = text.index("\n", text.index(after)) + 1
            text = f"{text[:end]}{line}\n{text[end:]}"
        file.write_text(text, encoding="utf-8")
        self.places.append(path)

    def compile(self, path, like=None, options=()):
        """Compiles a file as the build does it, or one beside it."""
        words = shlex.split(self.commands[ROOT / (like or path)])
        target = self.objects / (path.replace("/", "_") + ".o")
        words[words.index("-o") + 1] = str(target)
        words[words.index("-c") + 1] = str(self.root / path)
        words = [word.replace(f"-I{ROOT}/", f"-I{self.root}/")
                 for word in words if word != "ccache"]
        run(*words, *options, folder=BUILD)
        return target

    def link(self, objects):
        """The build's program, with these objects before its own: a batch holds the file of the
        object and others, and the linker takes what it finds first."""
        lines = run("ninja", "-t", "commands", "bin/isoloss", folder=BUILD).splitlines()
        # ": && LINK && what is made with the linked program".
        words = shlex.split(lines[-1].split(" && ")[1])
        program = self.objects / "isoloss"
        words[words.index("-o") + 1] = str(program)
        run(words[0], "-Wl,--allow-multiple-definition", *objects, *words[1:], folder=BUILD)
        return program


class Additions(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="isoloss-additions-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.scratch = Scratch(folder.name)

    def assert_few_places(self):
        self.assertLessEqual(len(self.scratch.places), MOST_PLACES, self.scratch.places)

    def test_a_level_is_climbed(self):
        scratch = self.scratch
        scratch.create("lib/isoloss/gate/l7_added.cc", LEVEL)
        scratch.append("lib/isoloss/gate/levels.def", "ISOLOSS_LEVEL(l7_added)")
        program = scratch.link([
            scratch.compile("lib/isoloss/gate/l7_added.cc", "lib/isoloss/gate/l6_sequential.cc"),
            scratch.compile("lib/isoloss/gate/ladder.cc")])
        curves = ROOT / "golden/curves/nano"

        result = subprocess.run(
            [program, "gate", curves / "bf16-seed1.h5", curves / "mxfp8-seed1.h5", "--json"],
            capture_output=True, encoding="utf-8", check=False)

        checks = json.loads(result.stdout)["checks"]
        self.assertIn(("L7", "added", "PASS"),
                      [(check["level"], check["name"], check["outcome"]) for check in checks])
        # Its row in docs/gate.md is demanded by Ladder.EachLevelHasARowOfItsQuestionInTheDocument.
        scratch.places.append("docs/gate.md")
        self.assert_few_places()

    def test_a_sub_command_runs(self):
        scratch = self.scratch
        scratch.create("tools/isoloss/added.cc", COMMAND)
        scratch.append("tools/isoloss/commands.def", "ISOLOSS_COMMAND(added)")
        program = scratch.link([
            scratch.compile("tools/isoloss/added.cc", "tools/isoloss/golden.cc"),
            scratch.compile("tools/isoloss/main.cc")])

        self.assertEqual(run(program, "added", folder=self.folder), "it is there\n")
        self.assertIn("Says that it is there", run(program, "lab", "--help", folder=self.folder))
        self.assert_few_places()

    def test_a_study_answers(self):
        scratch = self.scratch
        scratch.create("lib/isoloss/studies/added.cc", STUDY)
        scratch.append("lib/isoloss/studies/studies.def", "ISOLOSS_STUDY(added)")
        program = scratch.link([
            scratch.compile("lib/isoloss/studies/added.cc", "lib/isoloss/studies/widths.cc"),
            scratch.compile("tools/isoloss/study.cc")])

        answer = run(program, "study", "added", "--number", "2", "--json", folder=self.folder)
        self.assertEqual(json.loads(answer), {"number": 2})
        # Its section in docs/studies.md.
        scratch.places.append("docs/studies.md")
        self.assert_few_places()

    def test_a_transport_carries_a_training(self):
        scratch = self.scratch
        scratch.create("lib/isoloss/transport/added.cc", TRANSPORT)
        scratch.append("lib/isoloss/transport/transports.def", "ISOLOSS_TRANSPORT(added)")
        program = scratch.link([
            scratch.compile("lib/isoloss/transport/added.cc", "lib/isoloss/transport/loop.cc"),
            scratch.compile("lib/isoloss/transport/transport.cc")])

        run(program, "run", ROOT / "golden/curves/ranks/experiment.toml", "--arm", "flat",
            "--set", "parallel.transport=added", "--set", "train.steps=2",
            "--set", "log.eval_every=2", "--out", self.folder / "runs",
            folder=self.folder)

        shown = run(program, "show", self.folder / "runs/flat-seed1.h5", folder=self.folder)
        self.assertIn("added", shown)
        # Its row in AllArrangements of tests/transport/fleet.cc.
        scratch.places.append("tests/transport/fleet.cc")
        self.assert_few_places()

    def test_a_tensor_statistic_compiles_wherever_the_log_is_walked(self):
        scratch = self.scratch
        scratch.append("lib/isoloss/runlog/tensor_statistics.def",
                       'ISOLOSS_STATISTIC(added, "added", "1", "Root mean square", ISOLOSS_MOMENT(Norm()))',
                       after="ISOLOSS_STATISTIC(l2_norm")
        scratch.append("lib/isoloss/probes/tensor_accumulator.cc",
                       "  stat(runlog::kStat_added) = std::sqrt(sums_.squares.Value() / finite);",
                       after="stat(runlog::kStat_l2_norm)")
        for path in ("lib/isoloss/probes/tensor_accumulator.cc", "lib/isoloss/runlog/writer.cc",
                     "lib/isoloss/runlog/reader.cc", "lib/isoloss/runlog/export.cc",
                     "lib/isoloss/runlog/domain_check.cc"):
            # All that a compiler may object to; the code is not needed.
            scratch.compile(path, options=["-fsyntax-only"])
        self.assert_few_places()

    def test_a_line_without_its_file_stops_the_build(self):
        scratch = self.scratch
        scratch.append("lib/isoloss/gate/levels.def", "ISOLOSS_LEVEL(l7_added)")

        with self.assertRaisesRegex(AssertionError, "kLevel_l7_added"):
            scratch.link([scratch.compile("lib/isoloss/gate/ladder.cc")])


class Documents(unittest.TestCase):
    def test_contributing_names_the_registries(self):
        text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
        for registry in ("levels.def", "commands.def", "studies.def", "transports.def", "tensor_statistics.def"):
            self.assertTrue(re.search(rf"^\| .*`[^`]*{re.escape(registry)}`", text, re.M), registry)


if __name__ == "__main__":
    unittest.main()
