#include <fmt/format.h>

#include <algorithm>

#include "isoloss/compare/first_divergence.h"
#include "isoloss/gate/ladder.h"

namespace isoloss::gate {
namespace {

/// The pair that differs earliest, or null if all are bit-equal.
const SeedDivergence* Earliest(const std::vector<SeedDivergence>& divergences) {
  const SeedDivergence* earliest = nullptr;
  for (const SeedDivergence& divergence : divergences) {
    if (!divergence.first.has_value()) continue;
    if (earliest == nullptr || divergence.first->step < earliest->first->step) {
      earliest = &divergence;
    }
  }
  return earliest;
}

/// No loss shows what the last update did.
bool SameFinalWeights(const compare::Pairing& pairing) {
  return std::all_of(
      pairing.pairs.begin(), pairing.pairs.end(),
      [](const compare::SeedPair& pair) {
        return pair.baseline->log.provenance.final_weights_digest ==
               pair.candidate->log.provenance.final_weights_digest;
      });
}

Check BitEqual(const Judgement& judgement) {
  return {.level = "L1",
          .name = "bit_equal",
          .outcome = Outcome::kPass,
          .quantity =
              "losses, gradient norms, held-out losses and final "
              "weights have the same bits",
          .evidence = fmt::format("{} seed pairs, {} steps",
                                  judgement.divergences.size(),
                                  judgement.steps_planned)};
}

Measure FirstDivergenceMeasure(const SeedDivergence& earliest) {
  const compare::Divergence& at = *earliest.first;
  return {"first_divergence", static_cast<double>(at.step), "step",
          fmt::format("seed {}: {} {:.9g} in the baseline, {:.9g} in the "
                      "candidate",
                      earliest.seed, at.quantity, at.baseline, at.candidate)};
}

}  // namespace

Climb ClimbExact(const Evidence& evidence, Judgement& judgement) {
  const compare::Pairing& pairing = *evidence.pairing;
  for (const compare::SeedPair& pair : pairing.pairs) {
    judgement.divergences.push_back(
        {pair.seed,
         compare::FirstDivergence(pair.baseline->log, pair.candidate->log)});
  }
  const SeedDivergence* earliest = Earliest(judgement.divergences);
  if (earliest != nullptr) {
    judgement.measures.push_back(FirstDivergenceMeasure(*earliest));
    return Climb::kGoOn;
  }
  judgement.bit_equal = SameFinalWeights(pairing);
  if (judgement.policy.question == compare::Question::kPrecision ||
      !judgement.bit_equal) {
    return Climb::kGoOn;
  }
  judgement.checks.push_back(BitEqual(judgement));
  return Climb::kSettled;
}

}  // namespace isoloss::gate
