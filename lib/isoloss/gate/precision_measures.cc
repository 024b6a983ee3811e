#include "isoloss/gate/precision_measures.h"

#include <fmt/format.h>

#include <cmath>
#include <optional>
#include <string>

#include "isoloss/gate/verdict.h"
#include "isoloss/stats/power.h"

namespace isoloss::gate {
namespace {

/// Of a check of L5; empty if there is no spread, as of a single pair.
std::optional<Sensitivity> SensitivityOf(
    const Check& check, const stats::EquivalenceOptions& options,
    double resolution) {
  // The course of training has limits of its own, which are not the margin.
  if (!check.pairs || check.name == "trajectory" || check.pairs->count < 2 ||
      !std::isfinite(check.pairs->sd)) {
    return std::nullopt;
  }
  const auto& [count, mean, sd] = *check.pairs;
  // The interval is wider by what the digits hide: it passes as within a
  // narrower margin, and fails as beyond a wider one.
  stats::EquivalenceOptions passing = options;
  stats::EquivalenceOptions failing = options;
  passing.margin -= resolution;
  failing.margin += resolution;
  return Sensitivity{
      .check = check.name,
      .pairs = count,
      .sd = sd,
      .alpha = options.alpha,
      .margin = options.margin,
      .power_at_zero = passing.margin > 0
                           ? stats::EquivalencePower(0, sd, count, passing)
                           : 0,
      .detectable = stats::DetectableDifference(sd, count, failing),
      .power = options.power};
}

}  // namespace

std::string BigramWarning(const compare::ArmSummary& arm,
                          const compare::TrainingScale& trained) {
  if (!arm.final_loss_nats.has_value() || !trained.bigram_bits.has_value() ||
      arm.percent_below_unigram.value_or(1) <= 0) {
    return "";
  }
  const double bits = compare::BitsOf(*arm.final_loss_nats);
  // Written so that NaN, which other checks report, says nothing here.
  if (!(bits >= *trained.bigram_bits)) return "";
  return fmt::format(
      "{} ends at {:.3f} bits per {}, above the {:.3f} of the corpus' "
      "bigrams: the model has not learnt beyond bigrams, so a verdict says "
      "little of models that have. Train longer.",
      arm.arm, bits, trained.of_bytes ? "byte" : "token", *trained.bigram_bits);
}

void MeasurePrecision(const compare::Pairing& pairing,
                      const compare::TokenSlope& slope,
                      const stats::EquivalenceOptions& options,
                      double resolution, Judgement& judgement) {
  if (!judgement.precision.has_value()) return;
  PrecisionMeasures& measures = *judgement.precision;
  const compare::FinalWindow& window = *judgement.final_window;
  measures.alpha = options.alpha;
  measures.slope = slope;
  measures.tokens = compare::TokensOf(window.Gaps(), slope, options.alpha);
  measures.along = compare::CompareByTenth(pairing, options.alpha);
  for (const Check& check : judgement.checks) {
    const auto sensitivity = SensitivityOf(check, options, resolution);
    if (sensitivity) measures.sensitivity.push_back(*sensitivity);
  }
}

}  // namespace isoloss::gate
