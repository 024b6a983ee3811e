#include "isoloss/compare/token_difference.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "isoloss/base/error.h"
#include "isoloss/compare/difference_by_tenth.h"
#include "isoloss/compare/rate_plateau.h"
#include "isoloss/stats/mean_interval.h"
#include "isoloss/stats/summary.h"

namespace isoloss::compare {
namespace {

/// Fewer steps show no slope beside the noise of batches.
constexpr size_t kFewestSteps = 8;

/// A part has places in the columns.
struct Part {
  size_t first = 0;
  size_t last = 0;
  size_t size() const { return last + 1 - first; }
};

/// Returns the last half of the steps before the learning rate falls. If there
/// is none, `unknown` says why.
Part PartToFit(const runlog::StepColumns& steps, std::string& unknown) {
  const auto plateau = PlateauOf(steps.lr);
  if (!plateau.has_value()) {
    unknown = "the logs have no learning rates";
    return {};
  }
  if (steps.tokens_seen.empty()) {
    unknown = "the logs do not tell how many tokens were seen";
    return {};
  }
  const size_t before_decay = plateau->last + 1;
  if (2 * before_decay < steps.step.size()) {
    unknown = fmt::format(
        "the learning rate falls from step {} of {} on, which lowers the loss "
        "as well (with train.decay_ratio = 0.5 or less it falls later)",
        steps.step[plateau->last] + 1, steps.step.size());
    return {};
  }
  const Part part{std::max(plateau->first, before_decay / 2), plateau->last};
  if (part.size() < kFewestSteps) {
    unknown = fmt::format(
        "only {} step{} lie between warm-up and decay, but {} are the fewest "
        "for a slope",
        part.size(), part.size() == 1 ? "" : "s", kFewestSteps);
  }
  return part;
}

/// Returns ln of the geometric mean of the tokens over the final window.
double LogTokens(const runlog::StepColumns& steps, const FinalWindow& window) {
  std::vector<double> logs;
  for (size_t i = 0; i < steps.step.size(); ++i) {
    if (steps.step[i] < window.first_step) continue;
    logs.push_back(std::log(static_cast<double>(steps.tokens_seen[i])));
  }
  return stats::Mean(logs);
}

/// Returns 100 (1 / r - 1) of x; -100 beyond any share of tokens.
double PercentOf(double x) {
  const double base = std::max(0.0, 1 + kTokenExponent * x);
  return 100 * (std::pow(base, 1 / kTokenExponent) - 1);
}

}  // namespace

TokenSlope FitTokenSlope(const Pairing& pairing, const FinalWindow& window) {
  ISOLOSS_ASSERT(!pairing.pairs.empty());
  const runlog::StepColumns& steps = pairing.pairs[0].baseline->log.steps;
  TokenSlope slope;
  const Part part = PartToFit(steps, slope.unknown);
  if (!slope.unknown.empty()) return slope;
  slope.first_step = steps.step[part.first];
  slope.last_step = steps.step[part.last];
  const double at_window = LogTokens(steps, window);
  std::vector<double> x;
  for (size_t i = part.first; i <= part.last; ++i) {
    const double beyond =
        std::log(static_cast<double>(steps.tokens_seen[i])) - at_window;
    x.push_back(-std::expm1(-kTokenExponent * beyond) / kTokenExponent);
  }
  for (const SeedPair& pair : pairing.pairs) {
    const auto& loss = pair.baseline->log.steps.loss_nats;
    slope.nats.push_back(
        LeastSquaresSlope(x, std::span(loss).subspan(part.first, part.size())));
  }
  return slope;
}

TokenDifference TokensOf(std::span<const double> gaps_nats,
                         const TokenSlope& slope, double alpha) {
  TokenDifference result;
  result.unknown = slope.unknown;
  if (!result.unknown.empty()) return result;
  ISOLOSS_ASSERT(gaps_nats.size() == slope.nats.size());
  const stats::MeanInterval nats =
      stats::IntervalOfMean(stats::Summarize(slope.nats), alpha);
  std::vector<double> falls;  // per unit of ln(tokens), positive
  for (const double fall : slope.nats) falls.push_back(-fall);
  const auto x = stats::FiellerInterval(gaps_nats, falls, alpha);
  // The condition is negated so that NaN is unknown, too.
  if (!(nats.upper < 0) || !x.has_value()) {
    result.unknown =
        slope.nats.size() < 2
            ? std::string("one pair shows no spread of the baseline's slope")
            : fmt::format(
                  "the baseline's slope over steps {} to {} is {:+.3g} nats "
                  "per unit of ln(tokens), {:g} % interval [{:+.3g}, {:+.3g}], "
                  "which is not below 0",
                  slope.first_step, slope.last_step, nats.mean,
                  100 * (1 - 2 * alpha), nats.lower, nats.upper);
    return result;
  }
  const double fall = -nats.mean;
  const double ratio = stats::Mean(gaps_nats) / fall;
  result.percent = PercentOf(ratio);
  result.interval = {PercentOf(x->lower), PercentOf(x->upper)};
  // gain = d percent / d x
  const double gain = 100 * std::pow(std::max(0.0, 1 + kTokenExponent * ratio),
                                     1 / kTokenExponent - 1);
  for (size_t i = 0; i < falls.size(); ++i) {
    const double error = (gaps_nats[i] - ratio * falls[i]) / fall;
    result.pairs.push_back(result.percent + gain * error);
  }
  return result;
}

std::optional<double> TokensFor(double nats, const TokenSlope& slope) {
  if (!slope.unknown.empty()) return {};
  const double fall = -stats::Mean(slope.nats);
  if (!(fall > 0)) return {};
  return PercentOf(nats / fall);
}

}  // namespace isoloss::compare
