// A difference in loss as the tokens that would make it up.
//
// Let L(D) be the baseline's loss after D tokens, and g = dL / d ln D its slope
// at the tokens D_w of the final window, from the runs themselves. A candidate
// whose loss lies above it by d trains as the baseline does with a share r < 1
// of the tokens, and takes 1 / r times as many for the same loss. Near D_w the
// loss is taken for a power law of exponent b = kTokenExponent above some
// floor, so that with x = -d / g
//   L(D) - L(D_w) = g (1 - (D / D_w)^-b) / b,    1 / r = (1 + b x)^(1 / b).
// To first order 1 / r - 1 = x, whatever b. b stands for the bend of the curve:
// between the steps that are fitted and the window, and along the gap. For a
// true exponent of 0.28 (Hoffmann et al. 2022, arXiv 2203.15556) to 0.37
// (Besiroglu et al. 2024, arXiv 2404.10102), 0.3 leaves at most 3 % of the
// result if the rate holds for four fifths of the steps, and 6 % if for half.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "isoloss/compare/final_window.h"
#include "isoloss/compare/pair.h"
#include "isoloss/stats/ratio_interval.h"

namespace isoloss::compare {

inline constexpr double kTokenExponent = 0.3;

/// The baseline's slope in the final window.
struct TokenSlope {
  /// Steps that were fitted.
  int64_t first_step = 0;
  int64_t last_step = 0;
  /// dL / d ln(tokens) of each pair's baseline, in nats; empty if there is no
  /// part of training that shows it.
  std::vector<double> nats = {};
  std::string unknown = {};  ///< why, then; else ""
};

/// Least squares of each baseline's loss against (1 - (D / D_w)^-b) / b, over
/// the last half of the steps before the learning rate begins to fall, of those
/// behind the warm-up. A falling rate lowers the loss by itself, so there is no
/// slope if the rate falls before half of the steps are done, and none if the
/// log has no rates, or fewer than 8 steps are left to fit.
/// Requires runs that level L0 found sound, and at least one pair.
TokenSlope FitTokenSlope(const Pairing& pairing, const FinalWindow& window);

/// Tokens beyond the baseline's that would make up a difference in loss, in
/// percent: 100 (1 / r - 1). Negative for a candidate that is better.
struct TokenDifference {
  double percent = 0;
  stats::RatioInterval interval = {};
  /// What each pair adds to it, to first order in the means' errors (the delta
  /// method): their mean is `percent`, and their spread over the root of their
  /// number is its standard error. For planning; the interval is Fieller's.
  std::vector<double> pairs = {};
  std::string unknown = {};  ///< why there is no number; else ""
};

/// Of the mean of `gaps_nats`, candidate minus baseline of each pair, by the
/// mean slope, with the interval of level 1 - 2 alpha over pairs that counts
/// the uncertainty of both (stats/ratio_interval.h). Unknown if the slope is,
/// or its own interval of that level is not below 0.
TokenDifference TokensOf(std::span<const double> gaps_nats,
                         const TokenSlope& slope, double alpha);

}  // namespace isoloss::compare
