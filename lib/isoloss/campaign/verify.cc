#include "isoloss/campaign/verify.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include "isoloss/base/error.h"
#include "isoloss/base/printable.h"
#include "isoloss/campaign/arm_roles.h"
#include "isoloss/campaign/dry_run.h"
#include "isoloss/campaign/early_abort.h"
#include "isoloss/campaign/interrupt.h"
#include "isoloss/campaign/judge_arms.h"
#include "isoloss/campaign/log_files.h"
#include "isoloss/campaign/pilot.h"
#include "isoloss/campaign/probe_runs.h"
#include "isoloss/campaign/run_cost.h"
#include "isoloss/campaign/seed_looks.h"
#include "isoloss/campaign/train_arms.h"
#include "isoloss/corpus/corpus.h"
#include "isoloss/oracle/known_recipes.h"
#include "isoloss/train/arm_recipes.h"
#include "isoloss/transport/launch.h"

namespace isoloss::campaign {
namespace {

/// What the runs had, if anything, when they were stopped.
std::vector<compare::Run> ReadStopped(std::vector<std::filesystem::path> logs) {
  std::erase_if(logs, [](const auto& log) { return log.empty(); });
  return ReadRuns(logs);
}

/// Seeds that were trained before count like those of now; of approved runs
/// only those with a run of their own can be judged.
void AddOthers(const train::OtherLogs& others,
               const std::vector<compare::Run>& approved,
               std::vector<std::filesystem::path>& logs) {
  for (const train::OtherLogs::File& file : others.files) {
    const bool judged =
        approved.empty() ||
        std::ranges::any_of(approved, [&](const compare::Run& other) {
          return other.log.provenance.arm == file.arm->name &&
                 other.log.provenance.seed == static_cast<int64_t>(file.seed);
        });
    if (judged) logs.push_back(file.path);
  }
}

void RequireSecondArm(const train::Experiment& experiment) {
  if (experiment.arms.size() > 1) return;
  ThrowError(ErrorKind::kConfig,
             "{}: `arms` holds {} alone, but a verdict needs a second arm or "
             "approved logs. Add an arm, give --against, or use `isoloss run`.",
             experiment.path.string(), experiment.arms.front().name);
}

/// Of a regression: the experiment's arms that there are approved runs of are
/// candidates, and no arm is beside them.
ArmRoles ApprovedArms(const train::Experiment& experiment,
                      const std::vector<compare::Run>& approved) {
  std::vector<std::string> arms = train::ArmNames(experiment);
  std::erase_if(arms, [&](const std::string& arm) {
    return compare::RunsOfArm(approved, arm).empty();
  });
  if (arms.empty()) {
    ThrowError(ErrorKind::kConfig,
               "{}: --against has {} logs, the first of arm {}, but the arms "
               "here are {}. Give approved logs of one of them.",
               experiment.path.string(), approved.size(),
               approved.front().log.provenance.arm,
               fmt::join(train::ArmNames(experiment), ", "));
  }
  return {.candidates = std::move(arms)};
}

ArmRoles RolesIn(const VerifyPlan& plan) {
  if (!plan.approved.empty()) {
    return ApprovedArms(plan.experiment, plan.approved);
  }
  RequireSecondArm(plan.experiment);
  return RolesOf(plan.experiment, plan.judged);
}

/// What a verification does, in the order in which it does it.
class Verifier {
 public:
  explicit Verifier(VerifyPlan plan)
      : plan_(std::move(plan)),
        baseline_arm_(plan_.experiment.arms.front().name),
        roles_(RolesIn(plan_)) {}

  Verification Run() {
    ListenToSignals();
    CheckAbortEarly();
    CheckEvidence();
    TrainingPlan training = PlannedTraining();
    PlanLooks(training);
    if (plan_.abort_early) {
      watch_.emplace(baseline_arm_, roles_.candidates, plan_.policy,
                     static_cast<int64_t>(plan_.experiment.train.seeds.size()),
                     plan_.experiment.train.steps);
    }
    CheckProbes(training.corpus);
    if (!plan_.list.empty()) {
      WriteRunList(ListRuns(plan_.experiment, training.runs, plan_.folder),
                   plan_.list);
      return {};
    }
    if (!plan_.only.all()) return TrainChosen(training);
    if (plan_.no_train) RequireAllRuns(training);
    if (plan_.dry_run) {
      Train(training);
      AnnounceProbes(training);
      AnnouncePower();
      AnnounceLooks();
      return {};
    }
    if (SeveralLooks()) {
      // Before hours of training, what a later part would be refused for.
      train::CheckRuns(plan_.experiment, training.runs, training.corpus,
                       plan_.folder, plan_.leftovers);
    }
    AnnounceLooks();
    std::vector<compare::Run> runs;
    if (auto ended = TrainInParts(training, runs)) return *std::move(ended);
    if (Probes()) {
      const ProbedRuns probed = Probe(runs, training.corpus);
      if (probed.interrupted) return {.interrupted = true};
      ReadProbes(probed.files, plan_.evidence);
    }
    std::vector<gate::Judgement> judgements = Judge(runs);
    if (looks_) looks_->Remember(runs, CandidatesOnly(judgements));
    return Given(std::move(judgements), std::move(runs));
  }

