// Expresses a difference in loss as the tokens that would make up for it.
//
// Let L(D) be the baseline's loss after D tokens. Its slope at the tokens D_w
// of the final window is g = dL / d ln D, from the runs themselves. A candidate
// whose loss lies above L by d trains as the baseline does with a share r < 1
// of the tokens. It takes 1 / r times the tokens for the same loss. Near D_w
// the loss is taken for a power law of exponent b = kTokenExponent above some
// floor. With x = -d / g,
//   L(D) - L(D_w) = g (1 - (D / D_w)^-b) / b,    1 / r = (1 + b x)^(1 / b).
// To first order 1 / r - 1 = x, for any b. b describes how the curve bends
// between the fitted steps and the window, and along the gap. The true exponent
// is between 0.28 (Hoffmann et al. 2022, arXiv 2203.15556) and 0.37 (Besiroglu
// et al. 2024, arXiv 2404.10102). With 0.3, the error is then at most 3 % of
// the result if the rate holds for four fifths of the steps, and 6 % if it
// holds for half.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "isoloss/compare/final_window.h"
#include "isoloss/compare/pair.h"
#include "isoloss/stats/ratio_interval.h"

namespace isoloss::compare {

inline constexpr double kTokenExponent = 0.3;

/// The slope is that of the baseline in the final window.
struct TokenSlope {
  /// These steps were fitted.
  int64_t first_step = 0;
  int64_t last_step = 0;
  /// dL / d ln(tokens) of each pair's baseline, in nats; empty if no part of
  /// training shows it.
  std::vector<double> nats = {};
  std::string unknown = {};  ///< why `nats` is empty; else ""
};

/// Fits each baseline's loss against (1 - (D / D_w)^-b) / b by least squares.
/// It uses the last half of the steps before the learning rate begins to fall,
/// without the warm-up. A falling rate lowers the loss by itself. So there is
/// no slope if the rate falls before half of the steps are done. There is none
/// either if the log has no rates, or fewer than 8 steps are left to fit.
/// Requires runs that level L0 found sound, and at least one pair.
TokenSlope FitTokenSlope(const Pairing& pairing, const FinalWindow& window);

/// A candidate needs this many percent more tokens than the baseline to make up
/// for a difference in loss: 100 (1 / r - 1). A better one has less than 0.
struct TokenDifference {
  double percent = 0;
  stats::RatioInterval interval = {};
  /// Each pair adds this number to the difference, to first order in the means'
  /// errors (the delta method). The mean of the numbers is `percent`, and their
  /// spread over the root of their number is its standard error. They are for
  /// planning; the interval is Fieller's.
  std::vector<double> pairs = {};
  std::string unknown = {};  ///< why there is no number; else ""
};

/// Converts the mean of `gaps_nats`, candidate minus baseline of each pair, by
/// the mean slope. The interval of level 1 - 2 alpha over pairs counts the
/// uncertainty of both (stats/ratio_interval.h). The result is unknown if the
/// slope is, or if the slope's own interval of that level is not below 0.
TokenDifference TokensOf(std::span<const double> gaps_nats,
                         const TokenSlope& slope, double alpha);

/// Returns the extra tokens in % that would lower the loss by `nats`, by the
/// mean slope. Empty if the slope is unknown or not below 0.
std::optional<double> TokensFor(double nats, const TokenSlope& slope);

}  // namespace isoloss::compare
