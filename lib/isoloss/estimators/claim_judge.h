// Decides by a claim's runs whether it is reproduced or contradicted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "isoloss/estimators/claim.h"

namespace isoloss::estimators {

struct RunCurve {
  int64_t seed = 0;
  bool diverged = false;
  /// Held-out losses, nats: each is (step, loss), in ascending order of steps.
  std::vector<std::pair<int64_t, double>> losses = {};
};

struct ArmCurves {
  std::string arm;
  std::vector<RunCurve> runs = {};
};

/// These are the runs of one experiment.
struct CellCurves {
  std::string name;
  int64_t steps = 0;  ///< of each run
  size_t seeds = 0;   ///< that each arm is to be trained with
  // Measure::kParameterFactor uses this size.
  double parameters = 0;
  double tokens = 0;
  std::vector<ArmCurves> arms = {};
};

/// Says where an interval lies.
enum class Side { kClaimed, kOther, kUndecided };
inline constexpr Named<Side> kSides[] = {{"claimed", Side::kClaimed},
                                         {"other", Side::kOther},
                                         {"undecided", Side::kUndecided}};

struct ContrastResult {
  Contrast contrast = {};
  double estimate = 0;
  double lower = 0;
  double upper = 0;
  size_t seeds = 0;  ///< that it is of
  /// A one-sided p-value by Fisher's exact test. Only kDivergence above or
  /// below 0 has one.
  std::optional<double> p = std::nullopt;
  // Only kDivergence uses these four.
  int64_t diverged = 0;
  int64_t runs = 0;
  int64_t reference_diverged = 0;
  int64_t reference_runs = 0;
  Side side = Side::kUndecided;
  std::string note = {};  ///< why it can't decide, or ""
};

enum class ClaimVerdict { kReproduced, kNotAtThisSize, kContradicted };
inline constexpr Named<ClaimVerdict> kClaimVerdicts[] = {
    {"reproduced", ClaimVerdict::kReproduced},
    {"not at this size", ClaimVerdict::kNotAtThisSize},
    {"contradicted", ClaimVerdict::kContradicted}};

struct ClaimResult {
  Claim claim = {};
  double confidence = 1 - kClaimError;  ///< of each interval: 1 - Error()
  std::vector<ContrastResult> contrasts = {};
  ClaimVerdict verdict = ClaimVerdict::kNotAtThisSize;
  /// Says why controls keep the claim from being reproduced; else it is "".
  std::string note = {};
};

/// Returns the claim's side if the interval lies wholly there. Returns the
/// opposite side if the interval lies wholly there, or wholly nearer to the
/// bound than `equivalence`.
/// Special  undecided if an end is not a number.
Side SideOf(const Contrast& contrast, double lower, double upper);

/// Judges each contrast and the claim. Seeds pair the runs of arms, and the
/// runs of cells. `cells` has every cell of the claim; a cell without runs has
/// no arms.
/// The claim is contradicted if one of its contrasts lies on the opposite
/// side. It is reproduced if all its contrasts and all controls lie on their
/// own sides. A control must also guard each of its contrasts that is `within`
/// a bound (Claim::IsGuarded). Else the verdict is "not at this size". A
/// control contradicts nothing.
///
/// Special  If a run has a loss that is not finite, its seed is left out of
///          gaps, and the contrast decides nothing. A contrast with a missing
///          run decides nothing either: whoever may stop at any seed may stop
///          at a lucky one. Fewer than two seeds have infinite intervals.
/// Errors   ConfigError if a run has no loss at a step that a contrast names.
///          Except for measure parameter_factor, also if a cell or an arm has
///          no runs at all.
ClaimResult JudgeClaim(const Claim& claim, std::span<const CellCurves> cells);

}  // namespace isoloss::estimators