 private:
  /// Verdicts with what they were given on; the last that is done.
  Verification Given(std::vector<gate::Judgement> judgements,
                     std::vector<compare::Run> runs) {
    return {.judgements = std::move(judgements),
            .judged = {std::move(runs), std::move(plan_.approved),
                       std::move(plan_.evidence)}};
  }

  bool IsRegression() const { return !plan_.approved.empty(); }

  /// A regression compares whole logs.
  Keep KeptOfRuns() const {
    return IsRegression() ||
                   plan_.policy.question == compare::Question::kRegression
               ? Keep::kAll
               : Keep::kForPrecision;
  }

  /// The runs of all arms that have a role.
  TrainingPlan PlannedTraining() const {
    const bool alone = IsRegression() && roles_.candidates.size() == 1;
    TrainingPlan training =
        PlanTraining(plan_.experiment, alone ? roles_.candidates.front() : "");
    if (plan_.judged.empty()) return training;
    std::erase_if(training.runs, [&](const train::Run& run) {
      return run.arm->name != baseline_arm_ && !HasRole(roles_, run.arm->name);
    });
    return training;
  }

  /// Judging is left to a call that sees all runs.
  Verification TrainChosen(TrainingPlan& training) {
    plan_.only.Keep(training.runs);
    return {.interrupted = Train(training).interrupted};
  }

  /// A verdict on some of the seeds would be a look, which a later one on all
  /// of them would have to pay for.
  void RequireAllRuns(const TrainingPlan& training) const {
    const RunList list = PlannedFiles(training.runs, plan_.folder);
    std::vector<std::string> missing;
    for (const ListedRun& run : list.runs) {
      if (!list.IsFinished(run)) missing.push_back(run.name);
    }
    if (missing.empty()) return;
    constexpr size_t kMostShown = 8;
    const size_t shown = std::min(missing.size(), kMostShown);
    ThrowError(
        ErrorKind::kConfig,
        "{}: {} of {} runs have not finished ({}{}), but --no-train "
        "judges only what all seeds of the experiment say. Train them by "
        "the same command without --no-train, or have `isoloss gate` "
        "judge the pairs that are there.",
        plan_.folder.string(), missing.size(), list.runs.size(),
        fmt::join(std::span(missing).first(shown), ", "),
        missing.size() > shown ? ", ..." : "");
  }

  /// Part by part until the looks between them say that it is enough, into
  /// `runs`, with the logs of other seeds that lie beside them. Returns what
  /// the verification ends with if it ends here.
  std::optional<Verification> TrainInParts(TrainingPlan& training,
                                           std::vector<compare::Run>& runs) {
    const std::vector<std::vector<train::Run>> parts =
        looks_ ? looks_->parts() : std::vector(1, training.runs);
    for (size_t part = 0; part < parts.size(); ++part) {
      training.runs = parts[part];
      const ExecutedRuns executed =
          parts[part].empty() ? ExecutedRuns() : Train(training);
      if (!SpeaksForTheJob()) return Verification();
      if (executed.hopeless) {
        runs = ReadStopped(executed.logs);
        std::vector<gate::Judgement> judgements = JudgeStopped(
            *executed.hopeless, runs, baseline_arm_, roles_.candidates,
            plan_.evidence, plan_.policy, plan_.folder);
        return Given(std::move(judgements), std::move(runs));
      }
      if (executed.interrupted) return Verification{.interrupted = true};
      // The seeds of later parts, should they be there, are not to be seen yet.
      for (size_t later = part + 1; later < parts.size(); ++later) {
        training.runs.insert(training.runs.end(), parts[later].begin(),
                             parts[later].end());
      }
      std::vector<std::filesystem::path> logs = executed.logs;
      AddOthers(OtherSeeds(training), plan_.approved, logs);
      runs = ReadRuns(logs, {}, KeptOfRuns());
      if (looks_) plan_.evidence.looks = looks_->At(runs, plan_.policy);
      if (part + 1 < parts.size() && IsEnough(runs)) break;
    }
    return std::nullopt;
  }

