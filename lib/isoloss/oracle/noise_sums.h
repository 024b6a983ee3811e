// How far the elements of an FP32 tensor are from exact values, as a whole, row
// by row and on average with their signs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "isoloss/oracle/estimate.h"
#include "isoloss/runlog/probe_log.h"

namespace isoloss::oracle {

/// Memory: 32 bytes a row.
class NoiseSums {
 public:
  /// `value` and the oracle's are finite.
  void Add(size_t row, float value, const Estimate& expected);
  void Merge(const NoiseSums& part);

  /// Sets noise_ratio, row_noise_ratio, noisiest_row, signed_error and
  /// noisy_elements, which stay as they are if nothing was added.
  void Fill(runlog::OracleRow& row) const;

 private:
  /// Of one row: e an element's error, v the variance that FP32 gives it.
  struct Row {
    double errors = 0.0;     // sum of e^2
    double variances = 0.0;  // sum of v
    double squares = 0.0;    // sum of v^2
    double largest = 0.0;    // v
  };
  /// The root mean square error of a row over the expected one, and beyond what
  /// chance adds in one row of 10^12.
  static double BeyondChance(const Row& row);

  std::vector<Row> rows_;
  // Jumps, too: they are part of what the whole tensor expects.
  double error_squared_ = 0.0;
  double expected_squared_ = 0.0;
  double signed_errors_ = 0.0;  // sum of e / sqrt(v), < 0 toward zero
  int64_t noisy_ = 0;           // its terms
};

}  // namespace isoloss::oracle
