// The judgement of a claim by its runs.
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

/// One finished run.
struct RunCurve {
  int64_t seed = 0;
  bool diverged = false;
  /// Held-out losses, nats: (step, loss), ascending steps.
  std::vector<std::pair<int64_t, double>> losses = {};
};

struct ArmCurves {
  std::string arm;
  std::vector<RunCurve> runs = {};
};

/// The runs of one experiment.
struct CellCurves {
  std::string name;
  int64_t steps = 0;  ///< of each run
  size_t seeds = 0;   ///< that each arm is to be trained with
  // Its size, for Measure::kParameterFactor.
  double parameters = 0;
  double tokens = 0;
  std::vector<ArmCurves> arms = {};
};

/// Where an interval lies.
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
  /// kDivergence above or below 0: one-sided, by Fisher's exact test.
  std::optional<double> p = std::nullopt;
  // kDivergence.
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
  /// Why controls keep it from being reproduced; else "".
  std::string note = {};
};

/// The side of an interval: that of the claim if it lies there wholly; the
/// other one if it lies there wholly, or wholly nearer to the bound than
/// `equivalence`. Special: undecided if an end is not a number.
Side SideOf(const Contrast& contrast, double lower, double upper);

/// Judges each contrast and the claim: contradicted if one of the claim's lies
/// on the other side; reproduced if all of the claim's and all controls lie on
/// theirs, and if a control guards each of the claim's that is `within` a bound
/// (Claim::IsGuarded); else not at this size. A control contradicts nothing.
/// Seeds pair the runs of arms, and of cells. `cells` are all of the claim's;
/// of which no run is there, that has no arms.
///
/// Special  Seeds of which a run has a loss that is not finite are left out of
///          gaps, and such a contrast decides nothing. Nor does one of which a
///          run is missing: who may stop at any seed may stop at a lucky one.
///          Fewer than two seeds have infinite intervals.
/// Errors   ConfigError if a cell or an arm has no runs at all, but for measure
///          parameter_factor, or a run no loss at a step that a contrast names.
ClaimResult JudgeClaim(const Claim& claim, std::span<const CellCurves> cells);

}  // namespace isoloss::estimators
