// Measures how far an FP32 tensor is from exact values: as a whole, row by row,
// and on average with signs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "isoloss/oracle/estimate.h"
#include "isoloss/runlog/probe_log.h"

namespace isoloss::oracle {

/// The sums take 64 bytes per row.
class NoiseSums {
 public:
  /// `value` and expected.exact are finite.
  void Add(size_t row, size_t column, float value, const Estimate& expected);
  void Merge(const NoiseSums& part);

  /// Sets noise_ratio, tensor_noise_ratio, row_noise_ratio, noisiest_row,
  /// signed_error and noisy_elements. They do not change if nothing was added.
  void Fill(runlog::OracleRow& row) const;

 private:
  /// In these sums, e is an element's error and v the variance that FP32 gives
  /// it.
  struct Squares {
    double errors = 0.0;     // sum of e^2
    double variances = 0.0;  // sum of v
    double squares = 0.0;    // sum of v^2
    double largest = 0.0;    // largest v

    void Add(double error, double variance);
    void Merge(const Squares& part);
    /// Returns the root mean square error, divided by the expected error with
    /// what chance adds once in 10^12 times.
    double BeyondChance() const;
  };
  struct Row : Squares {
    double signed_errors = 0.0;  // sum of e / sqrt(v), < 0 toward zero
    double leans = 0.0;          // sum of Estimate::lean / sqrt(v)
    int64_t noisy = 0;           // terms of signed_errors
    uint64_t content = 0;        // equal for rows of equal exact values
  };
  /// Sets noisy_elements, and signed_error less the lean that elements may have
  /// under a shared scale. Rows that repeat, as those of equal tokens in a
  /// first layer do, have the same errors and count once.
  void FillSigned(runlog::OracleRow& row) const;

  std::vector<Row> rows_;
  // The whole tensor's sums include jumps, which it expects, too.
  Squares all_;
};

}  // namespace isoloss::oracle
