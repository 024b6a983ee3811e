// isoloss mutants run: what does this gate catch?

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "arguments.h"
#include "arms.h"
#include "commands.h"
#include "experiment_command.h"
#include "interrupt.h"
#include "isoloss/base/atomic_file.h"
#include "isoloss/base/build_info.h"
#include "isoloss/base/error.h"
#include "isoloss/base/nearest_name.h"
#include "isoloss/gate/power_record.h"
#include "isoloss/precision/recipe.h"
#include "isoloss/report/kill_matrix.h"
#include "isoloss/runlog/ensemble.h"
#include "json_output.h"
#include "judge.h"
#include "kill_matrix_run.h"
#include "mutants_command.h"

namespace isoloss::cli {
namespace {

struct MutantsRunArguments {
  ExperimentSource experiment;
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

std::vector<mutants::Mutant> ChosenMutants(
    const std::vector<std::string>& patterns) {
  std::vector<std::string> names;
  std::vector<mutants::Mutant> chosen;
  for (const mutants::Mutant& mutant : mutants::AllMutants()) {
    names.push_back(mutant.name);
    if (precision::FirstMatch(patterns, mutant.name) != nullptr) {
      chosen.push_back(mutant);
    }
  }
  for (const std::string& pattern : patterns) {
    if (std::none_of(names.begin(), names.end(), [&](const std::string& name) {
          return precision::SiteMatches(pattern, name);
        })) {
      ThrowError(ErrorKind::kConfig,
                 "mutants run: --mutants {}: none of the {} mutants matches. "
                 "`isoloss mutants list` shows them.{}",
                 pattern, names.size(), DidYouMean(pattern, names));
    }
  }
  return chosen;
}

void RequireOtherArm(const KillMatrixPlan& plan) {
  if (plan.reference->name != plan.arm.name) return;
  ThrowError(ErrorKind::kConfig,
             "mutants run: --reference {} is the arm in which things are "
             "planted, but it must be another one. Name that with --arm, or "
             "leave --reference out for the question of regression.",
             plan.arm.name);
}

/// Without one most verdicts would be inconclusive, which count as alarms.
void RequireEnsemble(const KillMatrixPlan& plan) {
  if (plan.ensemble || (plan.benign_runs == 0 && !plan.reference)) return;
  ThrowError(
      ErrorKind::kConfig,
      "mutants run: {} without --ensemble, but good runs are "
      "inconclusive without one. Make one with `isoloss ensemble build "
      "--arm {}{}`.",
      plan.reference ? fmt::format("--reference {}", plan.reference->name)
                     : fmt::format("--benign {}", plan.benign_runs),
      plan.arm.name,
      plan.reference
          ? fmt::format(" --kind seeds --steps {}", plan.experiment.train.steps)
          : "");
}

KillMatrixPlan PlanOf(const MutantsRunArguments& arguments) {
  KillMatrixPlan plan;
  plan.experiment = arguments.experiment.Load();
  plan.arm = OneArm(plan.experiment, arguments.arm);
  if (!arguments.reference.empty()) {
    plan.reference = OneArm(plan.experiment, arguments.reference);
    RequireOtherArm(plan);
  }
  for (size_t i = 0; i < arguments.seeds; ++i) {
    plan.seeds.push_back(plan.experiment.train.seeds.front() + i);
  }
  plan.mutants = ChosenMutants(arguments.mutants);
  plan.benign_runs = arguments.benign;
  if (!arguments.policy.empty()) {
    plan.policy = gate::ReadPolicy(arguments.policy);
  }
  // One pair per cell seldom settles the final window.
  if (plan.reference && plan.policy.levels.empty()) {
    plan.policy.levels = {"L2", "L3", "L4"};
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
  RequireEnsemble(plan);
  return plan;
}

/// What verdicts of this gate may say of themselves from now on.
gate::PowerRecord PowerOf(const KillMatrixPlan& plan,
                          const gate::KillMatrix& matrix) {
  const gate::Rate score = matrix.Score();
  const gate::Rate alarms = matrix.FalseAlarms();
  gate::PowerRecord record;
  record.tool_version = fmt::format("isoloss {}", GetBuildInfo().version);
  record.policy_digest = gate::PolicyDigest(plan.policy);
  if (plan.ensemble) {
    record.ensemble_digests = {plan.ensemble->ensemble.digest};
  }
  for (size_t level = 0; level < matrix.levels.size(); ++level) {
    const bool judged = std::any_of(
        matrix.rows.begin(), matrix.rows.end(), [&](const gate::KillRow& row) {
          return std::any_of(row.cells.begin(), row.cells.end(),
                             [&](const gate::KillCell& cell) {
                               return cell.levels.at(level).has_value();
                             });
        });
    if (judged) record.levels.push_back(matrix.levels[level]);
  }
  record.experiment = plan.experiment.name;
  record.recipe = plan.arm.recipe;
  record.arm = plan.arm.name;
  record.bugs = score.of;
  record.bugs_caught = score.count;
  record.benign_runs = alarms.of;
  record.false_alarms = alarms.count;
  return record;
}

/// 1 if a bug got through or a benign run did not; 4 if there was neither.
ExitCode CodeOf(const gate::KillMatrix& matrix) {
  const gate::Rate score = matrix.Score();
  const gate::Rate alarms = matrix.FalseAlarms();
  if (score.count < score.of || alarms.count > 0) return ExitCode::kFail;
  return score.of + alarms.of > 0 ? ExitCode::kPass : ExitCode::kInconclusive;
}

/// A part of the mutants, or no benign run, is no measure of the gate.
bool MeasuresTheGate(const KillMatrixPlan& plan) {
  return plan.mutants.size() == mutants::AllMutants().size() &&
         plan.benign_runs > 0;
}

ExitCode MutantsRun(const MutantsRunArguments& arguments) {
  const KillMatrixPlan plan = PlanOf(arguments);
  const KillMatrixResult result = RunKillMatrix(plan, InterruptFlag());
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
  const bool measures = MeasuresTheGate(plan);
  if (measures) {
    gate::WritePowerRecord(PowerOf(plan, matrix), plan.folder / "power.json");
  }
  if (arguments.json) {
    PrintJsonText(report::RenderKillMatrixJson(matrix));
  } else {
    ReportArguments style;
    style.ascii = arguments.ascii;
    fmt::print("{}\n{}: kill_matrix.json, kill_matrix.svg{}\n",
               report::RenderKillMatrix(matrix, style.Style()),
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
  arguments->experiment.Declare(app);
  app.add_option("--arm", arguments->arm,
                 std::string("Arm in which they are planted") + kOneArmHelp);
  app.add_option("--reference", arguments->reference,
                 "Ask the question of precision: compare with this arm, not "
                 "with the unchanged runs of the same arm");
  app.add_option("--ensemble", arguments->ensemble,
                 "Benign ensemble of that arm (isoloss ensemble build); with "
                 "--reference one of seeds with all steps");
  app.add_option("--policy", arguments->policy, "Gate policy (TOML)");
  app.add_option("--mutants", arguments->mutants,
                 "Only mutants whose name matches one of these patterns")
      ->take_all();
  app.add_option("--seeds", arguments->seeds,
                 "Seeds of each mutant, from the experiment's first one on "
                 "(default: 2)")
      ->check(IntegerIn(1, 1000));
  app.add_option("--benign", arguments->benign,
                 "Benign runs besides, which must all pass; 299 without an "
                 "alarm show a rate below 1 % (default: 0)")
      ->check(IntegerIn(0, 100'000));
  app.add_option("--out", arguments->out,
                 "Folder that keeps finished cells and gets the matrix "
                 "(default: runs/<experiment name>-mutants)");
  app.add_flag("--ascii", arguments->ascii, "Draw with 7-bit characters only");
  DeclareJson(app, arguments->json, "that of kill_matrix.json");
  return [arguments] { return MutantsRun(*arguments); };
}

}  // namespace isoloss::cli
