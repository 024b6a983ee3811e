// Decides by a claim's runs whether it is reproduced or contradicted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "isoloss/estimators/claim_power.h"
#include "isoloss/estimators/claim_verdict.h"

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
  size_t seeds = 0;   ///< that the claim has for each arm, even if a pilot's
                      ///< runs are of fewer
  // Measure::kParameterFactor uses this size.
  double parameters = 0;
  double tokens = 0;
  std::vector<ArmCurves> arms = {};
};

struct ContrastResult {
  Contrast contrast = {};
  double estimate = 0;
  double lower = 0;
  double upper = 0;
  size_t seeds = 0;  ///< that it is of
  /// A one-sided p-value by Fisher's exact test. Only kDivergence above or
  /// below 0 has one.
  std::optional<double> p = std::nullopt;
  RunCounts counts = {};  ///< kDivergence
  /// The standard deviation over these seeds; not of kDivergence.
  std::optional<double> spread = std::nullopt;
  /// These are the power of as many seeds at this spread, and the number of
  /// seeds that would do.
  std::optional<ClaimPower> power = std::nullopt;
  std::optional<size_t> seeds_needed = std::nullopt;
  ClaimVerdict verdict = ClaimVerdict::kUndecided;
  std::string note = {};  ///< why it can't decide, or ""
};

struct ClaimResult {
  Claim claim = {};
  double confidence = 1 - kClaimError;  ///< of each interval: 1 - Error()
  std::vector<ContrastResult> contrasts = {};
  ClaimVerdict verdict = ClaimVerdict::kUndecided;
  /// The most that an undecided contrast of the claim needs; empty if the claim
  /// is decided, or if one of these numbers is not known.
  std::optional<size_t> seeds_needed = std::nullopt;
  /// Says why controls or too few seeds keep the claim undecided; else "".
  std::string note = {};
};

/// Judges each contrast and the claim. Seeds pair the runs of arms, and the
/// runs of cells. `cells` has every cell of the claim; a cell without runs has
/// no arms.
/// The claim has the first verdict in this list that one of its contrasts has:
/// contradicted, absent, too small, undecided, reproduced. With a contrast that
/// decides nothing it is contradicted or undecided. It is reproduced, absent or
/// too small only if all controls are seen (IsSeen), else undecided. Each of
/// its contrasts that is `within` a bound needs a control that guards it
/// (Claim::IsGuarded) to be reproduced. A control contradicts nothing.
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
