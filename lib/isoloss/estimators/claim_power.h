// Computes what a number of seeds can decide about a contrast.
#pragma once

#include <cstddef>
#include <optional>

#include "isoloss/estimators/claim.h"

namespace isoloss::estimators {

/// Both are probabilities.
struct ClaimPower {
  /// The effect is seen (IsSeen) if its true size is the published one.
  double published = 0;
  /// The contrast ends as kAbsent if the truth is its bound. A contrast
  /// `within` its bound has no such end, and repeats `published`.
  double nothing = 0;
};
/// Both must reach this for a number of seeds that would do.
inline constexpr double kWantedPower = 0.8;
/// No larger numbers of seeds are tried; fewer of Measure::kDivergence.
inline constexpr size_t kMostSeeds = 2000;
inline constexpr size_t kMostSeedsOfRates = 400;

/// Returns the power of a contrast with a published size.
///
/// Paired numbers are taken for normal with the standard deviation `spread`, in
/// the unit of the measure; for a parameter factor that is an approximation.
/// A rate of divergence takes no spread: it is exact, with one of the two rates
/// 0, and the other the published one.
/// Special  empty without a spread or with fewer than two seeds.
/// Errors   as stats::TwoOneSidedPower.
std::optional<ClaimPower> PowerOf(const Contrast& contrast, size_t seeds,
                                  std::optional<double> spread, double alpha);

/// Returns the smallest number of seeds with kWantedPower.
/// Special  empty if there is none up to the largest number, or no spread.
std::optional<size_t> SeedsNeeded(const Contrast& contrast,
                                  std::optional<double> spread, double alpha);

}  // namespace isoloss::estimators
