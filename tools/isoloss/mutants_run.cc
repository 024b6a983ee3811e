// isoloss mutants run: what does this gate catch?

#include <fmt/format.h>

#include <memory>
#include <string>
#include <vector>

#include "arguments.h"
#include "commands.h"
#include "experiment_arguments.h"
#include "isoloss/base/atomic_file.h"
#include "isoloss/campaign/arms.h"
#include "isoloss/campaign/interrupt.h"
#include "isoloss/campaign/kill_matrix_plan.h"
#include "isoloss/campaign/kill_matrix_run.h"
#include "isoloss/gate/level.h"
#include "isoloss/report/kill_matrix.h"
#include "isoloss/report/terminal_width.h"
#include "isoloss/runlog/ensemble.h"
#include "json_output.h"
#include "mutants_command.h"

namespace isoloss::cli {
namespace {

struct MutantsRunArguments {
  campaign::ExperimentSource experiment;
  std::string arm;
  std::string reference;
  std::string out;
  std::string ensemble;
  std::string policy;
  std::vector<std::string> mutants = {"*"};
  size_t seeds = 2;
  size_t benign = 0;
  bool ascii = false;
  bool json = false;
};

campaign::KillMatrixPlan PlanOf(const MutantsRunArguments& arguments) {
  campaign::KillMatrixPlan plan;
  plan.experiment = arguments.experiment.Load();
  plan.arm = campaign::OneArm(plan.experiment, arguments.arm);
  if (!arguments.reference.empty()) {
    plan.reference = campaign::OneArm(plan.experiment, arguments.reference);
    campaign::RequireOtherArm(plan);
  }
  for (size_t i = 0; i < arguments.seeds; ++i) {
    plan.seeds.push_back(plan.experiment.train.seeds.front() + i);
  }
  plan.mutants = campaign::ChosenMutants(arguments.mutants);
  plan.benign_runs = arguments.benign;
  if (!arguments.policy.empty()) {
    plan.policy = gate::ReadPolicy(arguments.policy);
  }
  // One pair per cell seldom settles the final window.
  if (plan.reference && plan.policy.levels.empty()) {
    using enum gate::LevelId;
    for (const auto level : {l2_oracle, l3_precision, l4_early_window}) {
      plan.policy.levels.emplace_back(gate::LevelName(level));
    }
  }
  plan.policy.question = plan.reference ? compare::Question::kPrecision
                                        : compare::Question::kRegression;
  if (!arguments.ensemble.empty()) {
    plan.ensemble = gate::NullEnsemble{
        arguments.ensemble, runlog::ReadEnsemble(arguments.ensemble)};
  }
  plan.folder = arguments.out.empty() ? std::filesystem::path("runs") /
                                            (plan.experiment.name + "-mutants")
                                      : std::filesystem::path(arguments.out);
  plan.workers = plan.experiment.parallel.workers;
  campaign::RequireEnsemble(plan);
  return plan;
}

/// 1 if a bug got through or a benign run did not; 4 if there was neither.
ExitCode CodeOf(const gate::KillMatrix& matrix) {
  const gate::Rate score = matrix.Score();
  const gate::Rate alarms = matrix.FalseAlarms();
  if (score.count < score.of || alarms.count > 0) return ExitCode::kFail;
  return score.of + alarms.of > 0 ? ExitCode::kPass : ExitCode::kInconclusive;
}

ExitCode MutantsRun(const MutantsRunArguments& arguments) {
  const campaign::KillMatrixPlan plan = PlanOf(arguments);
  const campaign::KillMatrixResult result =
      campaign::RunKillMatrix(plan, campaign::InterruptFlag());
  if (result.interrupted) {
    fmt::print(stderr,
               "isoloss: interrupted by a signal. Finished cells are in "
               "{}/cells; the same command goes on.\n",
               plan.folder.string());
    return ExitCode::kInterrupted;
  }
  const gate::KillMatrix& matrix = result.matrix;
  WriteFileAtomically(plan.folder / "kill_matrix.json",
                      report::RenderKillMatrixJson(matrix));
  WriteFileAtomically(plan.folder / "kill_matrix.svg",
                      report::RenderKillMatrixSvg(matrix));
  const bool measures = campaign::MeasuresTheGate(plan);
  if (measures) {
    gate::WritePowerRecord(campaign::PowerOf(plan, matrix),
                           plan.folder / "power.json");
  }
  if (arguments.json) {
    PrintJsonText(report::RenderKillMatrixJson(matrix));
  } else {
    fmt::print("{}\n{}: kill_matrix.json, kill_matrix.svg{}\n",
               report::RenderKillMatrix(matrix,
                                        report::TerminalStyle(arguments.ascii)),
               plan.folder.string(),
               measures ? ", power.json"
                        : "; no power.json: that takes all mutants and "
                          "--benign runs");
  }
  return CodeOf(matrix);
}

}  // namespace

Action DeclareMutantsRun(CLI::App& app) {
  auto arguments = std::make_shared<MutantsRunArguments>();
  DeclareExperiment(app, arguments->experiment);
  AddOption(app, "--arm", arguments->arm,
            std::string("Arm in which they are planted") + kOneArmHelp);
  AddOption(app, "--reference", arguments->reference,
            "Ask the question of precision: compare with this arm, not "
            "with the unchanged runs of the same arm");
  AddOption(app, "--ensemble", arguments->ensemble,
            "Benign ensemble of that arm (isoloss ensemble build); with "
            "--reference one of seeds with all steps");
  AddOption(app, "--policy", arguments->policy, "Gate policy (TOML)");
  AddOption(app, "--mutants", arguments->mutants,
            "Only mutants whose name matches one of these patterns");
  AddOption(app, "--seeds", arguments->seeds,
            "Seeds of each mutant, from the experiment's first one on "
            "(default: 2)")
      .IntegerIn(1, 1000);
  AddOption(app, "--benign", arguments->benign,
            "Benign runs besides, which must all pass; 299 without an "
            "alarm show a rate below 1 % (default: 0)")
      .IntegerIn(0, 100'000);
  AddOption(app, "--out", arguments->out,
            "Folder that keeps finished cells and gets the matrix "
            "(default: runs/<experiment name>-mutants)");
  AddFlag(app, "--ascii", arguments->ascii, "Draw with 7-bit characters only");
  DeclareJson(app, arguments->json, "that of kill_matrix.json");
  return [arguments] { return MutantsRun(*arguments); };
}

}  // namespace isoloss::cli
