// isoloss verify: the main job. Trains all arms, then reads the logs back from
// disk and judges them: the judge sees nothing else of the runs.

#include <fmt/format.h>

#include <memory>

#include "commands.h"
#include "experiment_command.h"
#include "isoloss/gate/policy.h"
#include "judge.h"

namespace isoloss::cli {
namespace {

struct VerifyArguments {
  ExperimentArguments experiment;
  ReportArguments report;
  std::string policy;
};

gate::Policy PolicyOf(const VerifyArguments& arguments,
                      const train::Experiment& experiment) {
  if (!arguments.policy.empty()) return gate::ReadPolicy(arguments.policy);
  if (experiment.gate.policy.empty()) return {};
  return gate::ReadPolicy(experiment.path.parent_path() /
                          experiment.gate.policy);
}

ExitCode Verify(const VerifyArguments& arguments) {
  const train::Experiment experiment = arguments.experiment.Load();
  const gate::Policy policy = PolicyOf(arguments, experiment);
  if (arguments.experiment.dry_run) {
    PrintPlan(experiment);
    return ExitCode::kPass;
  }
  const std::filesystem::path folder = arguments.experiment.Folder(experiment);
  const ExecutedRuns executed = TrainArms(experiment, folder);
  if (executed.interrupted) {
    fmt::print(stderr,
               "isoloss: interrupted; no verdict. Logs of finished runs and "
               "*.partial.h5 of the others are in {}.\n",
               folder.string());
    return ExitCode::kInterrupted;
  }
  return JudgeAndReport(ReadRuns(executed.logs), experiment.arms.front().name,
                        policy, arguments.report, folder);
}

}  // namespace

Action DeclareVerify(CLI::App& app) {
  auto arguments = std::make_shared<VerifyArguments>();
  arguments->experiment.Declare(app);
  arguments->report.Declare(app);
  app.add_option("--policy", arguments->policy,
                 "Policy file (TOML) in place of the experiment's");
  return [arguments] { return Verify(*arguments); };
}

}  // namespace isoloss::cli
