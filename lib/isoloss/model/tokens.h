// What the model reads: token spans, nothing of where they came from.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace isoloss::model {

/// One batch, flattened to T tokens in a row.
struct TokenBatch {
  std::span<const int32_t> tokens;  ///< [T], in [0, vocab)
  std::span<const int32_t>
      labels;  ///< [T], the target of token t; -100 = ignored
  std::span<const int32_t>
      positions;  ///< [T], restart at 0 with every document
  /// Ends of the documents: attention is causal inside one and never crosses.
  std::span<const size_t> document_ends;
  /// Ends of the sequences: leaves of sums over tokens (docs/numerics.md).
  std::span<const size_t> sequence_ends;
};

}  // namespace isoloss::model
