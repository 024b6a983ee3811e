#include "isoloss/campaign/dry_run.h"

#include <fmt/format.h>

#include "isoloss/base/executor.h"
#include "isoloss/campaign/run_cost.h"
#include "isoloss/document/text.h"
#include "isoloss/document/text_layout.h"
#include "isoloss/report/live_view.h"
#include "isoloss/report/recipe_document.h"
#include "isoloss/report/terminal_width.h"
#include "isoloss/train/arm_recipes.h"
#include "isoloss/train/cost.h"
#include "isoloss/train/trainer.h"
#include "isoloss/transport/launch.h"

namespace isoloss::campaign {
namespace {

std::string TimeText(const train::Experiment& experiment,
                     const std::vector<train::Run>& runs) {
  if (const int processes = transport::DetectLaunch().processes;
      processes > 1) {
    return fmt::format("not estimated for {} processes of one job", processes);
  }
  const ArmRates rates = MeasureArms(experiment, runs);
  return fmt::format(
      "about {} for {:.3g} GFLOP a token, by one thread's speed just now ({})",
      report::DurationText(TrainingSeconds(experiment, runs, rates)),
      train::FlopsPerToken(experiment) / 1e9, RatesText(rates));
}

/// Prints the cost of `runs`, which are trained. `kept` counts finished runs
/// that are not.
void PrintCost(const train::Experiment& experiment,
               const std::vector<train::Run>& runs, size_t kept) {
  if (kept > 0) {
    fmt::print("\n# {} run{} finished in the folder and kept\n", kept,
               kept == 1 ? " is" : "s are");
  }
  if (runs.empty()) return;
  const Crew crew = train::CrewFor(experiment, runs.size());
  fmt::print(
      "\n# cost of {} run{} of {} steps, {} side by side on {} thread{}\n",
      runs.size(), runs.size() == 1 ? "" : "s", experiment.train.steps,
      crew.side_by_side, crew.workers, crew.workers == 1 ? "" : "s");
  PrintCostLine("time", TimeText(experiment, runs));
  PrintCostLine("memory", MemoryText(experiment, runs));
  PrintCostLine("disk", DiskText(experiment, runs));
}

void PrintPlan(const train::Experiment& experiment) {
  const document::TextStyle style = report::TerminalStyle(false);
  fmt::print("{}", experiment.ResolvedToml());
  for (const train::Arm& arm : experiment.arms) {
    const std::string recipe =
        train::Describe(train::ResolvePhases(experiment, arm));
    fmt::print("\n# arm {}: recipe {}\n{}", arm.name, train::RecipeNames(arm),
               document::RenderText(report::RecipeDocument(recipe), style));
  }
}

}  // namespace

void PrintCostLine(const char* name, const std::string& text) {
  const std::string begin = fmt::format("#   {:<6}  ", name);
  document::TextStyle style = report::TerminalStyle(false);
  style.width -= static_cast<int>(begin.size());
  std::string margin = begin;
  for (const std::string& line :
       document::WrappedLines(text, 0, 0, text.size(), style)) {
    fmt::print("{}{}\n", margin, line);
    margin = fmt::format("#{:{}}", "", begin.size() - 1);
  }
}

void DryRun(const train::Experiment& experiment,
            const std::vector<train::Run>& runs, const corpus::Corpus& corpus,
            const std::filesystem::path& folder,
            const std::function<train::RunHooks(const train::Run&)>& hooks,
            train::Leftovers leftovers) {
  train::RunnerHooks checked;
  if (hooks) checked.run_hooks = [&](size_t run) { return hooks(runs[run]); };
  const std::vector<bool> kept =
      train::CheckRuns(experiment, runs, corpus, folder, leftovers, checked);
  std::vector<train::Run> missing;
  for (size_t i = 0; i < runs.size(); ++i) {
    if (!kept[i]) missing.push_back(runs[i]);
  }
  const std::unique_ptr<Executor> executor =
      MakeExecutor(train::CrewFor(experiment, 1));
  for (const train::Run& run : OneOfEachArm(missing)) {
    train::RehearseRun(experiment, *run.arm, run.seed, corpus, *executor,
                       hooks ? hooks(run) : train::RunHooks());
  }
  if (transport::DetectLaunch().process != 0) return;
  PrintPlan(experiment);
  PrintCost(experiment, missing, runs.size() - missing.size());
}

}  // namespace isoloss::campaign
