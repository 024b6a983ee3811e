// Says how much was trained, on what, for how long: a verdict holds for this.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "isoloss/runlog/run_log.h"

namespace isoloss::compare {

/// The log of one run says this of it; an empty number is not told.
struct TrainingScale {
  int64_t tokens = 0;  ///< of all planned steps
  int64_t parameters = 0;
  /// Routed experts that a token does not choose do not count.
  std::optional<double> active_parameters;
  /// These are floating-point operations of all products, forward and backward.
  /// Each token takes 6 for each weight of a GEMM that it meets, and those of
  /// attention with half of the sequence.
  std::optional<double> flops;
  /// The schedule is a text: "warm-up to step 100, then falling to step 300".
  std::string schedule;
  /// Tokens are bytes. If they are not, bits are those of a token.
  bool of_bytes = false;
  /// Bits per token of the training share: entropy of tokens, entropy of a
  /// token given the previous one, and the size that a compressor makes of it.
  std::optional<double> unigram_bits;
  std::optional<double> bigram_bits;
  std::optional<double> deflated_bits;

  double TokensPerParameter() const {
    return static_cast<double>(tokens) / static_cast<double>(parameters);
  }
};

TrainingScale ScaleOf(const runlog::RunLog& log);

/// Converts a loss to bits.
double BitsOf(double nats);

}  // namespace isoloss::compare