  /// Regression has other evidence, and no memory of looks.
  void PlanLooks(TrainingPlan& training) {
    if (IsRegression() ||
        plan_.policy.question == compare::Question::kRegression) {
      return;
    }
    looks_.emplace(plan_.experiment, training, plan_.folder, plan_.leftovers);
    if (looks_->parts().size() > 1) {
      RequireOneProcess("verify",
                        "only one can tell after a look whether more "
                        "seeds are due (gate.looks)");
    }
  }

  bool SeveralLooks() const {
    return looks_ && (looks_->parts().size() > 1 || looks_->HasLooks());
  }

  /// What is no news is not said: one look, which is the first.
  void AnnounceLooks() const {
    if (SeveralLooks()) {
      fmt::print(stderr, "isoloss: {}\n", looks_->Announcement(plan_.policy));
    }
  }

  /// What the oracle will take, beside the training that is planned.
  void AnnounceProbes(const TrainingPlan& training) {
    if (!Probes() || IsRegression()) return;
    const size_t steps =
        OracleSteps(ProbedArms().size(), ProbedCases(plan_.policy).size());
    PrintCostLine(
        "oracle",
        fmt::format("about {} steps, each as long as {} of training: {} beside "
                    "the {} of all runs (--no-oracle leaves it out)",
                    steps, kOracleStepCost, kOracleStepCost * steps,
                    training.runs.size() * plan_.experiment.train.steps));
  }

  /// Whether the plan can be expected to answer, by what its file says of
  /// chance. Each of several looks has a power of its own.
  void AnnouncePower() const {
    if (IsRegression() || SeveralLooks() || !SpeaksForTheJob() ||
        plan_.policy.question != compare::Question::kPrecision) {
      return;
    }
    const auto power = ExpectedPower(plan_.experiment, plan_.policy);
    PrintCostLine(
        "power",
        power ? fmt::format("recipes that do not differ pass with probability "
                            "{} ({} seed pairs, margin {:g} %, "
                            "gate.spread_percent {:g})",
                            PowerText(*power),
                            plan_.experiment.train.seeds.size(),
                            plan_.policy.margin_percent,
                            *plan_.experiment.gate.spread_percent)
              : "unknown without gate.spread_percent, which `isoloss init` "
                "learns from a pilot");
  }

  ExecutedRuns Train(const TrainingPlan& training) {
    return TrainArms(plan_.experiment, training, plan_.folder,
                     {.dry_run = plan_.dry_run,
                      .leftovers = plan_.leftovers,
                      .judged = true,
                      .how_to_go_on = plan_.how_to_go_on,
                      .watch = watch_ ? &*watch_ : nullptr});
  }

  /// The look between two parts: is every candidate decided?
  bool IsEnough(const std::vector<compare::Run>& runs) {
    const std::vector<gate::Judgement> judgements = CandidatesOnly(Judge(runs));
    looks_->Remember(runs, judgements);
    const bool enough = std::ranges::all_of(judgements, IsDecided);
    for (const gate::Judgement& judgement : judgements) {
      fmt::print(stderr, "isoloss: {}: {}.\n",
                 Printable(judgement.looks->Sentence()),
                 Printable(FinalWindowText(judgement)));
    }
    fmt::print(
        stderr, "isoloss: {}.\n",
        enough
            ? "decided, so that no more seeds are trained (`isoloss run` would)"
            : "not decided: more seeds follow");
    return enough;
  }

  /// Arms beside them are judged, too, but do not say when it is enough.
  std::vector<gate::Judgement> CandidatesOnly(
      std::vector<gate::Judgement> judgements) const {
    std::erase_if(judgements, [&](const gate::Judgement& judgement) {
      return std::ranges::count(roles_.candidates, judgement.candidate.arm) ==
             0;
    });
    return judgements;
  }

  /// The oracle needs all ranks in one process.
  bool Probes() const {
    return (IsRegression() || plan_.oracle) && plan_.evidence.probes.empty() &&
           transport::DetectLaunch().processes == 1;
  }

