// Token embedding reads rows of a table; its backward pass computes the
// gradient of that table.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "isoloss/base/executor.h"
#include "isoloss/base/matrix.h"

namespace isoloss::kernels {

/// out[t] = table[index[t]].
/// Shapes   table [V, D]; index [T], each in [0, V); out [T, D].
void GatherRows(MatrixView<const float> table, std::span<const int32_t> index,
                MatrixView<float> out, Executor& executor);

/// Adds up the gradient of an embedding table. Memory is reused.
class EmbeddingGradient {
 public:
  /// For each token id that occurs, dtable[id] += the sum of dx over its
  /// positions, FP32: in a leaf (one sequence) a chain in ascending position;
  /// leaves go up the aligned tree over the sequence index, in which sequences
  /// without the id are skipped. Remaining rows are left alone.
  /// Shapes   dx [T, D]; tokens [T]; dtable [V, D].
  void Add(std::span<const int32_t> tokens,
           std::span<const size_t> sequence_ends, MatrixView<const float> dx,
           MatrixView<float> dtable, Executor& executor);

 private:
  void GroupPositions(std::span<const int32_t> tokens, size_t vocab);

  std::vector<size_t> id_begins_;  // id i occurs at positions_[begins[i] …)
  std::vector<size_t> next_;
  std::vector<size_t> positions_;  // grouped by id, ascending in a group
  Matrix<float> nodes_;            // [levels of the tree, D]
};

}  // namespace isoloss::kernels
