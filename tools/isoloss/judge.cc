#include "judge.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <optional>
#include <system_error>
#include <utility>

#include "isoloss/base/error.h"
#include "isoloss/base/nearest_name.h"
#include "isoloss/report/json.h"
#include "isoloss/report/terminal.h"
#include "isoloss/runlog/ensemble.h"
#include "isoloss/runlog/probe_log.h"
#include "isoloss/runlog/reader.h"
#include "isoloss/runlog/tensor_dump.h"
#include "terminal_width.h"

namespace isoloss::cli {
namespace {

namespace fs = std::filesystem;

constexpr int kNarrowest = 60;
constexpr int kWidest = 120;
constexpr int kWidthOfFiles = 80;

/// By their names, as commands give them: <run>.probe.h5, <run>.dump-3.h5 and
/// what an unfinished run left.
bool IsNamedAsOther(const fs::path& file) {
  const std::string kind = file.stem().extension().string();
  return kind == ".probe" || kind == ".partial" || kind.starts_with(".dump-");
}

/// Whether `file` is whole, but something else that isoloss writes.
bool IsOtherKind(const fs::path& file) {
  const auto is = [&](auto read) {
    try {
      read(file);
      return true;
    } catch (const Error&) {
      return false;
    }
  };
  return is(runlog::ReadEnsemble) || is(runlog::ReadProbeLog) ||
         is(runlog::ReadTensorDump);
}

/// Empty if it is of another kind.
std::optional<compare::Run> ReadIfRun(const fs::path& file) {
  try {
    return compare::Run{file.string(), runlog::ReadRunLog(file)};
  } catch (const Error&) {
    if (IsOtherKind(file)) return std::nullopt;
    throw;
  }
}

std::vector<compare::Run> ReadFolder(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const fs::path& file = entry.path();
    if (file.extension() == ".h5" && !IsNamedAsOther(file)) {
      files.push_back(file);
    }
  }
  std::ranges::sort(files);
  std::vector<compare::Run> runs;
  for (const fs::path& file : files) {
    if (auto run = ReadIfRun(file)) runs.push_back(std::move(*run));
  }
  if (runs.empty()) {
    ThrowError(ErrorKind::kConfig,
               "{}: the folder holds no run log (NAME.h5). Give another one, "
               "or the logs.",
               folder.string());
  }
  return runs;
}

/// Arms in the order of their first run.
std::vector<std::string> ArmsOf(const std::vector<compare::Run>& runs) {
  std::vector<std::string> arms;
  for (const compare::Run& run : runs) {
    const std::string& arm = run.log.provenance.arm;
    if (std::ranges::count(arms, arm) == 0) arms.push_back(arm);
  }
  return arms;
}

void CheckArms(const std::vector<compare::Run>& runs,
               const std::string& baseline_arm,
               const std::vector<std::string>& candidates) {
  if (compare::RunsOfArm(runs, baseline_arm).empty()) {
    ThrowError(ErrorKind::kConfig,
               "gate: {} logs of arm {}, but none of the baseline `{}`. Give "
               "its logs too or name another arm with --baseline.{}",
               runs.size(), fmt::join(candidates, ", "), baseline_arm,
               DidYouMean(baseline_arm, candidates));
  }
  if (candidates.empty()) {
    ThrowError(ErrorKind::kConfig,
               "gate: {} logs, all of arm `{}`, but a verdict needs a second "
               "arm. Give the logs of both arms.",
               runs.size(), baseline_arm);
  }
}

/// Logs may come from anywhere: an arm's name must not lead out of the folder.
std::string VerdictName(const std::string& candidate, size_t candidates) {
  if (candidates == 1) return "verdict.json";
  if (candidate.find('/') != std::string::npos) {
    ThrowError(ErrorKind::kConfig,
               "gate: an arm is named `{}`, but verdict-ARM.json is a file of "
               "--out, so the name may hold no `/`. Rename the arm.",
               candidate);
  }
  return fmt::format("verdict-{}.json", candidate);
}

/// Makes `folder` if need be.
void WriteVerdicts(const std::vector<gate::Judgement>& judgements,
                   const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) {
    ThrowError(ErrorKind::kIo,
               "{}: the folder for the verdict can't be made: {}. Choose "
               "another one with --out.",
               folder.string(), error.message());
  }
  for (const gate::Judgement& judgement : judgements) {
    report::WriteJson(judgement, folder / VerdictName(judgement.candidate.arm,
                                                      judgements.size()));
  }
}

/// One document however many arms there are.
void PrintJson(const std::vector<gate::Judgement>& judgements) {
  std::vector<std::string> objects;
  for (const gate::Judgement& judgement : judgements) {
    std::string object = report::RenderJson(judgement);
    object.pop_back();  // its line end
    objects.push_back(std::move(object));
  }
  fmt::print("[{}]\n", fmt::join(objects, ",\n"));
}

}  // namespace

