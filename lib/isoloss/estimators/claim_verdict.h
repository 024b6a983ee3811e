// Decides by an interval, or by counts of diverged runs, how a contrast ends.
#pragma once

#include <cstdint>
#include <optional>

#include "isoloss/estimators/claim.h"

namespace isoloss::estimators {

enum class ClaimVerdict {
  kReproduced,
  kTooSmall,
  kAbsent,
  kContradicted,
  kUndecided,
};
inline constexpr Named<ClaimVerdict> kClaimVerdicts[] = {
    {"reproduced", ClaimVerdict::kReproduced},
    {"too small here", ClaimVerdict::kTooSmall},
    {"absent here", ClaimVerdict::kAbsent},
    {"contradicted", ClaimVerdict::kContradicted},
    {"undecided", ClaimVerdict::kUndecided}};

/// Returns the row of this table that holds the interval. An effect counts from
/// the bound into the claimed direction, and [a, b] is the interval of the
/// effect. The published size is p, and what is nearer to 0 than e <= p counts
/// as nothing (Contrast::Effect, Contrast::Nothing). Both are 0 if no size was
/// published, so that neither kTooSmall nor kAbsent can result.
///
///   relation above or below                          verdict
///   b < 0                                            kContradicted
///   a > 0, b >= p                                    kReproduced
///   a > 0, b < p                                     kTooSmall
///   a <= 0 <= b, -e < a, b < e                       kAbsent
///   a <= 0 <= b, a <= -e or b >= e                   kUndecided
///
///   relation within the bound c > 0, interval [a, b] verdict
///   -c < a, b < c                                    kReproduced
///   a > c or b < -c                                  kContradicted
///   else                                             kUndecided
///
/// Special  An end may be infinite.
/// Errors   ConfigError if an end is not a number, or lower > upper.
ClaimVerdict VerdictOfInterval(const Contrast& contrast, double lower,
                               double upper);

/// Returns whether a verdict says that the effect is there, or that the number
/// is `within` its bound.
inline bool IsSeen(ClaimVerdict verdict) {
  return verdict == ClaimVerdict::kReproduced ||
         verdict == ClaimVerdict::kTooSmall;
}

/// Counts the runs of Measure::kDivergence.
struct RunCounts {
  int64_t diverged = 0;
  int64_t runs = 0;
  int64_t reference_diverged = 0;
  int64_t reference_runs = 0;
};

/// The difference of two rates, in percentage points.
struct RateDifference {
  double estimate = 0;
  double lower = 0;
  double upper = 0;
  /// Fisher's one-sided p-value of what a contrast above or below 0 claims.
  std::optional<double> p = std::nullopt;
  ClaimVerdict verdict = ClaimVerdict::kUndecided;
};

/// Judges counts of diverged runs. Fisher's exact test at alpha / 2 for each
/// direction decides whether a difference lies on a side of 0. Zou and Donner's
/// interval (MOVER, Statistics in Medicine 27 (2008), 1693-1702), from the
/// intervals of Clopper and Pearson, decides about all other numbers.
/// Errors   as stats::ClopperPearson; there must be runs of both.
RateDifference JudgeRates(const Contrast& contrast, const RunCounts& counts,
                          double alpha);

}  // namespace isoloss::estimators
