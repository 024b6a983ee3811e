// Implements `isoloss verify`, which leads from an experiment to its verdicts.

#include "isoloss/verify/verify.h"

#include <memory>
#include <string>
#include <vector>

#include "commands.h"
#include "experiment_arguments.h"
#include "isoloss/logs/log_files.h"
#include "isoloss/verdicts/judge_arms.h"
#include "run_choice_arguments.h"
#include "value_names.h"
#include "verdict_arguments.h"

namespace isoloss::cli {
namespace {

struct VerifyArguments {
  ExperimentArguments experiment;
  ReportArguments report;
  EvidenceArguments evidence;
  RunChoiceArguments runs;
  std::vector<std::string> arms;
  std::vector<std::filesystem::path> against;
  PolicyArguments policy;
  std::string looks;
  bool no_oracle = false;
  bool abort_early = false;
  bool no_train = false;
};

/// Says what the command was asked to do in place of judging.
std::string WhyUnjudged(const VerifyArguments& arguments) {
  if (!arguments.runs.list.empty()) return "--list-runs trains and judges none";
  if (arguments.experiment.dry_run) return "--dry-run trains and judges none";
  return "--only trains some of the runs, and judges none";
}

ExitCode Verify(VerifyArguments& arguments) {
  arguments.report.ci.Begin();
  ExperimentArguments experiment = arguments.experiment;
  if (!arguments.looks.empty()) {
    experiment.overrides.push_back("gate.looks=[" + arguments.looks + "]");
  }
  verify::VerifyPlan plan{.experiment = experiment.Load()};
  plan.folder = arguments.experiment.Folder(plan.experiment);
  plan.policy = arguments.policy.Chosen(
      verdicts::PolicyOf(arguments.policy.file, plan.experiment));
  if (arguments.against.empty()) {
    plan.policy = verdicts::ForPrecision(std::move(plan.policy), "");
  }
  plan.judged = arguments.arms;
  plan.evidence = arguments.evidence.Read();
  plan.approved = logs::ReadRuns(arguments.against);
  plan.oracle = !arguments.no_oracle;
  plan.abort_early = arguments.abort_early;
  plan.dry_run = arguments.experiment.dry_run;
  plan.only = arguments.runs.choice();
  plan.list = arguments.runs.list;
  plan.no_train = arguments.no_train;
  plan.leftovers = arguments.experiment.leftovers();
  plan.how_to_go_on = arguments.experiment.HowToGoOn(plan.experiment);
  const std::filesystem::path folder = plan.folder;
  const std::filesystem::path file = plan.experiment.path;
  const verify::Verification found = verify::Verify(std::move(plan));
  if (found.interrupted) return ExitCode::kInterrupted;
  if (!found.judgements) {
    return ReportUnjudged(WhyUnjudged(arguments), arguments.report);
  }
  return ReportVerdicts(*found.judgements, found.judged, arguments.report,
                        folder, file);
}

Action DeclareVerify(CLI::App& app) {
  auto arguments = std::make_shared<VerifyArguments>();
  arguments->experiment.Declare(app);
  arguments->report.Declare(app, "verify").Excludes("--dry-run");
  AddOption(app, "--arm", arguments->arms,
            "Precision: train and judge this arm only, beside the baseline, "
            "null arms and the control (default: every arm that is none of "
            "these); repeatable")
      .Repeatable();
  AddOption(app, "--looks", arguments->looks,
            "Precision: numbers of seed pairs such as 12,18,24, in place of "
            "gate.looks. L5 tests after each, and more seeds are trained "
            "until it decides; all looks of a folder share one alpha");
  AddOption(app, "--against", arguments->against,
            "Approved logs, or folders of them: is each arm still what it "
            "was (question `regression`)? Judged by the oracle, the first "
            "steps and the end of training")
      .TypeName(kLogFile)
      .Excludes("--arm")
      .Excludes("--looks");
  AddFlag(app, "--no-oracle", arguments->no_oracle,
          "Precision: do not have the oracle check every tensor of some steps "
          "of each arm. The verdict says that L2 has no evidence")
      .Excludes("--against");
  AddFlag(app, "--abort-early", arguments->abort_early,
          "Precision: stop all runs and fail once the final windows of the "
          "pairs so far show a mean difference beyond the margin, or a pair "
          "diverges (level L6)")
      .Excludes("--against")
      .Excludes("--resume");
  arguments->evidence.Declare(app);
  arguments->runs.Declare(app);
  AddFlag(app, "--no-train", arguments->no_train,
          "Only judge: refuse if a run has not finished")
      .Excludes("--only")
      .Excludes("--list-runs")
      .Excludes("--dry-run")
      .Excludes("--restart");
  arguments->policy.Declare(app,
                            " in place of the experiment's policy and margin");
  return [arguments] { return Verify(*arguments); };
}

}  // namespace

extern constinit const Command kCommand_verify = {
    "verify", "Train all arms of an experiment and judge them",
    "isoloss verify experiments/demo/experiment.toml "
    "--set train.steps=600",
    &DeclareVerify};

}  // namespace isoloss::cli