  void CheckAbortEarly() const {
    if (!plan_.abort_early || !plan_.policy.InTokens()) return;
    ThrowError(ErrorKind::kConfig,
               "{}: the policy has margin_tokens_percent {:g}, but "
               "--abort-early tests a margin of loss, so it could fail what "
               "level L5 passes. Leave one of them out.",
               plan_.experiment.path.string(),
               plan_.policy.margin_tokens_percent);
  }

  void CheckEvidence() const {
    CheckEvidenceIsUsed(
        plan_.evidence,
        IsRegression() ? compare::Question::kRegression : plan_.policy.question,
        roles_.candidates, IsRegression() ? "" : baseline_arm_);
  }

  /// Before anything is computed: what could not be written at the end.
  void CheckProbes(const corpus::Corpus& corpus) const {
    if (Probes() && plan_.leftovers != train::Leftovers::kDiscard) {
      CheckProbeOutputs(plan_.experiment, roles_.candidates, corpus,
                        plan_.folder);
    }
  }

  /// Says which seeds are left out.
  train::OtherLogs OtherSeeds(const TrainingPlan& training) const {
    train::OtherLogs others = train::FindOtherSeeds(
        plan_.experiment, training.runs, training.corpus, plan_.folder);
    for (const std::string& reason : others.left_out) {
      fmt::print(stderr, "isoloss: {}: {}.\n", Printable(plan_.folder.string()),
                 reason);
    }
    return others;
  }

  /// Arms that the oracle understands. Of the others the verdict is told why.
  std::vector<std::string> ProbedArms() {
    std::vector<std::string> arms;
    for (const std::string& name : roles_.candidates) {
      const train::Arm& arm = train::ArmNamed(plan_.experiment, name);
      std::string gap = oracle::WhyNotUnderstood(train::ArmRecipe(arm),
                                                 !arm.own_recipe.has_value(),
                                                 plan_.experiment.model);
      if (gap.empty()) {
        arms.push_back(name);
      } else {
        plan_.evidence.oracle_gaps[name] = std::move(gap);
      }
    }
    return arms;
  }

  /// The experiment with trained seeds only: a plan of looks may have ended
  /// before the others, and a probe needs a run to speak of.
  train::Experiment WithTrainedSeeds(
      const std::vector<compare::Run>& runs) const {
    train::Experiment experiment = plan_.experiment;
    const auto seed_of = [](const compare::Run& run) {
      return static_cast<uint64_t>(run.log.provenance.seed);
    };
    auto& seeds = experiment.train.seeds;
    std::erase_if(seeds, [&](uint64_t seed) {
      return std::ranges::count(runs, seed, seed_of) == 0;
    });
    if (seeds.empty()) seeds = {seed_of(runs.front())};
    return experiment;
  }

  ProbedRuns Probe(const std::vector<compare::Run>& runs,
                   const corpus::Corpus& corpus) {
    ProbeSettings settings;
    settings.cases = ProbedCases(plan_.policy);
    const train::Arm& baseline = plan_.experiment.arms.front();
    if (!IsRegression()) {
      settings.steps = kProbedSteps;
      // L3 compares with high precision only.
      if (!train::ArmRecipe(baseline).quantizes_anything()) {
        settings.reference = baseline_arm_;
      }
    }
    settings.plain_steps = PlainStepsDue(runs, plan_.approved, plan_.policy);
    return ProbeArms(WithTrainedSeeds(runs), corpus, ProbedArms(), plan_.folder,
                     settings);
  }

  std::vector<gate::Judgement> Judge(std::vector<compare::Run> runs) const {
    if (!IsRegression()) {
      if (plan_.policy.question == compare::Question::kPrecision) {
        return JudgeRoles(runs, baseline_arm_, roles_, plan_.policy,
                          plan_.evidence);
      }
      return JudgeArms(runs, baseline_arm_, plan_.policy, plan_.evidence);
    }
    std::erase_if(runs, [&](const compare::Run& run) {
      return std::ranges::count(roles_.candidates, run.log.provenance.arm) == 0;
    });
    return JudgeAgainstApproved(runs, plan_.approved, plan_.policy,
                                plan_.evidence);
  }

  VerifyPlan plan_;
  const std::string baseline_arm_;
  const ArmRoles roles_;
  std::optional<SeedLooks> looks_;
  std::optional<EarlyAbort> watch_;  ///< sees each part's runs
};

}  // namespace

Verification Verify(VerifyPlan plan) { return Verifier(std::move(plan)).Run(); }

}  // namespace isoloss::campaign
