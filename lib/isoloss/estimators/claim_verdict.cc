#include "isoloss/estimators/claim_verdict.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "isoloss/base/error.h"
#include "isoloss/stats/binomial_interval.h"
#include "isoloss/stats/fisher_exact.h"

namespace isoloss::estimators {
namespace {

constexpr double kPointsOfOne = 100;

/// Judges an effect by the first half of the table.
ClaimVerdict VerdictOfEffect(const Contrast& contrast, double lower,
                             double upper) {
  if (upper < 0) return ClaimVerdict::kContradicted;
  if (lower > 0) {
    return upper < contrast.Effect() ? ClaimVerdict::kTooSmall
                                     : ClaimVerdict::kReproduced;
  }
  const double nothing = contrast.Nothing();
  return -nothing < lower && upper < nothing ? ClaimVerdict::kAbsent
                                             : ClaimVerdict::kUndecided;
}

/// Moves the interval's ends to the sides of 0 where Fisher's test sees them.
ClaimVerdict VerdictOfRates(const Contrast& contrast, const RunCounts& counts,
                            double alpha, RateDifference& result) {
  const double p_more = stats::FisherExactGreater(counts.diverged, counts.runs,
                                                  counts.reference_diverged,
                                                  counts.reference_runs);
  const double p_less = stats::FisherExactGreater(counts.reference_diverged,
                                                  counts.reference_runs,
                                                  counts.diverged, counts.runs);
  result.p = contrast.relation == Relation::kAbove ? p_more : p_less;
  constexpr double kBeside = std::numeric_limits<double>::min();
  return VerdictOfInterval(contrast,
                           p_more < alpha / 2 ? std::max(result.lower, kBeside)
                                              : std::min(result.lower, 0.0),
                           p_less < alpha / 2 ? std::min(result.upper, -kBeside)
                                              : std::max(result.upper, 0.0));
}

}  // namespace

ClaimVerdict VerdictOfInterval(const Contrast& contrast, double lower,
                               double upper) {
  if (!(lower <= upper)) {
    ThrowError(
        ErrorKind::kConfig,
        "claim: contrast {} has the interval {} to {}, but its ends must "
        "be ascending numbers. Judge losses that are finite.",
        contrast.name, lower, upper);
  }
  const double bound = contrast.bound;
  switch (contrast.relation) {
    case Relation::kAbove:
      return VerdictOfEffect(contrast, lower - bound, upper - bound);
    case Relation::kBelow:
      return VerdictOfEffect(contrast, bound - upper, bound - lower);
    case Relation::kWithin:
      break;
  }
  if (-bound < lower && upper < bound) return ClaimVerdict::kReproduced;
  return lower > bound || upper < -bound ? ClaimVerdict::kContradicted
                                         : ClaimVerdict::kUndecided;
}

RateDifference JudgeRates(const Contrast& contrast, const RunCounts& counts,
                          double alpha) {
  const double a =
      static_cast<double>(counts.diverged) / static_cast<double>(counts.runs);
  const double b = static_cast<double>(counts.reference_diverged) /
                   static_cast<double>(counts.reference_runs);
  const stats::BinomialInterval of_a =
      stats::ClopperPearson(counts.diverged, counts.runs, 1 - alpha);
  const stats::BinomialInterval of_b = stats::ClopperPearson(
      counts.reference_diverged, counts.reference_runs, 1 - alpha);
  RateDifference result{.estimate = kPointsOfOne * (a - b)};
  result.lower = result.estimate -
                 kPointsOfOne * std::hypot(a - of_a.lower, of_b.upper - b);
  result.upper = result.estimate +
                 kPointsOfOne * std::hypot(of_a.upper - a, b - of_b.lower);
  result.verdict = contrast.relation == Relation::kWithin || contrast.bound != 0
                       ? VerdictOfInterval(contrast, result.lower, result.upper)
                       : VerdictOfRates(contrast, counts, alpha, result);
  return result;
}

}  // namespace isoloss::estimators
