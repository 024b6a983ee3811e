// How far the elements of an FP32 tensor are from exact values, as a whole, row
// by row and on average with their signs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "isoloss/oracle/estimate.h"
#include "isoloss/runlog/probe_log.h"

namespace isoloss::oracle {

/// Memory: 64 bytes a row.
class NoiseSums {
 public:
  /// `value` and the oracle's are finite.
  void Add(size_t row, size_t column, float value, const Estimate& expected);
  void Merge(const NoiseSums& part);

  /// Sets noise_ratio, row_noise_ratio, noisiest_row, signed_error and
  /// noisy_elements, which stay as they are if nothing was added.
  void Fill(runlog::OracleRow& row) const;

 private:
  /// Of one row: e an element's error, v the variance that FP32 gives it.
  struct Row {
    double errors = 0.0;         // sum of e^2
    double variances = 0.0;      // sum of v
    double squares = 0.0;        // sum of v^2
    double largest = 0.0;        // v
    double signed_errors = 0.0;  // sum of e / sqrt(v), < 0 toward zero
    double leans = 0.0;          // sum of Estimate::lean / sqrt(v)
    int64_t noisy = 0;           // its terms
    uint64_t content = 0;        // equal for rows of equal exact values
  };
  /// The root mean square error of a row over the expected one, and beyond what
  /// chance adds in one row of 10^12.
  static double BeyondChance(const Row& row);
  /// Sets signed_error, less what elements that share a scale may lean, and
  /// noisy_elements. Rows that repeat, as those of equal tokens in a first
  /// layer do, have the same errors and count once.
  void FillSigned(runlog::OracleRow& row) const;

  std::vector<Row> rows_;
  // Jumps, too: they are part of what the whole tensor expects.
  double error_squared_ = 0.0;
  double expected_squared_ = 0.0;
};

}  // namespace isoloss::oracle
