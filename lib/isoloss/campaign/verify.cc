#include "isoloss/campaign/verify.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>

#include "isoloss/base/error.h"
#include "isoloss/campaign/early_abort.h"
#include "isoloss/campaign/judge_arms.h"
#include "isoloss/campaign/log_files.h"
#include "isoloss/campaign/probe_runs.h"
#include "isoloss/campaign/train_arms.h"
#include "isoloss/corpus/corpus.h"
#include "isoloss/transport/launch.h"

namespace isoloss::campaign {
namespace {

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

/// What a verification does, in the order in which it does it.
class Verifier {
 public:
  explicit Verifier(VerifyPlan plan)
      : plan_(std::move(plan)),
        baseline_arm_(plan_.experiment.arms.front().name),
        candidates_(CandidatesOf(plan_.experiment, plan_.approved)) {}

  Verification Run() {
    CheckEvidence();
    corpus_.emplace(LoadCorpusToTrain(plan_.experiment));
    CheckOutputs();
    if (plan_.abort_early) {
      watch_.emplace(baseline_arm_, plan_.policy,
                     SpreadsOf(plan_.evidence, plan_.experiment, *corpus_,
                               candidates_, plan_.policy));
    }
    const ExecutedRuns executed = Train();
    if (plan_.dry_run || !SpeaksForTheJob()) return {};
    if (executed.stopped_because) {
      return {JudgeStopped(*watch_->hopeless(), ReadStopped(executed.logs),
                           baseline_arm_, candidates_, plan_.evidence,
                           plan_.policy, plan_.folder)};
    }
    if (executed.interrupted) return {.interrupted = true};
    std::vector<compare::Run> runs = ReadRuns(executed.logs);
    AddOthers(executed.others, plan_.approved, runs);
    if (Probes() && !Probe(runs)) return {.interrupted = true};
    return {Judge(std::move(runs))};
  }

 private:
  bool IsRegression() const { return !plan_.approved.empty(); }

  /// The oracle needs all ranks in one process.
  bool Probes() const {
    return (IsRegression() || plan_.oracle) && !probes_given_ &&
           transport::DetectLaunch().processes == 1;
  }

  void CheckEvidence() const {
    CheckEvidenceIsUsed(
        plan_.evidence,
        IsRegression() ? compare::Question::kRegression : plan_.policy.question,
        candidates_, IsRegression() ? "" : baseline_arm_);
  }

  /// Before anything is computed: what could not be written at the end.
  void CheckOutputs() const {
    if (!SpeaksForTheJob()) return;
    CheckVerdicts(plan_.experiment, plan_.folder);
    if (Probes() && plan_.leftovers != train::Leftovers::kDiscard) {
      CheckProbeOutputs(plan_.experiment, candidates_, *corpus_, plan_.folder);
    }
  }

  ExecutedRuns Train() {
    const bool alone = IsRegression() && candidates_.size() == 1;
    return TrainArms(plan_.experiment, *corpus_, plan_.folder,
                     {.dry_run = plan_.dry_run,
                      .leftovers = plan_.leftovers,
                      .only_arm = alone ? candidates_.front() : "",
                      .with_other_seeds = true,
                      .how_to_go_on = plan_.how_to_go_on,
                      // An earlier verdict must not stand beside logs that it
                      // was not given on.
                      .on_accepted =
                          [this](size_t) {
                            if (!SpeaksForTheJob()) return;
                            RemoveVerdicts(plan_.experiment, plan_.folder);
                          },
                      .why_stop = WhyStop(watch_)});
  }

  /// False if a signal came.
  bool Probe(const std::vector<compare::Run>& runs) {
    ProbeSettings settings;
    settings.discard = plan_.leftovers == train::Leftovers::kDiscard;
    if (!IsRegression()) settings.reference = baseline_arm_;
    settings.plain_steps = PlainStepsDue(runs, plan_.approved, plan_.policy);
    const ProbedRuns probed = ProbeArms(plan_.experiment, *corpus_, candidates_,
                                        plan_.folder, settings);
    if (probed.interrupted) return false;
    ReadProbes(probed.files, plan_.evidence);
    return true;
  }

  std::vector<gate::Judgement> Judge(std::vector<compare::Run> runs) const {
    if (!IsRegression()) {
      return JudgeArms(runs, baseline_arm_, plan_.policy, plan_.evidence);
    }
    std::erase_if(runs, [&](const compare::Run& run) {
      return std::ranges::count(candidates_, run.log.provenance.arm) == 0;
    });
    return JudgeAgainstApproved(runs, plan_.approved, plan_.policy,
                                plan_.evidence);
  }

  VerifyPlan plan_;
  const bool probes_given_ = !plan_.evidence.probes.empty();
  const std::string baseline_arm_;
  const std::vector<std::string> candidates_;
  std::optional<corpus::Corpus> corpus_;
  std::optional<EarlyAbort> watch_;
};

}  // namespace

void RequireSecondArm(const train::Experiment& experiment) {
  if (experiment.arms.size() > 1) return;
  ThrowError(ErrorKind::kConfig,
             "{}: `arms` holds {} alone, but a verdict needs a second arm or "
             "approved logs. Add an arm, give --against, or use `isoloss run`.",
             experiment.path.string(), experiment.arms.front().name);
}

Verification Verify(VerifyPlan plan) {
  if (plan.approved.empty()) RequireSecondArm(plan.experiment);
  return Verifier(std::move(plan)).Run();
}

}  // namespace isoloss::campaign
