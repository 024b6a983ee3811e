#include "isoloss/model/embedding.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>

#include "isoloss/kernels/row_tasks.h"

namespace isoloss::model {
namespace {

/// sum += row, element by element.
void AddRow(const float* row, std::vector<float>& sum) {
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += row[i];
}

/// The tree over sequences for one token id.
struct SequenceTree {
  std::span<const size_t> sequence_ends;
  MatrixView<const float> dx;

  /// Sum over `positions` (ascending, not empty), all in sequences [first,
  /// first + width), width a power of two: the node above those leaves.
  std::vector<float> Node(std::span<const size_t> positions, size_t first,
                          size_t width) const {
    if (width == 1) {
      std::vector<float> sum(dx.cols(), 0.0f);
      for (const size_t position : positions) AddRow(dx.Row(position), sum);
      return sum;
    }
    const size_t half = width / 2;
    const auto border =
        first + half <= sequence_ends.size()
            ? std::lower_bound(positions.begin(), positions.end(),
                               sequence_ends[first + half - 1])
            : positions.end();
    const auto left = static_cast<size_t>(border - positions.begin());
    if (left == 0) return Node(positions, first + half, half);
    if (left == positions.size()) return Node(positions, first, half);
    std::vector<float> sum = Node(positions.first(left), first, half);
    AddRow(Node(positions.subspan(left), first + half, half).data(), sum);
    return sum;
  }
};

}  // namespace

void GatherEmbedding(MatrixView<const float> table,
                     std::span<const int32_t> tokens, MatrixView<float> out,
                     ThreadTeam& team) {
  kernels::ForEachRow(tokens.size(), team, [&](size_t t) {
    std::memcpy(out.Row(t), table.Row(static_cast<size_t>(tokens[t])),
                table.cols() * sizeof(float));
  });
}

void EmbeddingGradient::GroupPositions(std::span<const int32_t> tokens,
                                       size_t vocab) {
  // A counting sort is stable, so positions stay ascending within an id.
  id_begins_.assign(vocab + 1, 0);
  for (const int32_t id : tokens) ++id_begins_[static_cast<size_t>(id) + 1];
  std::partial_sum(id_begins_.begin(), id_begins_.end(), id_begins_.begin());
  next_.assign(id_begins_.begin(), id_begins_.end() - 1);
  positions_.resize(tokens.size());
  for (size_t t = 0; t < tokens.size(); ++t) {
    positions_[next_[static_cast<size_t>(tokens[t])]++] = t;
  }
}

void EmbeddingGradient::Add(std::span<const int32_t> tokens,
                            std::span<const size_t> sequence_ends,
                            MatrixView<const float> dx,
                            MatrixView<float> dtable, ThreadTeam& team) {
  GroupPositions(tokens, dtable.rows());
  const SequenceTree tree{sequence_ends, dx};
  const size_t width = std::bit_ceil(sequence_ends.size());
  kernels::ForEachRow(dtable.rows(), team, [&](size_t id) {
    const size_t begin = id_begins_[id];
    const size_t count = id_begins_[id + 1] - begin;
    if (count == 0) return;
    const auto sum =
        tree.Node(std::span(positions_).subspan(begin, count), 0, width);
    for (size_t i = 0; i < sum.size(); ++i) dtable(id, i) += sum[i];
  });
}

}  // namespace isoloss::model
