#include "isoloss/estimators/claim_power.h"

#include <cmath>

#include "isoloss/estimators/claim_verdict.h"
#include "isoloss/stats/non_central_t.h"
#include "isoloss/stats/power.h"
#include "isoloss/stats/student_t.h"

namespace isoloss::estimators {
namespace {

double BinomialProbability(double k, double n, double rate) {
  return std::exp(std::lgamma(n + 1) - std::lgamma(k + 1) -
                  std::lgamma(n - k + 1)) *
         std::pow(rate, k) * std::pow(1 - rate, n - k);
}

ClaimPower PowerOfRates(const Contrast& contrast, size_t seeds, double alpha) {
  const auto n = static_cast<int64_t>(seeds);
  const double points = contrast.published_size.value_or(0);
  const auto verdict = [&](int64_t diverged) {
    RunCounts counts{.runs = n, .reference_runs = n};
    (points < 0 ? counts.reference_diverged : counts.diverged) = diverged;
    return JudgeRates(contrast, counts, alpha).verdict;
  };
  ClaimPower power;
  for (int64_t k = 0; k <= n; ++k) {
    if (!IsSeen(verdict(k))) continue;
    power.published +=
        BinomialProbability(static_cast<double>(k), static_cast<double>(n),
                            std::fabs(points) / 100);
  }
  if (contrast.relation == Relation::kWithin) {
    power.nothing = power.published;
  } else {
    power.nothing = verdict(0) == ClaimVerdict::kAbsent ? 1 : 0;
  }
  return power;
}

ClaimPower PowerOfMean(const Contrast& contrast, size_t seeds, double spread,
                       double alpha) {
  const auto pairs = static_cast<int64_t>(seeds);
  const auto inside = [&](double mean, double margin) {
    return stats::EquivalencePower(mean, spread, pairs,
                                   {.margin = margin, .alpha = alpha / 2});
  };
  if (contrast.relation == Relation::kWithin) {
    const double power =
        inside(contrast.published_size.value_or(0), contrast.bound);
    return {power, power};
  }
  const auto n = static_cast<double>(seeds);
  return {stats::NonCentralTUpperTail(
              stats::StudentTQuantile(1 - alpha / 2, n - 1), n - 1,
              contrast.Effect() / spread * std::sqrt(n)),
          inside(0, contrast.Nothing())};
}

}  // namespace

std::optional<ClaimPower> PowerOf(const Contrast& contrast, size_t seeds,
                                  std::optional<double> spread, double alpha) {
  if (!contrast.published_size || seeds < 2) return std::nullopt;
  if (contrast.measure == Measure::kDivergence) {
    return PowerOfRates(contrast, seeds, alpha);
  }
  if (!spread || !(*spread > 0) || !std::isfinite(*spread)) return std::nullopt;
  return PowerOfMean(contrast, seeds, *spread, alpha);
}

std::optional<size_t> SeedsNeeded(const Contrast& contrast,
                                  std::optional<double> spread, double alpha) {
  const size_t most =
      contrast.measure == Measure::kDivergence ? kMostSeedsOfRates : kMostSeeds;
  for (size_t seeds = 2; seeds <= most; ++seeds) {
    const auto power = PowerOf(contrast, seeds, spread, alpha);
    if (!power) return std::nullopt;
    if (power->published >= kWantedPower && power->nothing >= kWantedPower)
      return seeds;
  }
  return std::nullopt;
}

}  // namespace isoloss::estimators
