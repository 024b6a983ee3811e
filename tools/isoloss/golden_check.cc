// isoloss golden check: lanes. Exact: is every bit of each golden computed
// again? Statistical: if not, does the gate take the runs for the same? Those
// of the suite: does the way of executing it change a bit?

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "golden.h"
#include "golden_dumps.h"
#include "golden_folder.h"
#include "golden_suite.h"
#include "interrupt.h"
#include "isoloss/base/error.h"
#include "isoloss/base/threads.h"
#include "isoloss/corpus/corpus.h"
#include "isoloss/transport/launch.h"
#include "job_queue.h"
#include "json_output.h"
#include "judge.h"
#include "log_files.h"

namespace isoloss::cli {
namespace {

namespace fs = std::filesystem;

struct CheckArguments {
  std::vector<fs::path> folders;
  std::string out;
  bool exact = false;
  bool draft = false;
  std::string mutant;
  bool json = false;
};

/// golden/curves/* below the current folder, by name.
std::vector<fs::path> DefaultFolders() {
  const fs::path parent = fs::path("golden") / "curves";
  std::vector<fs::path> folders;
  if (fs::is_directory(parent)) {
    for (const fs::directory_entry& entry : fs::directory_iterator(parent)) {
      if (entry.is_directory()) folders.push_back(entry.path());
    }
  }
  if (folders.empty()) {
    ThrowError(ErrorKind::kConfig,
               "golden check: there is no folder in {}, so nothing would be "
               "checked. Name folders of goldens, or go to the source tree.",
               fs::absolute(parent).string());
  }
  std::ranges::sort(folders);
  return folders;
}

/// A draft can't be computed again from any commit.
void RefuseDrafts(const GoldenFolder& folder) {
  for (const compare::Run& golden : folder.goldens) {
    const HistoryEntry* entry = folder.history.LastOf(GoldenName(golden));
    if (!entry->IsDraft()) continue;
    ThrowError(
        ErrorKind::kConfig,
        "{}: it is a draft: the program that made it is of commit `{}`. "
        "Commit the source, build it and run `isoloss golden update {}`, "
        "or check it with --draft.",
        golden.file, entry->commit, folder.path.string());
  }
}

void PrintExact(const ExactLane& lane, const compare::Run& golden) {
  fmt::print("  {:<20} exact: {}", lane.golden,
             lane.Reproduced() ? "pass" : "drift");
  if (lane.Reproduced()) {
    fmt::print(" ({} steps, {} tensors in {} of them)\n",
               golden.log.steps.step.size(), golden.log.tensors.names.size(),
               golden.log.tensors.step.size());
  } else {
    fmt::print(": {}\n", lane.Drift());
  }
  if (!lane.content.added.empty()) {
    fmt::print("  {:<20} not in the golden, so not compared: {}\n", "",
               fmt::join(lane.content.added, ", "));
  }
}

ExitCode Worse(ExitCode a, ExitCode b) {
  constexpr ExitCode kBySeverity[] = {ExitCode::kPass, ExitCode::kInconclusive,
                                      ExitCode::kFail, ExitCode::kInvalid,
                                      ExitCode::kInterrupted};
  const auto rank = [&](ExitCode code) {
    return std::ranges::find(kBySeverity, code) - std::begin(kBySeverity);
  };
  return rank(a) >= rank(b) ? a : b;
}

Json ExactJson(const ExactLane& lane) {
  return {{"golden", lane.golden},
          {"reproduced", lane.Reproduced()},
          {"differing", lane.content.differing},
          {"first_difference", lane.where},
          {"not_in_the_golden", lane.content.added}};
}

/// One folder on its way through the check.
struct Case {
  explicit Case(GoldenFolder opened)
      : folder(std::move(opened)), policy(PolicyOf("", folder.experiment)) {}

