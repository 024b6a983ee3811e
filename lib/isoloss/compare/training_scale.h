// How much was trained, on what, for how long: what a verdict holds for.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "isoloss/runlog/run_log.h"

namespace isoloss::compare {

/// Of one run, by what its log says of it. Empty: the log does not say.
struct TrainingScale {
  int64_t tokens = 0;  ///< of all planned steps
  int64_t parameters = 0;
  /// Parameters less those of routed experts that a token does not choose.
  std::optional<double> active_parameters;
  /// Floating-point operations of all products, forward and backward: for each
  /// token 6 for each weight of a GEMM that it meets, and attention's with half
  /// of the sequence.
  std::optional<double> flops;
  /// "warm-up to step 100, then falling to step 300".
  std::string schedule;
  /// Are tokens bytes? Else bits are those of a token.
  bool of_bytes = false;
  /// Bits per token of the training share: entropy of tokens, entropy of a
  /// token given the one before it, and what a compressor makes of it.
  std::optional<double> unigram_bits;
  std::optional<double> bigram_bits;
  std::optional<double> deflated_bits;

  double TokensPerParameter() const {
    return static_cast<double>(tokens) / static_cast<double>(parameters);
  }
};

TrainingScale ScaleOf(const runlog::RunLog& log);

/// A loss in bits.
double BitsOf(double nats);

}  // namespace isoloss::compare
