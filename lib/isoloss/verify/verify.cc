#include "isoloss/verify/verify.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "isoloss/base/error.h"
#include "isoloss/base/printable.h"
#include "isoloss/campaign/dry_run.h"
#include "isoloss/campaign/run_cost.h"
#include "isoloss/campaign/train_arms.h"
#include "isoloss/corpus/corpus.h"
#include "isoloss/init/pilot.h"
#include "isoloss/logs/log_files.h"
#include "isoloss/step_checks/known_recipes.h"
#include "isoloss/step_checks/probe_memory.h"
#include "isoloss/system/interrupt.h"
#include "isoloss/train/arm_recipes.h"
#include "isoloss/train/batch_shares.h"
#include "isoloss/train/cost.h"
#include "isoloss/transport/launch.h"
#include "isoloss/verdicts/early_abort.h"
#include "isoloss/verdicts/judge_arms.h"
#include "isoloss/verify/probe_runs.h"
#include "isoloss/verify/question.h"
#include "isoloss/verify/seed_looks.h"

namespace isoloss::verify {
namespace {

/// Reads the logs of runs that were stopped, if they have any.
std::vector<compare::Run> ReadStopped(std::vector<std::filesystem::path> logs) {
  std::erase_if(logs, [](const auto& log) { return log.empty(); });
  return logs::ReadRuns(logs);
}

/// Adds logs of seeds that were trained before, which count like the planned
/// ones.
void AddOthers(const train::OtherLogs& others, const Question& question,
               std::vector<std::filesystem::path>& logs) {
  for (const train::OtherLogs::File& file : others.files) {
    if (question.Takes(file.arm->name, static_cast<int64_t>(file.seed))) {
      logs.push_back(file.path);
    }
  }
}

std::unique_ptr<Question> QuestionOf(const VerifyPlan& plan) {
  return plan.approved.empty()
             ? QuestionOfArms(plan.experiment, plan.policy, plan.judged)
             : QuestionOfApproved(plan.experiment, plan.policy, plan.approved);
}

/// Has a function for each part of a verification, in the order in which they
/// run.
class Verifier {
 public:
  explicit Verifier(VerifyPlan plan)
      : plan_(std::move(plan)),
        baseline_arm_(plan_.experiment.arms.front().name),
        question_(QuestionOf(plan_)) {
    const train::TuningConfig& tuning = plan_.experiment.tuning;
    if (tuning.rates.empty()) return;
    plan_.evidence.sweep = {.rates = tuning.rates,
                            .held_out = tuning.held_out,
                            .seeds = tuning.seeds.size(),
                            .configuration = tuning.configuration};
  }

  Verification Run() {
    system::ListenToSignals();
    CheckQuestion();
    CheckAbortEarly();
    question_->CheckEvidence(plan_.evidence);
    campaign::TrainingPlan training = question_->Plan();
    PlanLooks(training);
    if (plan_.abort_early) {
      watch_.emplace(baseline_arm_, question_->roles().candidates, plan_.policy,
                     static_cast<int64_t>(plan_.experiment.train.seeds.size()),
                     plan_.experiment.train.steps);
    }
    CheckProbes(training.corpus);
    if (!plan_.list.empty()) {
      campaign::WriteRunList(
          campaign::ListRuns(plan_.experiment, training.runs, plan_.folder),
          plan_.list);
      return {};
    }
    if (!plan_.only.all()) return TrainChosen(training);
    CheckProbeMemory();
    if (plan_.no_train) RequireAllRuns(training);
    if (plan_.dry_run) {
      Train(training);
      AnnounceProbes(training);
      AnnouncePower();
      AnnounceLooks();
      return {};
    }
    if (SeveralLooks()) {
      // Errors that a later part would find come before hours of training.
      train::CheckRuns(plan_.experiment, training.runs, training.corpus,
                       plan_.folder, plan_.leftovers);
    }
    AnnounceLooks();
    std::vector<compare::Run> runs;
    if (auto ended = TrainInParts(training, runs)) return *std::move(ended);
    if (Probes()) {
      const ProbedRuns probed =
          ProbeArms(WithTrainedSeeds(runs), training.corpus, ProbedArms(),
                    plan_.folder, question_->Witness(runs));
      if (probed.interrupted) return {.interrupted = true};
      logs::ReadProbes(probed.files, plan_.evidence);
    }
    std::vector<gate::Judgement> judgements = Judge(runs);
    if (looks_) looks_->Remember(runs, CandidatesOnly(judgements));
    return Given(std::move(judgements), std::move(runs));
  }

 private:
  /// Ends the verification: returns the verdicts with the runs that they cover.
  Verification Given(std::vector<gate::Judgement> judgements,
                     std::vector<compare::Run> runs) {
    return {.judgements = std::move(judgements),
            .judged = {std::move(runs), std::move(plan_.approved),
                       std::move(plan_.evidence)}};
  }

  /// Leaves judging to a call that sees all runs.
  Verification TrainChosen(campaign::TrainingPlan& training) {
    plan_.only.Keep(training.runs);
    return {.interrupted = Train(training).interrupted};
  }