  GoldenFolder folder;
  gate::Policy policy;
  fs::path out;  ///< for what it computes
  Rerun rerun;
  std::vector<LaneResult> lanes;  ///< in the order of the suite
  ProbeSettings probing;
  std::optional<corpus::Corpus> corpus;  ///< for the probes of all arms
  std::vector<fs::path> probes;          ///< in the order of the arms
};

fs::path FolderOf(const Case& one, const Lane& lane) {
  return one.out / ("lane-" + lane.name);
}

/// What jobs do side by side, each on a thread of its own.
using Job = std::function<void(ThreadTeam& team)>;

/// False if a signal ended it.
bool RunSideBySide(const char* title, const std::vector<Job>& jobs) {
  const bool done = RunJobs(title, jobs.size(), 0, InterruptFlag(),
                            [&](size_t i, ThreadTeam& team) { jobs[i](team); });
  return done && !InterruptFlag().load();
}

std::vector<Job> TrainingJobs(std::vector<std::unique_ptr<Case>>& cases,
                              const mutants::Mutant* planted) {
  std::vector<Job> jobs;
  for (const auto& owned : cases) {
    Case* const one = owned.get();
    jobs.push_back([one, planted](ThreadTeam&) {
      train::Experiment experiment = one->folder.experiment;
      experiment.parallel.workers = 1;
      one->rerun = RunAll(experiment, one->out, planted, true);
    });
    // Lanes are for the program as it is.
    if (planted != nullptr) continue;
    one->lanes.resize(one->folder.suite.lanes.size());
    for (size_t i = 0; i < one->lanes.size(); ++i) {
      const Lane& lane = one->folder.suite.lanes[i];
      if (!lane.impossible.empty()) continue;
      jobs.push_back([one, &lane, i](ThreadTeam&) {
        one->lanes[i] = RunLane(one->folder, lane, FolderOf(*one, lane));
      });
    }
  }
  return jobs;
}

std::vector<Job> ProbingJobs(std::vector<std::unique_ptr<Case>>& cases,
                             const mutants::Mutant* planted) {
  std::vector<Job> jobs;
  for (const auto& owned : cases) {
    Case* const one = owned.get();
    const train::Experiment& experiment = one->folder.experiment;
    one->probing = SettingsOf(
        experiment, one->policy,
        PlainStepsDue(one->rerun.runs, one->folder.goldens, one->policy),
        planted);
    one->corpus.emplace(corpus::LoadCorpus(experiment.corpus_source,
                                           experiment.data.held_out_share));
    one->probes.resize(experiment.arms.size());
    fs::create_directories(one->out / kProbeFolder);
    for (size_t i = 0; i < experiment.arms.size(); ++i) {
      jobs.push_back([one, i](ThreadTeam& team) {
        const train::Experiment& of_case = one->folder.experiment;
        one->probes[i] =
            ProbeOneArm(of_case, of_case.arms[i].name, *one->corpus,
                        one->out / kProbeFolder, one->probing, team);
      });
    }
  }
  return jobs;
}

/// What one folder's check found. Printed as it is found, unless as JSON.
struct Found {
  explicit Found(bool as_json) : quiet(as_json) {}

  const bool quiet;
  ExitCode code = ExitCode::kPass;
  bool drift = false;
  Json exact = Json::array();
  Json lanes = Json::array();
  Json statistical = Json::array();

  void AddLane(const std::string& lane, std::string_view outcome,
               const std::string& why) {
    lanes.push_back({{"lane", lane}, {"outcome", outcome}, {"why", why}});
    Print(lane, fmt::format("lane: {}", outcome), why);
    if (outcome == kFailed) code = Worse(code, ExitCode::kFail);
  }
  void AddStatistical(const std::string& arm, std::string_view outcome,
                      const std::string& levels) {
    statistical.push_back(
        {{"arm", arm}, {"outcome", outcome}, {"levels", levels}});
    Print(arm, "statistical", levels);
  }

  static constexpr std::string_view kFailed = "fail";

