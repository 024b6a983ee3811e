// Whether the quantisation errors of narrow models foretell those of a wide
// one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "isoloss/compare/pair.h"

namespace isoloss::compare {

/// SQNR of one operand, dB: a mean over layers and steps in each run.
struct OperandTransfer {
  /// Name of the tensor without its layer's number, and " (columns)" for the
  /// quantisation along columns: "moe.routed_experts.w1_weight".
  std::string operand;
  double measured = 0;  ///< mean of the widest model's runs
  double nearest = 0;   ///< mean of the next narrower model's runs
  /// What a line over log2(width) through all narrow runs predicts for the mean
  /// of so many runs of the widest, with its 95 % interval. It takes their
  /// spread for that of the narrow ones around the line.
  double predicted = 0;
  double lower = 0;
  double upper = 0;

  bool inside() const { return lower <= measured && measured <= upper; }
};

/// An operand that some log has, but can't be judged.
struct OperandLeftOut {
  std::string operand;
  size_t missing = 0;   ///< logs without it
  size_t infinite = 0;  ///< logs in which its mean is not finite
};

struct WidthTransfer {
  static constexpr double kConfidence = 0.95;

  std::string arm;
  size_t logs = 0;
  size_t wide_logs = 0;               ///< of them, of the widest model
  int64_t width = 0;                  ///< of the widest model's residual stream
  std::vector<int64_t> small_widths;  ///< ascending
  std::vector<int64_t> steps;         ///< that all logs have statistics of
  /// Descending distance from the prediction. Operands that have the same SQNR
  /// in every run stand for one, which is named by the first of their names.
  std::vector<OperandTransfer> operands;
  std::vector<OperandLeftOut> left_out = {};  ///< by name

  size_t Inside() const;
  /// Root mean square over operands of the distance between the widest model
  /// and the next narrower one, and the line.
  double NearestRmsDb() const;
  double PredictedRmsDb() const;
};

/// A model's width is the number of elements of its last norm's gain.
/// Errors   ConfigError if the runs are of several arms, if a log has no
///          statistics of tensors, if there are fewer than 3 narrow widths or 4
///          narrow runs, or if no step or no quantised operand is in all logs.
WidthTransfer CompareWidths(std::span<const Run> runs);

}  // namespace isoloss::compare
