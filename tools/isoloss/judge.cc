#include "judge.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <system_error>

#include "isoloss/base/error.h"
#include "isoloss/gate/judge.h"
#include "isoloss/report/json.h"
#include "isoloss/report/terminal.h"
#include "isoloss/runlog/reader.h"

namespace isoloss::cli {
namespace {

constexpr int kNarrowest = 60;
constexpr int kWidest = 120;
constexpr int kWidthOfFiles = 80;

/// Arms other than the baseline, in the order of their first run.
std::vector<std::string> CandidateArms(const std::vector<compare::Run>& runs,
                                       const std::string& baseline_arm) {
  std::vector<std::string> arms;
  for (const compare::Run& run : runs) {
    const std::string& arm = run.log.provenance.arm;
    if (arm != baseline_arm && std::ranges::count(arms, arm) == 0) {
      arms.push_back(arm);
    }
  }
  return arms;
}

}  // namespace

void ReportArguments::Declare(CLI::App& app) {
  app.add_flag("--ascii", ascii, "Draw with 7-bit characters only");
  app.add_flag("--json", json,
               "Print the verdict as JSON in place of the report");
}

report::TextStyle ReportArguments::Style() const {
  report::TextStyle style;
  style.ascii = ascii;
  style.width = kWidthOfFiles;
  if (isatty(STDOUT_FILENO) == 1) {
    winsize size = {};
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
      style.width =
          std::clamp(static_cast<int>(size.ws_col), kNarrowest, kWidest);
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

ExitCode JudgeAndReport(const std::vector<compare::Run>& runs,
                        const std::string& baseline_arm,
                        const gate::Policy& policy,
                        const ReportArguments& arguments,
                        const std::filesystem::path& folder) {
  const std::vector<std::string> candidates = CandidateArms(runs, baseline_arm);
  if (candidates.empty()) {
    ThrowError(ErrorKind::kConfig,
               "gate: {} logs, all of arm `{}`, but a verdict needs a second "
               "arm. Give the logs of both arms.",
               runs.size(), baseline_arm);
  }
  gate::Outcome severest = gate::Outcome::kPass;
  for (const std::string& candidate : candidates) {
    const gate::Judgement judgement =
        gate::Judge(runs, baseline_arm, candidate, policy);
    severest = std::max(severest, judgement.outcome);
    fmt::print("{}", arguments.json ? report::RenderJson(judgement)
                                    : report::RenderTerminal(
                                          judgement, arguments.Style()));
    if (!folder.empty()) {
      const std::string name = candidates.size() == 1
                                   ? "verdict.json"
                                   : fmt::format("verdict-{}.json", candidate);
      report::WriteJson(judgement, folder / name);
    }
  }
  return static_cast<ExitCode>(gate::ExitCode(severest));
}

}  // namespace isoloss::cli
