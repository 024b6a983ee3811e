#include "isoloss/gate/judge.h"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "isoloss/compare/routing_health.h"
#include "isoloss/gate/ladder.h"

namespace isoloss::gate {
namespace {

void Describe(const runlog::Provenance& provenance, Judgement& judgement) {
  judgement.experiment = provenance.experiment_name;
  judgement.experiment_digest = provenance.experiment_digest;
  judgement.config_digest = provenance.config_digest;
  judgement.corpus = provenance.corpus_description;
  judgement.corpus_digest = provenance.corpus_digest;
  judgement.tool_version = provenance.tool_version;
  judgement.commit = provenance.commit;
  judgement.steps_planned = provenance.steps_planned;
  judgement.tokens_per_step = provenance.tokens_per_step;
  judgement.parameters = provenance.parameters;
  judgement.unigram_entropy_nats = provenance.unigram_entropy_nats;
  judgement.entropy_floor_nats = provenance.entropy_floor_nats;
}

/// Two changes at once can't be told apart; "" if there are not two.
std::string TwoChangesWarning(const compare::ArmSummary& baseline,
                              const compare::ArmSummary& candidate) {
  if (baseline.recipe == candidate.recipe || baseline.exchange.empty() ||
      candidate.exchange.empty() || baseline.exchange == candidate.exchange) {
    return "";
  }
  return fmt::format(
      "{} differs from {} in its exchange, too: the difference includes what "
      "dispatch and combine do. Compare arms with one exchange to judge the "
      "recipe.",
      candidate.arm, baseline.arm);
}

}  // namespace

Judgement Judge(std::span<const compare::Run> runs,
                std::string_view baseline_arm, std::string_view candidate_arm,
                const Policy& policy) {
  return Judge(compare::PairBySeed(
                   baseline_arm, compare::RunsOfArm(runs, baseline_arm),
                   candidate_arm, compare::RunsOfArm(runs, candidate_arm)),
               policy);
}

Judgement Judge(const compare::Pairing& pairing, const Policy& policy) {
  Judgement judgement;
  judgement.policy = policy;
  const auto all = pairing.All();
  if (!all.empty()) Describe(all[0]->log.provenance, judgement);
  judgement.baseline = compare::SummarizeArm(
      pairing.baseline_arm, pairing.baseline, policy.window_share);
  judgement.candidate = compare::SummarizeArm(
      pairing.candidate_arm, pairing.candidate, policy.window_share);
  judgement.warnings = compare::RoutingWarnings(all, policy.window_share);
  for (const auto* arm : {&judgement.baseline, &judgement.candidate}) {
    std::string warning = compare::LearningWarning(*arm);
    if (!warning.empty()) judgement.warnings.push_back(std::move(warning));
  }
  std::string two_changes =
      TwoChangesWarning(judgement.baseline, judgement.candidate);
  if (!two_changes.empty()) {
    judgement.warnings.push_back(std::move(two_changes));
  }
  RunLadder(pairing, judgement);
  if (judgement.outcome != Outcome::kInvalid) {
    judgement.curves = compare::MeanCurves(pairing);
  }
  return judgement;
}

}  // namespace isoloss::gate
