// isoloss study sites: which GEMMs can be quantised.

#include "isoloss/report/sites.h"

#include <fmt/format.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "arguments.h"
#include "commands.h"
#include "experiment_arguments.h"
#include "isoloss/base/printable.h"
#include "isoloss/campaign/train_arms.h"
#include "isoloss/studies/sites.h"
#include "study_arguments.h"

namespace isoloss::cli {
namespace {

struct SitesArguments {
  studies::SitesRequest request;
  StudyArguments study;
};

/// A recipe fails whose gap is not the one that was predicted. It passes if its
/// own runs show a gap below the margin.
ExitCode CodeOfSites(const sites::Statement& statement) {
  const auto& recipe = statement.findings.recipe;
  if (!recipe || !recipe->measured) return ExitCode::kInconclusive;
  if (!recipe->inside()) return ExitCode::kFail;
  return recipe->safe(statement.findings.margin_nats) ? ExitCode::kPass
                                                      : ExitCode::kInconclusive;
}

void PrintSites(const SitesArguments& arguments, const studies::SitesPlan& plan,
                const sites::Statement& statement) {
  std::string text = report::RenderSites(statement);
  if (!statement.recipe_text.empty()) {
    text += fmt::format("Wrote {}/recipe.toml\n",
                        Printable(plan.study.folder.string()));
  }
  PrintResult(plan.study, text, report::RenderSitesJson(statement),
              arguments.study.json);
}

ExitCode Sites(SitesArguments& arguments) {
  campaign::RequireOneProcess("sites", "its runs go side by side in one");
  studies::SitesRequest request = arguments.request;
  request.out = arguments.study.out;
  request.estimate = arguments.study.estimates();
  const studies::SitesPlan plan = studies::PlanSites(request);
  if (const auto code = TrainAsAsked(plan.study, studies::DescribePlan(plan),
                                     arguments.study)) {
    return *code;
  }
  const bool may_train = !arguments.study.no_train;
  const auto errors = studies::ProductErrors(plan, may_train);
  if (!errors) return Interrupted(plan.study);
  sites::Statement statement = studies::JudgeSites(plan, *errors);
  const std::optional<studies::Study> recipe =
      studies::RecipeStudy(plan, statement);
  if (recipe) {
    if (may_train && !studies::TrainStudy(*recipe)) {
      return Interrupted(plan.study);
    }
    studies::AddRecipeRuns(*recipe, statement);
  }
  studies::WriteSites(plan, statement);
  PrintSites(arguments, plan, statement);
  return CodeOfSites(statement);
}

Action DeclareSites(CLI::App& app) {
  auto arguments = std::make_shared<SitesArguments>();
  DeclareExperiment(app, arguments->request.source).Required();
  AddOption(app, "--arm", arguments->request.arm,
            "Arm whose formats are tried at every site (default: the first "
            "candidate that quantises)");
  AddFlag(app, "--quick", arguments->request.quick,
          "20 steps and 3 seeds, in less than 5 minutes: shows that it works, "
          "and says nothing of sites");
  AddOption(app, "--seeds", arguments->request.seeds,
            "Seeds of each arm (default: 8)")
      .IntegerIn(2, 10'000)
      .Excludes("--quick");
  AddOption(app, "--margin", arguments->request.margin_percent,
            "Largest gap that the recipe may be predicted to have, percent of "
            "the baseline's loss (default: 0.25)")
      .NumberIn(0, 100);
  arguments->study.Declare(app, "sites");
  return [arguments] { return Sites(*arguments); };
}

}  // namespace

extern constinit const Command kCommand_sites = {
    "sites", "Find which GEMMs can be quantised",
    "isoloss study sites experiments/mxfp8_vs_bf16/experiment.toml --seeds 4",
    &DeclareSites};

}  // namespace isoloss::cli
