// isoloss golden check: two lanes. Exact: is every bit of each golden computed
// again? Statistical: if not, does the gate take the runs for the same?

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "experiment_command.h"
#include "golden.h"
#include "golden_folder.h"
#include "isoloss/base/error.h"
#include "isoloss/transport/launch.h"
#include "judge.h"

namespace isoloss::cli {
namespace {

namespace fs = std::filesystem;

struct CheckArguments {
  std::vector<fs::path> folders;
  std::string out;
  bool exact = false;
  bool draft = false;
  std::string mutant;
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

ExitCode CheckFolder(const fs::path& path, const fs::path& out,
                     const mutants::Mutant* planted,
                     const CheckArguments& arguments) {
  const GoldenFolder folder = OpenGoldenFolder(path);
  if (!arguments.draft) RefuseDrafts(folder);
  CheckConfiguration(folder);
  const gate::Policy policy = PolicyOf("", folder.experiment);
  const Rerun rerun = RunAll(folder.experiment, out, planted);
  if (rerun.interrupted) return ExitCode::kInterrupted;

  fmt::print("golden {}{}\n", path.string(),
             planted == nullptr
                 ? ""
                 : fmt::format(", with `{}` planted in it", planted->name));
  bool drift = false;
  for (size_t i = 0; i < folder.goldens.size(); ++i) {
    const ExactLane lane = CompareExactly(folder.goldens[i], rerun.runs[i]);
    PrintExact(lane, folder.goldens[i]);
    drift = drift || !lane.Reproduced();
  }
  const std::optional<EvidenceFiles> evidence = GatherEvidence(
      folder.experiment, path, out,
      PlainStepsDue(rerun.runs, folder.goldens, policy), planted);
  if (!evidence) return ExitCode::kInterrupted;
  ExitCode code = ExitCode::kPass;
  for (const gate::Judgement& judgement :
       JudgeAgainstApproved(rerun.runs, folder.goldens, policy, *evidence)) {
    fmt::print("  {:<20} statistical: {}\n", judgement.candidate.arm,
               LaneText(judgement));
    code =
        Worse(code, static_cast<ExitCode>(gate::ExitCode(judgement.outcome)));
  }
  if (drift && planted == nullptr) {
    fmt::print(
        "DRIFT: bits of {0} changed{1}. If that is meant: isoloss golden "
        "update "
        "{0} --reason \"...\"\n",
        path.string(),
        code == ExitCode::kPass ? ", though the gate finds no harm in it" : "");
  }
  if (drift && arguments.exact) code = Worse(code, ExitCode::kFail);
  return code;
}

ExitCode Check(const CheckArguments& arguments) {
  if (transport::DetectLaunch().processes > 1) {
    ThrowError(ErrorKind::kConfig,
               "golden check: it was started as {} processes, but compares the "
               "logs of one. Start it without a launcher.",
               transport::DetectLaunch().processes);
  }
  const std::vector<fs::path> folders =
      arguments.folders.empty() ? DefaultFolders() : arguments.folders;
  const TemporaryFolder temporary;
  const fs::path out =
      arguments.out.empty() ? temporary.path() : fs::path(arguments.out);
  std::optional<mutants::Mutant> planted;
  if (!arguments.mutant.empty()) {
    planted = mutants::MutantByName(arguments.mutant);
  }
  ExitCode code = ExitCode::kPass;
  for (size_t i = 0; i < folders.size(); ++i) {
    // Each in a folder of its own: never in that of the goldens.
    const fs::path runs =
        out /
        fmt::format(
            "{}-{}", i + 1,
            fs::absolute(folders[i]).lexically_normal().filename().string());
    code = Worse(code, CheckFolder(folders[i], runs,
                                   planted ? &*planted : nullptr, arguments));
    if (code == ExitCode::kInterrupted) break;
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
  return [arguments] { return Check(*arguments); };
}

}  // namespace isoloss::cli
