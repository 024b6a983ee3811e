// isoloss verify: the main job. Trains arms, has the oracle probe them, then
// reads what they left back from disk and judges it: the judge sees nothing
// else of the runs.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "commands.h"
#include "early_abort.h"
#include "experiment_command.h"
#include "isoloss/base/error.h"
#include "isoloss/gate/policy.h"
#include "isoloss/transport/launch.h"
#include "judge.h"
#include "probe_runs.h"

namespace isoloss::cli {
namespace {

struct VerifyArguments {
  ExperimentArguments experiment;
  ReportArguments report;
  EvidenceArguments evidence;
  std::vector<std::filesystem::path> against;
  std::string policy;
  bool oracle = false;
  bool abort_early = false;
};

/// Asks `watch`, if there is one.
std::function<std::optional<std::string>(const train::Run&,
                                         const runlog::StepRow&)>
WhyStop(std::optional<EarlyAbort>& watch) {
  if (!watch) return {};
  return [&watch](const train::Run& run, const runlog::StepRow& row) {
    return watch->Add(run, row);
  };
}

/// What the runs had, if anything, when they were stopped.
std::vector<compare::Run> ReadStopped(std::vector<std::filesystem::path> logs) {
  std::erase_if(logs, [](const auto& log) { return log.empty(); });
  return ReadRuns(logs);
}

/// Seeds that were trained before count like those of now; of approved runs
/// only those with a run of their own can be judged.
void AddOthers(const std::vector<std::filesystem::path>& others,
               const std::vector<compare::Run>& approved,
               std::vector<compare::Run>& runs) {
  for (compare::Run& run : ReadRuns(others)) {
    const auto& p = run.log.provenance;
    const bool judged =
        approved.empty() ||
        std::ranges::any_of(approved, [&](const compare::Run& other) {
          return other.log.provenance.arm == p.arm &&
                 other.log.provenance.seed == p.seed;
        });
    if (judged) runs.push_back(std::move(run));
  }
}

std::vector<std::string> ArmsOf(const train::Experiment& experiment) {
  std::vector<std::string> names;
  for (const train::Arm& arm : experiment.arms) names.push_back(arm.name);
  return names;
}

/// Precision: all arms but the baseline. Regression: the experiment's arms that
/// there are approved runs of.
std::vector<std::string> CandidatesOf(
    const train::Experiment& experiment,
    const std::vector<compare::Run>& approved) {
  std::vector<std::string> arms = ArmsOf(experiment);
  if (approved.empty()) {
    arms.erase(arms.begin());
    return arms;
  }
  std::erase_if(arms, [&](const std::string& arm) {
    return compare::RunsOfArm(approved, arm).empty();
  });
  if (arms.empty()) {
    ThrowError(ErrorKind::kConfig,
               "{}: --against has {} logs, the first of arm {}, but the arms "
               "here are {}. Give approved logs of one of them.",
               experiment.path.string(), approved.size(),
               approved.front().log.provenance.arm,
               fmt::join(ArmsOf(experiment), ", "));
  }
  return arms;
}

void RequireSecondArm(const train::Experiment& experiment) {
  if (experiment.arms.size() > 1) return;
  ThrowError(ErrorKind::kConfig,
             "{}: `arms` holds {} alone, but a verdict needs a second arm or "
             "approved logs. Add an arm, give --against, or use `isoloss run`.",
             experiment.path.string(), experiment.arms.front().name);
}

ExitCode Verify(const VerifyArguments& arguments) {
  const train::Experiment experiment = arguments.experiment.Load();
  const gate::Policy policy = PolicyOf(arguments.policy, experiment);
  if (arguments.against.empty()) RequireSecondArm(experiment);
  EvidenceFiles evidence = arguments.evidence.Read();
  const std::vector<compare::Run> approved = ReadRuns(arguments.against);
  const std::vector<std::string> candidates =
      CandidatesOf(experiment, approved);
  const std::string& baseline_arm = experiment.arms.front().name;
  CheckEvidenceIsUsed(
      evidence,
      approved.empty() ? policy.question : compare::Question::kRegression,
      candidates, approved.empty() ? baseline_arm : "");
  const std::filesystem::path folder = arguments.experiment.Folder(experiment);
  // An earlier verdict must not stand beside logs that it was not given on.
  const auto remove_verdicts = [&](size_t) {
    if (SpeaksForTheJob()) RemoveVerdicts(experiment, folder);
  };
  const bool alone = !approved.empty() && candidates.size() == 1;
  // The oracle needs all ranks in one process.
  const bool probes = (!approved.empty() || arguments.oracle) &&
                      evidence.probes.empty() &&
                      transport::DetectLaunch().processes == 1;
  const auto check_outputs = [&](const corpus::Corpus& corpus) {
    CheckVerdicts(experiment, folder);
    if (probes && !arguments.experiment.restart) {
      CheckProbeOutputs(experiment, candidates, corpus, folder);
    }
  };
  std::optional<EarlyAbort> watch;
  if (arguments.abort_early) {
    watch.emplace(baseline_arm, policy,
                  SpreadsOf(evidence, experiment, candidates, policy));
  }
  const ExecutedRuns executed =
      TrainArms(experiment, folder,
                {.dry_run = arguments.experiment.dry_run,
                 .leftovers = arguments.experiment.leftovers(),
                 .only_arm = alone ? candidates.front() : "",
                 .with_other_seeds = true,
                 .how_to_go_on = arguments.experiment.HowToGoOn(experiment),
                 .check_outputs = check_outputs,
                 .on_accepted = remove_verdicts,
                 .why_stop = WhyStop(watch)});
  if (arguments.experiment.dry_run || !SpeaksForTheJob()) {
    return ExitCode::kPass;
  }
  if (executed.stopped_because) {
    return ReportVerdicts(
        JudgeStopped(*watch->hopeless(), ReadStopped(executed.logs),
                     baseline_arm, candidates, evidence, policy, folder),
        arguments.report, folder);
  }
  if (executed.interrupted) return ExitCode::kInterrupted;
  std::vector<compare::Run> runs = ReadRuns(executed.logs);
  AddOthers(executed.others, approved, runs);
  if (probes) {
    ProbeSettings settings;
    settings.discard = arguments.experiment.restart;
    if (approved.empty()) settings.reference = baseline_arm;
    settings.plain_steps = PlainStepsDue(runs, approved, policy);
    const ProbedRuns probed =
        ProbeArms(experiment, candidates, folder, settings);
    if (probed.interrupted) return ExitCode::kInterrupted;
    ReadProbes(probed.files, evidence);
  }
  if (approved.empty()) {
    return ReportVerdicts(JudgeArms(runs, baseline_arm, policy, evidence),
                          arguments.report, folder);
  }
  std::erase_if(runs, [&](const compare::Run& run) {
    return std::ranges::count(candidates, run.log.provenance.arm) == 0;
  });
  return ReportVerdicts(JudgeAgainstApproved(runs, approved, policy, evidence),
                        arguments.report, folder);
}

}  // namespace

Action DeclareVerify(CLI::App& app) {
  auto arguments = std::make_shared<VerifyArguments>();
  arguments->experiment.Declare(app);
  arguments->report.Declare(app);
  app.get_option("--json")->excludes("--dry-run");
  app.add_option("--against", arguments->against,
                 "Approved logs, or folders of them: is each arm still what it "
                 "was (question `regression`)? Judged by the oracle, the first "
                 "steps and the end of training");
  app.add_flag("--oracle", arguments->oracle,
               "Precision: have the oracle probe the arms, too (--against "
               "always does)");
  app.add_flag("--abort-early", arguments->abort_early,
               "Precision: stop all runs and fail once the difference of a "
               "pair lies beyond the margin (level L6). Give --ensemble of "
               "kind seeds, else its spread is judged by the run's own")
      ->excludes("--against")
      ->excludes("--resume");
  arguments->evidence.Declare(app);
  app.add_option("--policy", arguments->policy,
                 "Policy file (TOML) in place of the experiment's");
  return [arguments] { return Verify(*arguments); };
}

}  // namespace isoloss::cli
