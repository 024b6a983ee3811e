// Tests whether quantisation errors of narrow models predict those of wide
// ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "isoloss/compare/pair.h"

namespace isoloss::compare {

/// SQNR of one operand, in dB, is a mean over layers and steps in each run.
struct OperandTransfer {
  /// The name of the tensor has no layer number; " (columns)" is added if
  /// columns are quantised: "moe.routed_experts.w1_weight".
  std::string operand;
  double measured = 0;  ///< mean of the widest model's runs
  double nearest = 0;   ///< mean of the next narrower model's runs
  /// A line over log2(width) through all narrow runs predicts this mean of the
  /// widest model's runs, with its 95 % interval. The interval takes the spread
  /// of the widest model's runs for that of the narrow runs around the line.
  double predicted = 0;
  double lower = 0;
  double upper = 0;

  bool inside() const { return lower <= measured && measured <= upper; }
};

/// Some log has this operand, but it can't be judged.
struct OperandLeftOut {
  std::string operand;
  size_t missing = 0;   ///< logs without it
  size_t infinite = 0;  ///< logs in which its mean is not finite
};

struct WidthTransfer {
  static constexpr double kConfidence = 0.95;

  std::string arm;
  size_t logs = 0;
  size_t wide_logs = 0;               ///< logs of the widest model
  int64_t width = 0;                  ///< of the widest model's residual stream
  std::vector<int64_t> small_widths;  ///< ascending
  std::vector<int64_t> steps;         ///< at which all logs have statistics
  /// Operands have descending distance from the prediction. Operands with the
  /// same SQNR in every run count once, under the first of their names.
  std::vector<OperandTransfer> operands;
  std::vector<OperandLeftOut> left_out = {};  ///< by name

  size_t Inside() const;
  /// These are root mean squares, over operands, of the distance of the widest
  /// model from the next narrower model, and from the line.
  double NearestRmsDb() const;
  double PredictedRmsDb() const;
};

/// Compares the widths of the runs. A model's width is the number of elements
/// of its last norm's gain.
/// Errors   ConfigError if the runs are of several arms; if a log has no
///          statistics of tensors; if there are fewer than 3 narrow widths or 4
///          narrow runs; if no step or no quantised operand is in all logs.
WidthTransfer CompareWidths(std::span<const Run> runs);

}  // namespace isoloss::compare
