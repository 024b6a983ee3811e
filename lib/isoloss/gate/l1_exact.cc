#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>
#include <utility>

#include "isoloss/compare/first_divergence.h"
#include "isoloss/compare/written_digits.h"
#include "isoloss/gate/evidence.h"
#include "isoloss/gate/foreign_runs.h"
#include "isoloss/gate/level.h"
#include "isoloss/gate/verdict.h"
#include "isoloss/runlog/shared_columns.h"

namespace isoloss::gate {
namespace {

/// Returns the pair that differs earliest, or null if all are bit-equal.
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

/// Adds the steps before the first difference.
SeedDivergence DivergenceOf(const compare::SeedPair& pair,
                            std::optional<compare::Divergence> first) {
  SeedDivergence seed;
  seed.seed = pair.seed;
  seed.first = std::move(first);
  if (!seed.first) return seed;
  for (const int64_t step : pair.baseline->log.steps.step) {
    if (step >= seed.first->step) break;
    seed.equal_until = step;
    ++seed.equal_values;
  }
  return seed;
}

/// No loss shows the effect of the last update. Weights that nobody recorded
/// are not known to be equal.
bool SameFinalWeights(const compare::Pairing& pairing) {
  return std::all_of(
      pairing.pairs.begin(), pairing.pairs.end(),
      [](const compare::SeedPair& pair) {
        const std::string& digest =
            pair.baseline->log.provenance.final_weights_digest;
        return !digest.empty() &&
               digest == pair.candidate->log.provenance.final_weights_digest;
      });
}

/// Makes the check for a policy that lets L1 decide.
Check BitsDiffer(const SeedDivergence* earliest) {
  Check check{.name = "bit_equal",
              .outcome = Outcome::kFail,
              .quantity = "final weights differ, or are not recorded",
              .evidence = "losses and gradient norms have the same bits",
              .next = "isoloss compare the two logs"};
  if (earliest == nullptr) return check;
  const compare::Divergence& at = *earliest->first;
  check.quantity = fmt::format("{} differs first at step", at.quantity);
  check.value = static_cast<double>(at.step);
  check.evidence = fmt::format("seed {}: {:.9g} approved, {:.9g} now",
                               earliest->seed, at.baseline, at.candidate);
  return check;
}

int64_t StepsPlanned(const compare::Pairing& pairing) {
  return pairing.All().front()->log.provenance.steps_planned;
}

/// Says what the digests of tensors show but losses do not, and notes what
/// equal losses leave open.
std::string CompareTensors(const compare::Pairing& pairing,
                           LevelFindings& found) {
  int64_t steps = 0;
  std::string other;
  for (const compare::SeedPair& pair : pairing.pairs) {
    const compare::TensorDigests digests =
        compare::CompareTensorDigests(pair.baseline->log, pair.candidate->log);
    steps = std::max(steps, digests.steps);
    if (digests.other_step && other.empty()) {
      other = fmt::format("`{}` at step {} of seed {}", digests.other_tensor,
                          *digests.other_step, pair.seed);
    }
    if (found.equality_note.empty() &&
        compare::SamenessOf(*pair.baseline, *pair.candidate) ==
            compare::Sameness::kBytes) {
      found.equality_note = fmt::format(
          "The files {} and {} are equal in every byte: a copy shows nothing.",
          compare::Label(*pair.candidate), compare::Label(*pair.baseline));
    }
  }
  if (!other.empty()) {
    found.equality_note = fmt::format(
        "Not all tensors are equal: the first that differs is {}.", other);
    return "tensors have other bits, first " + other;
  }
  return steps == 0 ? "no digests of tensors in both logs"
                    : fmt::format("tensors of {} step{} have the same bits",
                                  steps, steps == 1 ? "" : "s");
}

Check BitEqual(const compare::Pairing& pairing, LevelFindings& found) {
  const bool held_out = std::ranges::all_of(
      pairing.All(),
      [](const compare::Run* run) { return !run->log.eval.step.empty(); });
  const size_t pairs = found.divergences.size();
  return {.name = "bit_equal",
          .outcome = Outcome::kPass,
          .quantity = fmt::format(
              "losses, gradient norms{} and final weights have the same bits",
              held_out ? ", held-out losses" : ""),
          .evidence = fmt::format("{} seed pair{}, {} steps; {}", pairs,
                                  pairs == 1 ? "" : "s", StepsPlanned(pairing),
                                  CompareTensors(pairing, found))};
}

Measure FirstDivergenceMeasure(const SeedDivergence& earliest,
                               compare::Question question) {
  const compare::Divergence& at = *earliest.first;
  const bool regression = question == compare::Question::kRegression;
  return {"first_divergence", static_cast<double>(at.step), "step",
          fmt::format("seed {}: {} {:.9g} {}, {:.9g} {}", earliest.seed,
                      at.quantity, at.baseline,
                      regression ? "approved" : "in the baseline", at.candidate,
                      regression ? "now" : "in the candidate")};
}

/// An evaluation may round a value of BF16 the other way and so move its loss,
/// even if no step did. The loss moves by up to 2^-9 of one token's logits,
/// and a mean over tokens by less.
constexpr double kRoundedOtherwise = 0x1p-12;

/// Fails if all steps are equal to the bit but an evaluation is far off. The
/// same weights met the same sequences, so no order of summation explains
/// that. An evaluation at the last step may differ if the last update did.
std::optional<Check> OtherEvaluation(
    const std::vector<SeedDivergence>& divergences, int64_t steps_planned,
    bool same_final_weights) {
  for (const SeedDivergence& divergence : divergences) {
    if (!divergence.first.has_value() || !divergence.first->IsHeldOut() ||
        std::fabs(divergence.first->candidate - divergence.first->baseline) <=
            kRoundedOtherwise * std::fabs(divergence.first->baseline) ||
        (divergence.first->step >= steps_planned && !same_final_weights)) {
      continue;
    }
    return Check{
        .name = "held_out_bits",
        .outcome = Outcome::kFail,
        .quantity = fmt::format(
            "all steps are equal, but the held-out loss at step {} of seed {} "
            "is {:.9g} in the approved run and {:.9g} here",
            divergence.first->step, divergence.seed, divergence.first->baseline,
            divergence.first->candidate),
        .next = "look at how held-out sequences are chosen and averaged"};
  }
  return std::nullopt;
}

/// Finds statistics that differ although the training is equal: then the
/// measurement has changed.
std::optional<Check> OtherStatistics(const compare::Pairing& pairing) {
  for (const compare::SeedPair& pair : pairing.pairs) {
    const auto difference = compare::FirstRecordedDifference(
        pair.baseline->log, pair.candidate->log);
    if (!difference) continue;
    return Check{
        .name = "recorded_statistics",
        .outcome = Outcome::kFail,
        .quantity = fmt::format(
            "the training has equal bits, but {} at step {} of seed {} was "
            "recorded as {:.9g} in the approved run and {:.9g} here",
            difference->quantity, difference->step, pair.seed,
            difference->baseline, difference->candidate),
        .next = "look at what computes this statistic"};
  }
  return std::nullopt;
}

/// Whether a pair's final weights are recorded in both runs and differ.
bool OtherFinalWeights(const compare::Pairing& pairing) {
  return std::ranges::any_of(pairing.pairs, [](const compare::SeedPair& pair) {
    const auto& a = pair.baseline->log.provenance.final_weights_digest;
    const auto& b = pair.candidate->log.provenance.final_weights_digest;
    return !a.empty() && !b.empty() && a != b;
  });
}

Check WrittenAlike(const compare::Pairing& pairing, double resolution,
                   LevelFindings& found) {
  const bool weights = SameFinalWeights(pairing);
  const size_t pairs = pairing.pairs.size();
  return {.name = "written_digits",
          .outcome = Outcome::kPass,
          .quantity = fmt::format(
              "what both logs tell of losses and gradient norms is equal in "
              "every digit, at all {} steps that they have{}",
              pairing.pairs[0].baseline->log.steps.step.size(),
              weights ? ", and so are the final weights" : ""),
          .evidence = fmt::format(
              "{} seed pair{}, digits finer than {:.2g} % of the loss; {}; {}",
              pairs, pairs == 1 ? "" : "s", resolution,
              weights ? "weights by their digests"
                      : "not all logs hold digests of weights",
              CompareTensors(pairing, found))};
}

/// The digits must hide far less than the margin lets pass.
constexpr double kFinerThanMargin = 0.1;

/// Says why equal digits are no evidence here, and how to get evidence
/// soonest.
Check EqualButNotShown(const Policy& policy, size_t values, bool by_step,
                       bool enough, double resolution) {
  Check check{.name = "written_digits", .outcome = Outcome::kInconclusive};
  const std::string equal =
      fmt::format("all {} losses are equal in every digit, but ", values);
  if (!by_step) {
    check.quantity = equal + "a loss of these logs is no value of one step";
    check.next = "log the loss of each step, without smoothing";
  } else if (!enough) {
    check.quantity = equal + "so few show nothing: values";
    check.value = static_cast<double>(values);
    check.relation = "below ";
    check.limit = static_cast<double>(policy.early_steps);
    check.next = fmt::format("log {} more steps",
                             policy.early_steps - static_cast<int64_t>(values));
  } else if (resolution > kFinerThanMargin * policy.margin_percent) {
    check.quantity = equal + "the digits are too coarse: they hide";
    check.value = resolution;
    check.relation = "above ";
    check.limit = kFinerThanMargin * policy.margin_percent;
    check.unit = "%";
    check.next = "print more digits of a loss in FP32";
  } else {
    check.quantity = equal + "the final weights differ";
    check.next = "look at the last update";
  }
  return check;
}

/// Judges another program's runs, whose logs hold digits in place of bits.
LevelFindings JudgeDigits(const compare::Pairing& pairing,
                          const Policy& policy) {
  LevelFindings found;
  for (const compare::SeedPair& pair : pairing.pairs) {
    found.divergences.push_back(
        DivergenceOf(pair, compare::FirstWrittenDivergence(
                               pair.baseline->log, pair.candidate->log)));
  }
  const SeedDivergence* earliest = Earliest(found.divergences);
  if (earliest != nullptr) {
    found.measures.push_back(
        FirstDivergenceMeasure(*earliest, policy.question));
  }
  std::ranges::move(ForeignMeasures(pairing),
                    std::back_inserter(found.measures));
  if (policy.question == compare::Question::kPrecision) return found;
  if (earliest != nullptr) {
    if (std::ranges::count(policy.levels, LevelName(LevelId::l1_exact)) != 0) {
      found.checks.push_back(BitsDiffer(earliest));
    }
    return found;
  }
  const double resolution = std::max(compare::WrittenPercent(pairing),
                                     compare::FormatPercent(pairing));
  const auto& steps = pairing.pairs[0].baseline->log.steps.step;
  const bool by_step =
      std::ranges::all_of(pairing.All(), [](const compare::Run* run) {
        return compare::WhyDeclaredUnlikeSteps(run->log).empty();
      });
  // Fewer values may be equal by chance, or before anything went wrong. Equal
  // weights can't. No loss shows the effect of the last update; digests of
  // weights do.
  const bool enough = SameFinalWeights(pairing) ||
                      static_cast<int64_t>(steps.size()) >= policy.early_steps;
  found.written_equal = by_step && enough && !OtherFinalWeights(pairing) &&
                        resolution <= kFinerThanMargin * policy.margin_percent;
  if (!found.written_equal) {
    found.checks.push_back(
        EqualButNotShown(policy, steps.size(), by_step, enough, resolution));
    return found;
  }
  found.checks.push_back(WrittenAlike(pairing, resolution, found));
  if (resolution > 0 || !SameFinalWeights(pairing)) return found;
  if (auto check = OtherStatistics(pairing)) {
    found.checks.push_back(std::move(*check));
  }
  return found;
}

/// Says which value differs between runs whose training losses are all equal.
/// Empty if losses differ, because their difference matters more.
std::string BesideEqualLosses(const SeedDivergence* earliest,
                              const compare::Pairing& pairing) {
  const bool equal =
      std::ranges::all_of(pairing.pairs, [](const compare::SeedPair& pair) {
        return runlog::EqualBits(pair.baseline->log.steps.loss_nats,
                                 pair.candidate->log.steps.loss_nats);
      });
  if (!equal) return "";
  return fmt::format(
      "All training losses have the same bits; {}.",
      earliest == nullptr
          ? "final weights differ, or are not recorded"
          : fmt::format("the first value that differs is {} at step {} of seed "
                        "{}",
                        earliest->first->quantity, earliest->first->step,
                        earliest->seed));
}

/// Under the question of regression, equality passes and settles the question.
/// Under that of precision it is a measure.
LevelFindings JudgeBits(const Evidence& evidence, const Policy& policy) {
  const compare::Pairing& pairing = *evidence.pairing;
  if (!pairing.Knows(runlog::Fact::kBits)) return JudgeDigits(pairing, policy);
  LevelFindings found;
  for (const compare::SeedPair& pair : pairing.pairs) {
    found.divergences.push_back(DivergenceOf(
        pair,
        compare::FirstDivergence(pair.baseline->log, pair.candidate->log)));
  }
  const SeedDivergence* earliest = Earliest(found.divergences);
  if (earliest != nullptr) {
    found.measures.push_back(
        FirstDivergenceMeasure(*earliest, policy.question));
  }
  found.bit_equal = earliest == nullptr && SameFinalWeights(pairing);
  if (policy.question == compare::Question::kPrecision) return found;
  if (found.bit_equal) {
    found.checks.push_back(BitEqual(pairing, found));
    if (auto check = OtherStatistics(pairing)) {
      found.checks.push_back(std::move(*check));
    }
    return found;
  }
  found.equality_note = BesideEqualLosses(earliest, pairing);
  if (auto check = OtherEvaluation(found.divergences, StepsPlanned(pairing),
                                   SameFinalWeights(pairing))) {
    found.checks.push_back(std::move(*check));
  }
  if (std::ranges::count(policy.levels, LevelName(LevelId::l1_exact)) != 0) {
    found.checks.push_back(BitsDiffer(earliest));
  }
  return found;
}

}  // namespace

extern constinit const Level kLevel_l1_exact = {
    .id = LevelId::l1_exact,
    .name = "L1",
    .title = "exact bits",
    .question =
        "which is the first step whose loss, gradient norm or held-out loss "
        "differs in any bit?",
    .needs = Needs::kSoundRuns,
    .decides = Decides::kRegression,
    .run = &JudgeBits};

}  // namespace isoloss::gate
