// Defines the model's input: token spans, without their origin.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "isoloss/kernels/rowwise.h"

namespace isoloss::model {

/// Returns how many labels are not ignored.
inline int64_t CountedLabels(std::span<const int32_t> labels) {
  return std::ranges::count_if(
      labels, [](int32_t label) { return label != kernels::kIgnoredLabel; });
}

/// A batch, or a share of one, is flattened to T tokens in a row.
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
  /// Counts the labels of the whole batch that are not ignored, over all
  /// processes; 0: this is the process's whole part, and they are counted.
  size_t counted_labels = 0;
};

}  // namespace isoloss::model
