// isoloss verify: the main job. Trains all arms, then reads the logs back from
// disk and judges them: the judge sees nothing else of the runs.

#include <memory>
#include <string>
#include <vector>

#include "commands.h"
#include "experiment_command.h"
#include "isoloss/base/error.h"
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

std::vector<std::string> CandidatesOf(const train::Experiment& experiment) {
  std::vector<std::string> names;
  for (size_t i = 1; i < experiment.arms.size(); ++i) {
    names.push_back(experiment.arms[i].name);
  }
  return names;
}

ExitCode Verify(const VerifyArguments& arguments) {
  const train::Experiment experiment = arguments.experiment.Load();
  const gate::Policy policy = PolicyOf(arguments, experiment);
  if (arguments.experiment.dry_run) {
    PrintPlan(experiment);
    return ExitCode::kPass;
  }
  if (experiment.arms.size() < 2) {
    ThrowError(ErrorKind::kConfig,
               "{}: `arms` holds {} alone, but a verdict needs a second arm. "
               "Add one, or use `isoloss run`.",
               experiment.path.string(), experiment.arms.front().name);
  }
  const std::filesystem::path folder = arguments.experiment.Folder(experiment);
  // An earlier verdict must not stand beside logs that it was not given on.
  const auto remove_verdicts = [&] {
    if (SpeaksForTheJob()) RemoveVerdicts(CandidatesOf(experiment), folder);
  };
  const ExecutedRuns executed =
      TrainArms(experiment, folder,
                {.leftovers = arguments.experiment.leftovers(),
                 .on_accepted = remove_verdicts});
  if (!SpeaksForTheJob()) return ExitCode::kPass;
  if (executed.interrupted) return ExitCode::kInterrupted;
  return ReportVerdicts(
      JudgeArms(ReadRuns(executed.logs), experiment.arms.front().name, policy),
      arguments.report, folder);
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
