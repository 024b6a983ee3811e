#include "isoloss/kernels/embedding.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>

#include "isoloss/kernels/row_tasks.h"

namespace isoloss::kernels {
namespace {

/// Adds `row` to `sum`, element by element.
void AddRow(const float* row, size_t size, float* sum) {
  for (size_t i = 0; i < size; ++i) sum[i] += row[i];
}

/// This tree over sequences adds the gradients of one token id.
struct SequenceTree {
  std::span<const size_t> sequence_ends;
  MatrixView<const float> dx;
  MatrixView<float> nodes;  // row l: the node computed last at depth l

  /// Computes the node above the leaves [first, first + width), width a power
  /// of two: nodes[depth] = sum over `positions`, which are ascending, not
  /// empty, and all in these sequences. Uses deeper rows as scratch.
  void ComputeNode(std::span<const size_t> positions, size_t first,
                   size_t width, size_t depth) const {
    float* sum = nodes.Row(depth);
    if (width == 1) {
      std::fill_n(sum, dx.cols(), 0.0f);
      for (const size_t position : positions) {
        AddRow(dx.Row(position), dx.cols(), sum);
      }
      return;
    }
    const size_t half = width / 2;
    const auto border =
        first + half <= sequence_ends.size()
            ? std::lower_bound(positions.begin(), positions.end(),
                               sequence_ends[first + half - 1])
            : positions.end();
    const auto left = static_cast<size_t>(border - positions.begin());
    if (left == 0) return ComputeNode(positions, first + half, half, depth);
    if (left == positions.size()) {
      return ComputeNode(positions, first, half, depth);
    }
    ComputeNode(positions.first(left), first, half, depth);
    ComputeNode(positions.subspan(left), first + half, half, depth + 1);
    AddRow(nodes.Row(depth + 1), dx.cols(), sum);
  }
};

}  // namespace

void GatherRows(MatrixView<const float> table, std::span<const int32_t> index,
                MatrixView<float> out, Executor& executor) {
  if (RanElsewhere(&GatherRows, table, index, out, executor)) return;
  ForEachRow(index.size(), executor, [&](size_t t) {
    std::memcpy(out.Row(t), table.Row(static_cast<size_t>(index[t])),
                table.cols() * sizeof(float));
  });
}

void PositionsOfIds::Group(std::span<const int32_t> tokens, size_t vocab) {
  // A counting sort is stable, so positions stay ascending within an id.
  begins_.assign(vocab + 1, 0);
  for (const int32_t id : tokens) ++begins_[static_cast<size_t>(id) + 1];
  std::partial_sum(begins_.begin(), begins_.end(), begins_.begin());
  next_.assign(begins_.begin(), begins_.end() - 1);
  positions_.resize(tokens.size());
  for (size_t t = 0; t < tokens.size(); ++t) {
    positions_[next_[static_cast<size_t>(tokens[t])]++] = t;
  }
}

void AddEmbeddingGradient(std::span<const int32_t> tokens,
                          std::span<const size_t> sequence_ends,
                          MatrixView<const float> dx, MatrixView<float> dtable,
                          Executor& executor) {
  if (RanElsewhere(&AddEmbeddingGradient, tokens, sequence_ends, dx, dtable,
                   executor))
    return;
  // This memory is kept from call to call, like all scratch of a training step.
  static thread_local PositionsOfIds kept_positions;
  static thread_local Matrix<float> kept_nodes;  // [levels of the tree, D]
  const size_t width = std::bit_ceil(sequence_ends.size());
  kept_positions.Group(tokens, dtable.rows());
  kept_nodes.ResizeUninitialized(std::bit_width(width), dx.cols());
  // These are of the calling thread, for all.
  const PositionsOfIds& positions = kept_positions;
  const MatrixView<float> nodes = kept_nodes.view();
  // Each thread takes columns, because a few ids may have most of the tokens.
  constexpr size_t kCacheLine = 64 / sizeof(float);
  ForRowRuns(dx.cols(), dx.rows(), kCacheLine, executor,
             [&](size_t first, size_t count) {
               const SequenceTree tree{sequence_ends, dx.Cols(first, count),
                                       nodes.Cols(first, count)};
               for (size_t id = 0; id < dtable.rows(); ++id) {
                 if (positions.Of(id).empty()) continue;
                 tree.ComputeNode(positions.Of(id), 0, width, 0);
                 AddRow(tree.nodes.Row(0), count, dtable.Row(id) + first);
               }
             });
}

}  // namespace isoloss::kernels
