#include "isoloss/studies/tuned_exponent.h"

#include <fmt/format.h>

#include "isoloss/base/digest.h"
#include "isoloss/compare/swept_rate.h"
#include "isoloss/runlog/tuning.h"
#include "isoloss/stats/rate_optimum.h"
#include "isoloss/studies/rung.h"
#include "isoloss/treatments/rung_model.h"

namespace isoloss::studies {
namespace {

using stats::RateOptimum;

/// Returns the optimum of the sweep in `table`. If the sweep shows none of
/// `experiment`, `why` says so.
std::optional<RateOptimum> OptimumOf(const train::TuningConfig& sweep,
                                     const train::Experiment& experiment,
                                     const std::string& corpus_digest,
                                     const char* table, std::string& why) {
  if (sweep.rates.empty()) {
    why = fmt::format("the experiment has no {}", table);
    return std::nullopt;
  }
  if (sweep.configuration !=
      runlog::TuningDigest(experiment.ResolvedToml(), corpus_digest,
                           experiment.arms.front().name)) {
    why = fmt::format("{} is of another model, schedule, batch, text or recipe",
                      table);
    return std::nullopt;
  }
  const auto optimum = stats::FindRateOptimum(sweep.rates, sweep.held_out);
  const std::string defect =
      optimum ? compare::SweepDefect(sweep.rates, sweep.held_out,
                                     sweep.seeds.size(), *optimum)
              : "training diverged at every rate tried";
  if (defect.empty()) return optimum;
  why = fmt::format("in {}, {}", table, defect);
  return std::nullopt;
}

/// Returns a size with more than the least difference in width.
double OtherMillions(const model::ModelConfig& model) {
  constexpr double kFactor = 4;
  return kFactor * train::EstimatedParameters(model) / 1e6;
}

}  // namespace

estimators::RateExponent TunedExponent(const train::Experiment& experiment,
                                       const corpus::Corpus& corpus) {
  const std::string digest = DigestToHex(corpus.digest());
  const train::TuningConfig& own = experiment.tuning;
  const train::TuningConfig& scaled = experiment.scaled_tuning.sweep;
  std::string why;
  const auto of_own = OptimumOf(own, experiment, digest, "[tuning]", why);
  if (!of_own) return {.why_assumed = why};
  const double best = own.rates[of_own->best];
  if (!compare::IsNearRate(experiment.train.lr, best)) {
    return {.why_assumed = fmt::format(
                "train.lr, {:g}, is not within a factor {:g} of the best "
                "learning rate tried, {:g}",
                experiment.train.lr, compare::kNearRate, best)};
  }
  // If no model has nearly as many parameters, the digest tells.
  const model::ModelConfig model = treatments::NearestModel(
      experiment.model, experiment.scaled_tuning.parameters.value_or(1));
  const auto of_scaled =
      OptimumOf(scaled,
                RungExperiment(experiment, RungLike(experiment, model),
                               corpus.held_out().count),
                digest, "[tuning.scaled]", why);
  if (!of_scaled) return {.why_assumed = why};
  return estimators::ExponentBetween(
      {experiment.model.dim, of_own->rate, own.seed_optima},
      {model.dim, of_scaled->rate, scaled.seed_optima});
}

std::string RateDoubt(const estimators::RateExponent& exponent,
                      const train::Experiment& experiment) {
  if (exponent.why_assumed.empty()) return "";
  const std::string command = "isoloss study rates " + experiment.path.string();
  return fmt::format(
      "The sizes' learning rates are assumed to grow with the power {} of the "
      "width, since {}. Call `{} --write`, set train.lr to the best rate, and "
      "call `{} --parameters {:.3g} --write`.",
      exponent.value, exponent.why_assumed, command, command,
      OtherMillions(experiment.model));
}

}  // namespace isoloss::studies
