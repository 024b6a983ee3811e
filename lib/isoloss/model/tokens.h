// Defines the model's input: token spans, without their origin.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace isoloss::model {

/// A batch is flattened to T tokens in a row.
struct TokenBatch {
  std::span<const int32_t> tokens;  ///< [T], in [0, vocab)
  std::span<const int32_t>
      labels;  ///< [T], the target of token t; -100 = ignored
  std::span<const int32_t>
      positions;  ///< [T], restart at 0 with every document
  /// Documents end here: attention is causal inside one and never crosses its
  /// end.
  std::span<const size_t> document_ends;
  /// Sequences end here: they are the leaves of sums over tokens
  /// (docs/numerics.md).
  std::span<const size_t> sequence_ends;
};

}  // namespace isoloss::model
