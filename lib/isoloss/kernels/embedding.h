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

/// For each token id that occurs, dtable[id] += the sum of dx over its
/// positions, FP32: in a leaf (one sequence) a chain in ascending position;
/// leaves go up the aligned tree over the sequence index, in which sequences
/// without the id are skipped. Remaining rows are left alone.
/// Shapes   dx [T, D]; tokens [T]; dtable [V, D].
void AddEmbeddingGradient(std::span<const int32_t> tokens,
                          std::span<const size_t> sequence_ends,
                          MatrixView<const float> dx, MatrixView<float> dtable,
                          Executor& executor);

/// Holds the positions of a batch, grouped by token id and ascending within a
/// group. Memory is reused.
class PositionsOfIds {
 public:
  void Group(std::span<const int32_t> tokens, size_t vocab);

  std::span<const size_t> Of(size_t id) const {
    return std::span(positions_).first(begins_[id + 1]).subspan(begins_[id]);
  }
  std::span<const size_t> all() const { return positions_; }
  /// Returns where the positions of each id begin, [V + 1].
  std::span<const size_t> begins() const { return begins_; }

 private:
  std::vector<size_t> begins_;
  std::vector<size_t> next_;
  std::vector<size_t> positions_;
};

}  // namespace isoloss::kernels
