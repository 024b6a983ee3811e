// isoloss golden update: what it says of what UpdateGoldens did.

#include "isoloss/campaign/golden_update.h"

#include <fmt/format.h>

#include <memory>

#include "golden.h"

namespace isoloss::cli {
namespace {

void PrintChanges(const std::vector<campaign::GoldenChange>& changes) {
  for (const campaign::GoldenChange& change : changes) {
    fmt::print("  {:<20} {} -> {}\n  {:<20} {}\n", change.golden,
               change.before.empty() ? "none" : change.before,
               change.after.empty() ? "none" : change.after, "",
               change.verdict);
  }
}

ExitCode Update(campaign::GoldenUpdatePlan& plan) {
  plan.on_changes = PrintChanges;
  const campaign::GoldenUpdate update = campaign::UpdateGoldens(plan);
  if (update.interrupted) return ExitCode::kInterrupted;
  if (!update.refused.empty()) {
    fmt::print("REFUSED: {}\n", update.refused);
    return ExitCode::kFail;
  }
  fmt::print("{}: {} of {} goldens written. Commit them with the reason.\n",
             plan.folder.string(), update.changed, update.runs);
  return ExitCode::kPass;
}

}  // namespace

Action DeclareGoldenUpdate(CLI::App& app) {
  auto arguments = std::make_shared<campaign::GoldenUpdatePlan>();
  AddOption(app, "folder", arguments->folder, "Folder of goldens").Required();
  AddOption(app, "--reason", arguments->reason,
            "What changed the numbers, and why that is right; one line, "
            "kept in history.toml")
      .Required();
  AddOption(app, "--accept-numerics-change", arguments->accepted,
            "Tensors whose new values the oracle does not explain, by "
            "name or pattern; repeatable")
      .Repeatable();
  AddFlag(
      app, "--new", arguments->create,
      "Make the first goldens of a folder that holds experiment.toml alone");
  AddFlag(app, "--reconfigured", arguments->reconfigured,
          "The experiment was changed on purpose: the old goldens are of "
          "another one and are not compared")
      .Excludes("--new");
  AddFlag(app, "--draft", arguments->draft,
          "From a modified source too; `golden check` refuses such "
          "goldens without --draft");
  return [arguments] { return Update(*arguments); };
}

}  // namespace isoloss::cli
