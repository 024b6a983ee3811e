#include "isoloss/campaign/early_abort.h"

#include <fmt/format.h>

#include <algorithm>

#include "isoloss/base/error.h"
#include "isoloss/corpus/corpus.h"
#include "isoloss/gate/evidence.h"
#include "isoloss/train/run_description.h"

namespace isoloss::campaign {
namespace {

using runlog::EnsembleKind;

/// What the first run of an arm will say of itself.
compare::Run PlannedRun(const train::Experiment& experiment,
                        const std::string& arm, const corpus::Corpus& corpus) {
  compare::Run planned;
  planned.log.provenance =
      train::DescribePlannedRun(experiment, train::ArmNamed(experiment, arm),
                                experiment.train.seeds.front(), corpus);
  return planned;
}

void CheckIsOfPair(const gate::NullEnsemble& ensemble,
                   const compare::Run& baseline,
                   const compare::Run& candidate) {
  const std::vector<std::string> mismatches = gate::Mismatches(
      ensemble, EnsembleKind::kSeeds,
      compare::PairBySeed(baseline.log.provenance.arm, {&baseline},
                          candidate.log.provenance.arm, {&candidate}));
  if (mismatches.empty()) return;
  ThrowError(ErrorKind::kConfig,
             "--abort-early: {}. Build the ensemble anew, or leave it out: the "
             "spread is judged by the run's own then.",
             mismatches.front());
}

gate::Check StopCheck(const HopelessPair& hopeless, const std::string& arm,
                      const EvidenceFiles& evidence, const gate::Policy& policy,
                      const std::filesystem::path& folder) {
  const bool its_own = arm == hopeless.arm;
  const std::string where =
      fmt::format("{}seed {}, step {}: {}", its_own ? "" : hopeless.arm + ", ",
                  hopeless.seed, hopeless.step, hopeless.reason);
  const std::string spread =
      hopeless.known_spread
          ? EnsembleOf(evidence, hopeless.arm, EnsembleKind::kSeeds)->file
          : "the run's own";
  gate::Check check;
  check.level = gate::LevelName(gate::LevelId::l6_sequential);
  check.name = "sequential";
  check.outcome = its_own ? gate::Outcome::kFail : gate::Outcome::kInconclusive;
  check.quantity = its_own ? where : "stopped with a pair that had no hope";
  check.evidence = its_own ? fmt::format("batches of {} steps, spread: {}",
                                         policy.sequential_batch, spread)
                           : where;
  check.findings = {where};
  check.next = fmt::format(
      "all runs were stopped; what they had is in {}/*.partial.h5, and the "
      "same command with --resume in place of --abort-early goes on",
      folder.string());
  return check;
}

}  // namespace

SpreadsByArm SpreadsOf(const EvidenceFiles& evidence,
                       const train::Experiment& experiment,
                       const corpus::Corpus& corpus,
                       const std::vector<std::string>& candidates,
                       const gate::Policy& policy) {
  SpreadsByArm spreads;
  if (evidence.ensembles.empty()) return spreads;
  const compare::Run baseline =
      PlannedRun(experiment, experiment.arms.front().name, corpus);
  for (const std::string& arm : candidates) {
    const gate::NullEnsemble* ensemble =
        EnsembleOf(evidence, arm, EnsembleKind::kSeeds);
    if (ensemble == nullptr) continue;
    CheckIsOfPair(*ensemble, baseline, PlannedRun(experiment, arm, corpus));
    const auto spread = gate::SpreadOfBatches(*ensemble, policy);
    if (spread) {
      spreads.emplace(arm, *spread);
      continue;
    }
    fmt::print(stderr,
               "isoloss: --abort-early: {} has fewer than {} members of two "
               "batches of {} steps that vary, so it can't tell the spread of "
               "arm {}, which is judged by the run's own. Build it with "
               "--steps {} or more.\n",
               ensemble->file, policy.min_members, policy.sequential_batch, arm,
               2 * policy.sequential_batch);
  }
  return spreads;
}

std::vector<gate::Judgement> JudgeStopped(
    const HopelessPair& hopeless, const std::vector<compare::Run>& runs,
    const std::string& baseline_arm, const std::vector<std::string>& candidates,
    const EvidenceFiles& evidence, const gate::Policy& policy,
    const std::filesystem::path& folder) {
  std::vector<gate::Judgement> judgements;
  for (const std::string& arm : candidates) {
    // Describes the arms. What the ladder says of partial runs does not count.
    gate::Judgement judgement =
        JudgeWith(compare::PairBySeed(baseline_arm,
                                      compare::RunsOfArm(runs, baseline_arm),
                                      arm, compare::RunsOfArm(runs, arm)),
                  evidence, policy);
    gate::Check check = StopCheck(hopeless, arm, evidence, policy, folder);
    judgement.outcome = check.outcome;
    judgement.levels = {
        {gate::LevelName(gate::LevelId::l6_sequential), check.outcome}};
    judgement.checks = {std::move(check)};
    judgement.measures.clear();
    judgement.divergences.clear();
    judgement.final_window.reset();
    judgement.warnings.clear();
    judgement.bit_equal = false;
    judgement.controls.reset();
    judgement.power.reset();
    judgement.power_unknown = "nobody has measured that of stopping early";
    judgements.push_back(std::move(judgement));
  }
  return judgements;
}

EarlyAbort::EarlyAbort(std::string baseline_arm,
                       std::vector<std::string> candidates,
                       const gate::Policy& policy, SpreadsByArm spreads)
    : baseline_arm_(std::move(baseline_arm)),
      candidates_(std::move(candidates)),
      policy_(policy),
      spreads_(std::move(spreads)) {
  WatchOf(baseline_arm_);  // refuses what it can't watch by
}

gate::SequentialWatch EarlyAbort::WatchOf(const std::string& arm) const {
  const auto spread = spreads_.find(arm);
  return gate::SequentialWatch(policy_, spread == spreads_.end()
                                            ? std::nullopt
                                            : std::optional(spread->second));
}

bool EarlyAbort::Add(const train::Run& run, const runlog::StepRow& row) {
  const std::lock_guard lock(mutex_);
  if (run.arm->name == baseline_arm_) {
    baseline_steps_[run.seed].push_back(row);
    for (auto& [key, pair] : pairs_) {
      if (key.second != run.seed) continue;
      pair.baseline.push_back(row);
      Advance(key, pair);
    }
    return hopeless_.has_value();
  }
  // That a control is beyond hope is what it is for.
  if (std::ranges::count(candidates_, run.arm->name) == 0) return false;
  const Key key{run.arm->name, run.seed};
  auto found = pairs_.find(key);
  if (found == pairs_.end()) {
    found = pairs_
                .emplace(key, Pair{WatchOf(run.arm->name),
                                   baseline_steps_[run.seed]})
                .first;
  }
  found->second.candidate.push_back(row);
  Advance(key, found->second);
  return hopeless_.has_value();
}

void EarlyAbort::Advance(const Key& key, Pair& pair) {
  while (!pair.baseline.empty() && !pair.candidate.empty()) {
    const auto& abort =
        pair.watch.Add(pair.baseline.front(), pair.candidate.front());
    pair.baseline.pop_front();
    pair.candidate.pop_front();
    if (abort && !hopeless_) {
      hopeless_ = {.arm = key.first,
                   .seed = key.second,
                   .step = abort->step,
                   .reason = abort->reason,
                   .known_spread = spreads_.contains(key.first)};
    }
  }
}

}  // namespace isoloss::campaign