  /// A verdict on some of the seeds would be a look. A later verdict on all
  /// seeds would have to pay for that look.
  void RequireAllRuns(const campaign::TrainingPlan& training) const {
    const campaign::RunList list =
        campaign::PlannedFiles(training.runs, plan_.folder);
    std::vector<std::string> missing;
    for (const campaign::ListedRun& run : list.runs) {
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

  /// Trains part by part until a look between them says that it is enough. Adds
  /// the runs to `runs`, with the logs of other seeds in the folder. Returns a
  /// result if the verification ends here.
  std::optional<Verification> TrainInParts(campaign::TrainingPlan& training,
                                           std::vector<compare::Run>& runs) {
    const std::vector<std::vector<train::Run>> parts =
        looks_ ? looks_->parts() : std::vector(1, training.runs);
    for (size_t part = 0; part < parts.size(); ++part) {
      training.runs = parts[part];
      const campaign::ExecutedRuns executed =
          parts[part].empty() ? campaign::ExecutedRuns() : Train(training);
      if (!campaign::SpeaksForTheJob()) return Verification();
      if (executed.hopeless) {
        runs = ReadStopped(executed.logs);
        std::vector<gate::Judgement> judgements = verdicts::JudgeStopped(
            *executed.hopeless, runs, baseline_arm_,
            question_->roles().candidates, plan_.evidence.looks, plan_.policy,
            plan_.folder);
        return Given(std::move(judgements), std::move(runs));
      }
      if (executed.interrupted) return Verification{.interrupted = true};
      // If seeds of later parts have logs, this look must not see them.
      for (size_t later = part + 1; later < parts.size(); ++later) {
        training.runs.insert(training.runs.end(), parts[later].begin(),
                             parts[later].end());
      }
      std::vector<std::filesystem::path> logs = executed.logs;
      AddOthers(OtherSeeds(training), *question_, logs);
      runs = logs::ReadRuns(logs, {}, question_->kept());
      if (looks_) plan_.evidence.looks = looks_->At(runs, plan_.policy);
      if (part + 1 < parts.size() && IsEnough(runs)) break;
    }
    return std::nullopt;
  }

  void PlanLooks(campaign::TrainingPlan& training) {
    if (!question_->IsSequential()) return;
    looks_.emplace(plan_.experiment, training, plan_.folder, plan_.leftovers);
    if (looks_->parts().size() > 1) {
      campaign::RequireOneProcess("verify",
                                  "only one can tell after a look whether more "
                                  "seeds are due (gate.looks)");
    }
  }

  bool SeveralLooks() const {
    return looks_ && (looks_->parts().size() > 1 || looks_->HasLooks());
  }

  /// A single look that is the first one is no news.
  void AnnounceLooks() const {
    if (SeveralLooks()) {
      fmt::print(stderr, "isoloss: {}\n", looks_->Announcement(plan_.policy));
    }
  }

  /// Says what the oracle will take, besides the planned training.
  void AnnounceProbes(const campaign::TrainingPlan& training) {
    if (!Probes() || question_->RequiresOracle()) return;
    const size_t steps = campaign::OracleSteps(
        ProbedArms().size(), ProbedCases(plan_.policy).size());
    campaign::PrintCostLine(
        "oracle",
        fmt::format("about {} steps, each as long as {} of training: {} beside "
                    "the {} of all runs (--no-oracle leaves it out)",
                    steps, campaign::kOracleStepCost,
                    campaign::kOracleStepCost * steps,
                    training.runs.size() * plan_.experiment.train.steps));
  }

  /// Says whether the plan can be expected to answer, given
  /// gate.spread_percent. Each of several looks has a power of its own.
  void AnnouncePower() const {
    if (!question_->IsSequential() || SeveralLooks() ||
        !campaign::SpeaksForTheJob()) {
      return;
    }
    const auto power = init::ExpectedPower(plan_.experiment, plan_.policy);
    campaign::PrintCostLine(
        "power",
        power ? fmt::format("recipes that do not differ pass with probability "
                            "{} ({} seed pairs, margin {:g} %, "
                            "gate.spread_percent {:g})",
                            init::PowerText(*power),
                            plan_.experiment.train.seeds.size(),
                            plan_.policy.margin_percent,
                            *plan_.experiment.gate.spread_percent)
              : "unknown without gate.spread_percent, which `isoloss init` "
                "learns from a pilot");
  }

  campaign::ExecutedRuns Train(const campaign::TrainingPlan& training) {
    return campaign::TrainArms(plan_.experiment, training, plan_.folder,
                               {.dry_run = plan_.dry_run,
                                .leftovers = plan_.leftovers,
                                .judged = true,
                                .how_to_go_on = plan_.how_to_go_on,
                                .watch = watch_ ? &*watch_ : nullptr});
  }

  /// Judges between two parts: is every candidate decided?
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

  /// Null arms and control are judged, too, but do not say when it is enough.
  std::vector<gate::Judgement> CandidatesOnly(
      std::vector<gate::Judgement> judgements) const {
    std::erase_if(judgements, [&](const gate::Judgement& judgement) {
      return std::ranges::count(question_->roles().candidates,
                                judgement.candidate.arm) == 0;
    });
    return judgements;
  }

  /// The oracle needs all ranks in one process.
  bool Probes() const {
    return (question_->RequiresOracle() || plan_.oracle) &&
           !WithoutProbe().empty() && transport::DetectLaunch().processes == 1;
  }

  /// Returns the candidates of which no probe was given.
  std::vector<std::string> WithoutProbe() const {
    std::vector<std::string> arms = question_->roles().candidates;
    std::erase_if(arms, [&](const std::string& arm) {
      return std::ranges::any_of(plan_.evidence.probes,
                                 [&](const gate::Probe& probe) {
                                   return probe.log.provenance.arm == arm;
                                 });
    });
    return arms;
  }

  /// Refuses options and keys that the policy's question does not know.
  void CheckQuestion() const {
    if (!plan_.approved.empty() ||
        plan_.policy.question == compare::Question::kPrecision) {
      return;
    }
    const auto refuse = [&](const char* what) {
      ThrowError(ErrorKind::kConfig,
                 "{}: the policy asks for `regression`, but {} the difference "
                 "of two arms in precision. Leave one of them out.",
                 plan_.experiment.path.string(), what);
    };
    if (plan_.abort_early) refuse("--abort-early tests");
    if (!plan_.experiment.gate.looks.empty()) {
      refuse("--looks and gate.looks plan tests of");
    }
  }

  void CheckAbortEarly() const {
    if (!plan_.abort_early) return;
    if (!plan_.policy.InTokens()) return;
    ThrowError(ErrorKind::kConfig,
               "{}: the policy has margin_tokens_percent {:g}, but "
               "--abort-early tests a margin of loss, so it could fail what "
               "level L5 passes. Leave one of them out.",
               plan_.experiment.path.string(),
               plan_.policy.margin_tokens_percent);
  }

  /// Refuses outputs that could not be written at the end, before anything is
  /// computed.
  void CheckProbes(const corpus::Corpus& corpus) const {
    if (Probes() && plan_.leftovers != train::Leftovers::kDiscard) {
      CheckProbeOutputs(plan_.experiment, WithoutProbe(), corpus, plan_.folder);
    }
  }

  /// Refuses probes whose whole batches would need too much memory.
  void CheckProbeMemory() const {
    if (!Probes()) return;
    train::Experiment whole = plan_.experiment;
    train::TakeWholeBatches(whole);
    const std::vector<std::string> arms = WithoutProbe();
    const Crew crew = train::CrewFor(whole, arms.size());
    train::CheckMemory(whole, crew);
    for (const std::string& arm : arms) {
      step_checks::CheckProbeMemory(whole, train::ArmNamed(whole, arm), {},
                                    crew.side_by_side);
    }
  }

  /// Finds logs of other seeds, and says which of them are left out.
  train::OtherLogs OtherSeeds(const campaign::TrainingPlan& training) const {
    train::OtherLogs others = train::FindOtherSeeds(
        plan_.experiment, training.runs, training.corpus, plan_.folder);
    for (const std::string& reason : others.left_out) {
      fmt::print(stderr, "isoloss: {}: {}.\n", Printable(plan_.folder.string()),
                 reason);
    }
    return others;
  }

  /// Returns the arms without a probe that the oracle understands. The verdict
  /// says why the remaining ones have none.
  std::vector<std::string> ProbedArms() {
    std::vector<std::string> arms;
    for (const std::string& name : WithoutProbe()) {
      const train::Arm& arm = train::ArmNamed(plan_.experiment, name);
      std::string gap;
      for (size_t phase = 0; phase <= arm.then.size() && gap.empty(); ++phase) {
        const train::Arm one = train::ArmInPhase(arm, phase);
        gap = step_checks::WhyNotUnderstood(train::ArmRecipe(one),
                                            !one.own_recipe.has_value(),
                                            plan_.experiment.model);
      }
      if (gap.empty()) {
        arms.push_back(name);
      } else {
        plan_.evidence.oracle_gaps[name] = std::move(gap);
      }
    }
    return arms;
  }

  /// Returns the experiment with trained seeds only. Looks may have ended the
  /// plan before the remaining seeds, and a probe needs a run to speak of.
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

  std::vector<gate::Judgement> Judge(
      const std::vector<compare::Run>& runs) const {
    return question_->Judge(runs, plan_.evidence);
  }

  VerifyPlan plan_;
  const std::string baseline_arm_;
  const std::unique_ptr<Question> question_;
  std::optional<SeedLooks> looks_;
  std::optional<verdicts::EarlyAbort> watch_;  ///< sees each part's runs
};

}  // namespace

Verification Verify(VerifyPlan plan) { return Verifier(std::move(plan)).Run(); }

}  // namespace isoloss::verify
