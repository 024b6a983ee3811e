// isoloss study ladder: what small runs say of a large one.

#include "isoloss/report/ladder.h"

#include <fmt/format.h>

#include <memory>
#include <string>
#include <vector>

#include "arguments.h"
#include "commands.h"
#include "experiment_arguments.h"
#include "isoloss/base/error.h"
#include "isoloss/campaign/train_arms.h"
#include "isoloss/scaling/size_text.h"
#include "isoloss/studies/ladder.h"
#include "study_arguments.h"
#include "usage.h"
#include "value_names.h"

namespace isoloss::cli {
namespace {

struct LadderArguments {
  studies::LadderRequest request;
  std::vector<std::string> sizes;
  StudyArguments study;
};

/// Unsafe candidates fail, unsettled ones are inconclusive.
ExitCode CodeOf(const scaling::LadderStatement& statement) {
  ExitCode code = ExitCode::kPass;
  for (const scaling::ArmStatement& arm : statement.arms) {
    if (arm.arm.role != scaling::ArmRole::kCandidate) continue;
    if (arm.sizes.empty()) code = ExitCode::kInconclusive;
    for (const scaling::SizeStatement& size : arm.sizes) {
      if (size.verdict == scaling::ScaleVerdict::kUnsafe) {
        return ExitCode::kFail;
      }
      if (size.verdict == scaling::ScaleVerdict::kInconclusive) {
        code = ExitCode::kInconclusive;
      }
    }
  }
  return code;
}

ExitCode Ladder(LadderArguments& arguments) {
  campaign::RequireOneProcess("ladder", "its runs go side by side in one");
  studies::LadderRequest request = arguments.request;
  request.estimate = arguments.study.estimates();
  request.out = arguments.study.out;
  if (!arguments.sizes.empty()) {
    request.sizes.clear();
    for (const std::string& size : arguments.sizes) {
      request.sizes.push_back(scaling::ParseSize(size));
    }
  }
  const studies::LadderPlan plan = studies::PlanLadder(request);
  if (const auto code = TrainAsAsked(plan.study, studies::DescribePlan(plan),
                                     arguments.study)) {
    return *code;
  }
  const scaling::LadderStatement statement = studies::JudgeLadder(plan);
  studies::WriteLadder(plan, statement);
  PrintResult(plan.study, report::RenderLadder(statement),
              report::RenderLadderJson(statement), arguments.study.json);
  return CodeOf(statement);
}

Action DeclareLadder(CLI::App& app) {
  auto arguments = std::make_shared<LadderArguments>();
  DeclareExperiment(app, arguments->request.source).Required();
  AddFlag(app, "--quick", arguments->request.quick,
          "Three tiny sizes and 4 seeds, in less than 5 minutes: it shows that "
          "the ladder works, and says nothing of large models. Exit code 4");
  for (const auto& [name, values, what] :
       {std::tuple("--parameters", &arguments->request.parameters_in_millions,
                   "Sizes of models, million parameters (default: 0.34 1.3 3 "
                   "6.7)"),
        std::tuple("--tokens-per-parameter",
                   &arguments->request.tokens_per_parameter,
                   "Tokens that each is trained with, for each parameter "
                   "(default: 1 4 20)")}) {
    AddOption(app, name, *values, what)
        .NumberIn(1e-6, studies::kLargestFactor)
        .Excludes("--quick");
  }
  AddOption(app, "--seeds", arguments->request.seeds,
            "Seeds of each size (default: 8)")
      .IntegerIn(2, 10'000)
      .Excludes("--quick");
  AddOption(app, "--budget", arguments->request.budget_minutes,
            "Minutes that all sizes may take here; what is more expensive is "
            "left out, and said so; 0: no limit (default: the sizes of an "
            "earlier call in the folder, else 90)")
      .NumberIn(0, 1e6)
      .Excludes("--quick");
  AddOption(
      app, "--at", arguments->sizes,
      "Size to predict, PARAMETERS@TOKENS such as 7B@2T; 16B and 671B "
      "alone stand for 16B@50B and 671B@14.8T; repeatable (default: both)")
      .Repeatable();
  AddOption(app, "--margin", arguments->request.margin_percent,
            "Largest gap that is accepted, percent of the baseline's loss "
            "(default: 0.25)")
      .NumberIn(1e-6, 99);
  arguments->study.Declare(app, "ladder");
  return [arguments] { return Ladder(*arguments); };
}

}  // namespace

extern constinit const Command kCommand_ladder = {
    "ladder", "Predict the gaps of large models from small ones",
    "isoloss study ladder experiments/mxfp8_vs_bf16/experiment.toml --budget "
    "30 "
    "--at 16B@50B",
    &DeclareLadder};

}  // namespace isoloss::cli
