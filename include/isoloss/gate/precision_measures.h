// Measures how much a verdict on precision is worth: how long the training
// was, which differences the test could have seen, and how much the difference
// costs. None of these measures gates.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "isoloss/compare/arm_summary.h"
#include "isoloss/compare/difference_by_tenth.h"
#include "isoloss/compare/token_difference.h"
#include "isoloss/compare/training_scale.h"
#include "isoloss/stats/equivalence.h"

namespace isoloss::gate {

struct LevelFindings;
struct Measure;

/// The spread of few pairs may be small by luck, so that what they could have
/// seen is told for the upper end of its interval at this level.
inline constexpr double kSpreadConfidence = 0.8;

/// Says what one check of L5 could have seen with its number of pairs, if
/// `sd_limit` is their true spread. The unit is that of the check.
struct Sensitivity {
  std::string check;       ///< "final_window"
  std::string title = {};  ///< of the check: "final loss"
  int64_t pairs = 0;
  double sd = 0;        ///< of the pairs' differences
  double sd_limit = 0;  ///< stats::UpperLimitOfSd at kSpreadConfidence
  double alpha = 0;     ///< that the check was made with
  double margin = 0;    ///< likewise
  /// A PASS has this probability if there is no difference at all.
  double power_at_zero = 0;
  /// True differences from this on FAIL with probability `power` or more.
  double detectable = 0;
  double power = 0;
};

struct PrecisionMeasures {
  compare::TrainingScale trained;  ///< of one run
  // The rest is empty unless level L5 ran.
  double alpha = 0;  ///< intervals are of level 1 - 2 alpha, as L5's
  /// Both checks have an entry, unless there are fewer than two pairs.
  std::vector<Sensitivity> sensitivity = {};
  std::optional<compare::TokenSlope> slope = {};
  std::optional<compare::TokenDifference> tokens = {};  ///< final window
  std::optional<compare::DifferenceByTenth> along = {};
};

/// Returns the measures of a verdict on precision, from the checks and the
/// final window that L5 `found`. `options` are those of the checks, `slope` is
/// the baseline's, and `resolution` is the percentage that the logs' digits
/// hide.
PrecisionMeasures MeasurePrecision(const compare::Pairing& pairing,
                                   const LevelFindings& found,
                                   const compare::TokenSlope& slope,
                                   const stats::EquivalenceOptions& options,
                                   double resolution);

/// Returns figures of the final window and of whole trajectories that gate
/// nothing.
std::vector<Measure> MeasureWindow(const compare::Pairing& pairing,
                                   const compare::FinalWindow& window);

}  // namespace isoloss::gate