 private:
  void Print(const std::string& name, const std::string& what,
             const std::string& why) const {
    if (quiet) return;
    fmt::print("  {:<20} {}{}{}\n", name, what, why.empty() ? "" : ": ", why);
  }
};

/// Bits may not depend on how an experiment is executed: a lane that parts from
/// the run beside it is a fault, whatever the goldens hold.
void CompareLanes(const Case& one, Found& found) {
  GoldenDumps dumps;
  for (size_t i = 0; i < one.lanes.size(); ++i) {
    const Lane& lane = one.folder.suite.lanes[i];
    if (!lane.impossible.empty()) {
      found.AddLane(lane.name, "not run", lane.impossible);
      continue;
    }
    const LaneResult& result = one.lanes[i];
    std::string difference =
        result.fault.empty()
            ? FirstDifference(ExpectedOfLane(lane, one.rerun.runs, result.runs),
                              result.runs)
            : result.fault;
    if (difference.empty()) {
      difference = dumps.Add(FolderOf(one, lane), result.runs);
    }
    found.AddLane(lane.name, difference.empty() ? "pass" : Found::kFailed,
                  difference);
  }
}

/// The runs end by their numbers, so that no level of the gate takes them. The
/// golden must end at the same step, and the oracle explain every element.
void JudgeAborted(const Case& one, Found& found) {
  EvidenceFiles evidence;
  ReadProbes(one.probes, evidence);
  for (size_t i = 0; i < one.rerun.runs.size(); ++i) {
    const runlog::RunLog& run = one.rerun.runs[i].log;
    const runlog::RunLog& golden = one.folder.goldens[i].log;
    std::string fault;
    if (!EndedByItsNumbers(run) ||
        run.steps.step.size() != golden.steps.step.size()) {
      fault = fmt::format("{} steps, but the golden ends by its numbers in {}",
                          run.steps.step.size(), golden.steps.step.size());
    }
    for (const gate::Probe& probe : evidence.probes) {
      if (probe.log.provenance.arm != run.provenance.arm) continue;
      const std::string unexplained = FirstUnexplained(probe.log);
      if (!unexplained.empty()) fault = unexplained;
    }
    found.AddStatistical(
        run.provenance.arm, fault.empty() ? "PASS" : "FAIL",
        fault.empty() ? "pass (ends by its numbers)" : "fail: " + fault);
    if (!fault.empty()) found.code = Worse(found.code, ExitCode::kFail);
  }
}

void Judge(const Case& one, Found& found) {
  for (size_t i = 0; i < one.folder.goldens.size(); ++i) {
    const ExactLane lane =
        CompareExactly(one.folder.goldens[i], one.rerun.runs[i]);
    found.exact.push_back(ExactJson(lane));
    if (!found.quiet) PrintExact(lane, one.folder.goldens[i]);
    found.drift = found.drift || !lane.Reproduced();
  }
  CompareLanes(one, found);
  if (one.folder.suite.aborts) {
    JudgeAborted(one, found);
    return;
  }
  const EvidenceFiles evidence =
      ReadEvidence(one.folder.experiment, one.folder.path, one.probes);
  for (const gate::Judgement& judgement : JudgeAgainstApproved(
           one.rerun.runs, one.folder.goldens, one.policy, evidence)) {
    found.AddStatistical(judgement.candidate.arm,
                         gate::OutcomeName(judgement.outcome),
                         LaneText(judgement));
    found.code = Worse(
        found.code, static_cast<ExitCode>(gate::ExitCode(judgement.outcome)));
  }
}

/// Prints what was found of one folder, or adds it to `json`.
ExitCode Report(const Case& one, const mutants::Mutant* planted,
                const CheckArguments& arguments, Json& json) {
  const std::string path = one.folder.path.string();
  Found found(arguments.json);
  if (!found.quiet) {
    fmt::print("golden {}{}\n", path,
               planted == nullptr
                   ? ""
                   : fmt::format(", with `{}` planted in it", planted->name));
  }
  Judge(one, found);
  if (found.drift && planted == nullptr && !found.quiet) {
    fmt::print(
        "DRIFT: bits of {0} changed{1}. If that is meant: isoloss golden "
        "update "
        "{0} --reason \"...\"\n",
        path,
        found.code == ExitCode::kPass ? ", though the gate finds no harm in it"
                                      : "");
  }
  if (found.drift && arguments.exact) {
    found.code = Worse(found.code, ExitCode::kFail);
  }
  json.push_back({{"folder", path},
                  {"exit_code", static_cast<int>(found.code)},
                  {"drift", found.drift},
                  {"exact", std::move(found.exact)},
                  {"lanes", std::move(found.lanes)},
                  {"statistical", std::move(found.statistical)}});
  return found.code;
}

/// What is there is not the check's to replace.
void RequireEmpty(const fs::path& out) {
  std::error_code error;  // what can't be seen is refused when it is written
  if (!fs::exists(out, error) || fs::is_empty(out, error)) return;
  ThrowError(ErrorKind::kConfig,
             "{}: goldens are computed anew into a folder of their own, but "
             "this one holds files already. Choose another one with --out, or "
             "remove it.",
             out.string());
}

/// Opens all folders before anything is computed. Each computes in a folder of
/// its own below `out`: never in that of the goldens.
std::vector<std::unique_ptr<Case>> OpenCases(const CheckArguments& arguments,
                                             const fs::path& out) {
  std::vector<std::unique_ptr<Case>> cases;
  for (const fs::path& path :
       arguments.folders.empty() ? DefaultFolders() : arguments.folders) {
    const fs::path own =
        out /
        fmt::format("{}-{}", cases.size() + 1,
                    fs::absolute(path).lexically_normal().filename().string());
    RequireEmpty(own);
    auto one = std::make_unique<Case>(OpenGoldenFolder(path));
    if (!arguments.draft) RefuseDrafts(one->folder);
    CheckConfiguration(one->folder);
    one->out = own;
    cases.push_back(std::move(one));
  }
  return cases;
}

ExitCode Check(const CheckArguments& arguments) {
  if (transport::DetectLaunch().processes > 1) {
    ThrowError(ErrorKind::kConfig,
               "golden check: it was started as {} processes, but compares the "
               "logs of one. Start it without a launcher.",
               transport::DetectLaunch().processes);
  }
  const TemporaryFolder temporary;
  std::optional<mutants::Mutant> mutant;
  if (!arguments.mutant.empty()) {
    mutant = mutants::MutantByName(arguments.mutant);
  }
  const mutants::Mutant* const planted = mutant ? &*mutant : nullptr;
  std::vector<std::unique_ptr<Case>> cases =
      OpenCases(arguments, arguments.out.empty() ? temporary.path()
                                                 : fs::path(arguments.out));
  if (!RunSideBySide("runs", TrainingJobs(cases, planted)) ||
      !RunSideBySide("probes", ProbingJobs(cases, planted))) {
    return ExitCode::kInterrupted;
  }
  ExitCode code = ExitCode::kPass;
  Json json{{"exit_code", 0}, {"goldens", Json::array()}};
  for (const auto& one : cases) {
    code = Worse(code, Report(*one, planted, arguments, json["goldens"]));
  }
  if (arguments.json) {
    json["exit_code"] = static_cast<int>(code);
    PrintJson(json);
  }
  return code;
}

}  // namespace

Action DeclareGoldenCheck(CLI::App& app) {
  auto arguments = std::make_shared<CheckArguments>();
  app.add_option("folders", arguments->folders,
                 "Folders of goldens (default: golden/curves/*)");
  app.add_option("--out", arguments->out,
                 "Keep the logs that were made again in this folder");
  app.add_flag("--exact", arguments->exact,
               "Changed bits are a failure, whatever the gate says of them");
  app.add_flag("--draft", arguments->draft,
               "Take goldens that were made by a modified source");
  app.add_option("--mutant", arguments->mutant,
                 "Plant a bug or a benign variant in all arms but the baseline "
                 "(isoloss mutants list): what would a check say of it?");
  DeclareJson(app, arguments->json, "with all lanes of each golden");
  return [arguments] { return Check(*arguments); };
}

}  // namespace isoloss::cli