void ReportArguments::Declare(CLI::App& app) {
  app.add_flag("--ascii", ascii, "Draw with 7-bit characters only");
  app.add_flag("--json", json,
               "Print a JSON array with one verdict per candidate arm in place "
               "of the report");
}

report::TextStyle ReportArguments::Style() const {
  report::TextStyle style;
  style.ascii = ascii;
  style.width = kWidthOfFiles;
  if (isatty(STDOUT_FILENO) == 1) {
    if (const auto columns = TerminalWidth()) {
      style.width = std::clamp(*columns, kNarrowest, kWidest);
    }
    style.color = std::getenv("NO_COLOR") == nullptr;  // https://no-color.org
  }
  return style;
}

std::vector<compare::Run> ReadRuns(
    const std::vector<std::filesystem::path>& files) {
  std::vector<compare::Run> runs;
  for (const std::filesystem::path& file : files) {
    runs.push_back({file.string(), runlog::ReadRunLog(file)});
  }
  return runs;
}

std::vector<compare::Run> ReadRunsIn(const std::vector<fs::path>& paths) {
  std::vector<compare::Run> runs;
  for (const fs::path& path : paths) {
    std::vector<compare::Run> found =
        fs::is_directory(path) ? ReadFolder(path) : ReadRuns({path});
    std::ranges::move(found, std::back_inserter(runs));
  }
  return runs;
}

gate::Policy PolicyOf(const std::string& file,
                      const train::Experiment& experiment) {
  if (!file.empty()) return gate::ReadPolicy(file);
  if (experiment.gate.policy.empty()) return {};
  return gate::ReadPolicy(experiment.path.parent_path() /
                          experiment.gate.policy);
}

void RemoveVerdicts(const std::vector<std::string>& candidates,
                    const std::filesystem::path& folder) {
  std::error_code error;
  for (const std::string& candidate : candidates) {
    const auto file = folder / VerdictName(candidate, candidates.size());
    std::filesystem::remove(file, error);
    if (error == std::errc::not_a_directory) return;  // said when logs are due
    if (error) {
      ThrowError(ErrorKind::kIo,
                 "{}: an earlier verdict can't be removed: {}. Choose another "
                 "folder with --out.",
                 file.string(), error.message());
    }
  }
}

std::vector<gate::Judgement> JudgeArms(const std::vector<compare::Run>& runs,
                                       const std::string& baseline_arm,
                                       const gate::Policy& policy,
                                       const EvidenceFiles& evidence) {
  std::vector<std::string> candidates = ArmsOf(runs);
  std::erase(candidates, baseline_arm);
  CheckArms(runs, baseline_arm, candidates);
  CheckEvidenceIsUsed(evidence, policy.question, candidates, baseline_arm);
  std::vector<gate::Judgement> judgements;
  for (const std::string& candidate : candidates) {
    judgements.push_back(JudgeWith(
        compare::PairBySeed(baseline_arm,
                            compare::RunsOfArm(runs, baseline_arm), candidate,
                            compare::RunsOfArm(runs, candidate)),
        evidence, policy));
  }
  return judgements;
}

std::vector<gate::Judgement> JudgeAgainstApproved(
    const std::vector<compare::Run>& runs,
    const std::vector<compare::Run>& approved, gate::Policy policy,
    const EvidenceFiles& evidence) {
  policy.question = compare::Question::kRegression;
  CheckEvidenceIsUsed(evidence, policy.question, ArmsOf(runs));
  std::vector<gate::Judgement> judgements;
  for (const std::string& arm : ArmsOf(runs)) {
    const auto approved_runs = compare::RunsOfArm(approved, arm);
    if (approved_runs.empty()) {
      const std::vector<std::string> known = ArmsOf(approved);
      ThrowError(ErrorKind::kConfig,
                 "gate: no approved log of arm `{}`; --against has arms {}. "
                 "Give its approved logs too.{}",
                 arm, fmt::join(known, ", "), DidYouMean(arm, known));
    }
    judgements.push_back(
        JudgeWith(compare::PairBySeed(arm, approved_runs, arm,
                                      compare::RunsOfArm(runs, arm)),
                  evidence, policy));
  }
  return judgements;
}

ExitCode ReportVerdicts(const std::vector<gate::Judgement>& judgements,
                        const ReportArguments& arguments,
                        const std::filesystem::path& folder) {
  // First, lest a verdict be printed that is then said not to be written.
  if (!folder.empty()) WriteVerdicts(judgements, folder);
  if (arguments.json) {
    PrintJson(judgements);
  } else {
    for (const gate::Judgement& judgement : judgements) {
      fmt::print("{}", report::RenderTerminal(judgement, arguments.Style()));
    }
  }
  gate::Outcome severest = gate::Outcome::kPass;
  for (const gate::Judgement& judgement : judgements) {
    severest = std::max(severest, judgement.outcome);
  }
  return static_cast<ExitCode>(gate::ExitCode(severest));
}

}  // namespace isoloss::cli
