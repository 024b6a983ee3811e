// isoloss study stress: recipes under stress.

#include "isoloss/report/stress.h"

#include <fmt/format.h>

#include <memory>
#include <string>

#include "arguments.h"
#include "commands.h"
#include "experiment_arguments.h"
#include "isoloss/campaign/train_arms.h"
#include "isoloss/studies/stress.h"
#include "study_arguments.h"

namespace isoloss::cli {
namespace {

struct StressArguments {
  studies::StressRequest request;
  StudyArguments study;
};

ExitCode Stress(StressArguments& arguments) {
  campaign::RequireOneProcess("stress", "its runs go side by side in one");
  studies::StressRequest request = arguments.request;
  request.estimate = arguments.study.estimates();
  request.out = arguments.study.out;
  const studies::StressPlan plan = studies::PlanStress(request);
  if (const auto code = TrainAsAsked(plan.study, studies::DescribePlan(plan),
                                     arguments.study)) {
    return *code;
  }
  const stress::StressMap map = studies::JudgeStress(plan);
  studies::WriteStress(plan, map);
  PrintResult(plan.study, report::RenderStress(map),
              report::RenderStressJson(map), arguments.study.json);
  return map.SeparatesAny() ? ExitCode::kPass : ExitCode::kInconclusive;
}

Action DeclareStress(CLI::App& app) {
  auto arguments = std::make_shared<StressArguments>();
  DeclareExperiment(app, arguments->request.source).Required();
  AddFlag(app, "--quick", arguments->request.quick,
          "Three modes and 4 seeds, in less than 5 minutes");
  AddOption(app, "--mode", arguments->request.modes,
            "Train in this mode only; repeatable (default: all; "
            "--dry-run lists them)")
      .Repeatable()
      .Excludes("--quick");
  AddOption(app, "--seeds", arguments->request.seeds,
            "Seeds of each arm in each mode (default: 8)")
      .IntegerIn(2, 10'000)
      .Excludes("--quick");
  AddOption(
      app, "--indicators", arguments->request.indicators_every,
      "Record leading indicators of divergence at step 1 and each step "
      "that this divides, for `isoloss study indicators` (default: none); each "
      "takes another step in BF16")
      .IntegerIn(1, kMostSteps)
      .TypeName("STEPS");
  arguments->study.Declare(app, "stress");
  return [arguments] { return Stress(*arguments); };
}

}  // namespace

extern constinit const Command kCommand_stress = {
    "stress", "Put recipes under known strains of low precision",
    "isoloss study stress experiments/mxfp8_vs_bf16/experiment.toml --mode "
    "lr_10",
    &DeclareStress};

}  // namespace isoloss::cli
