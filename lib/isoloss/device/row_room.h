// Rows that a block reads once: it keeps copies of them in its shared memory,
// if they fit.
#pragma once

#include <cstddef>

#include "isoloss/base/matrix.h"
#include "isoloss/device/quads.h"
#include "isoloss/kernels/lanes.h"

namespace isoloss::device {

/// Holds copies of rows.
template <size_t kFloats_>
struct RowRoom {
  static constexpr size_t kFloats = kFloats_;

  alignas(kQuadBytes) float of[kFloats];

  /// Copies lie so far apart that the lanes of two rows, which are a warp, are
  /// in different banks.
  static constexpr size_t Apart(size_t cols) {
    return (CeilOf(cols, 2 * kernels::kLanes) * 2 + 1) * kernels::kLanes;
  }
  /// Returns how many rows fit if each has `copies`, at most `most`.
  static constexpr size_t RowsThatFit(size_t copies, size_t cols, size_t most) {
    const size_t rows = kFloats / (copies * Apart(cols));
    return rows < most ? rows : most;
  }
};

/// Rows [first, first + count) are a block's.
struct BlockRows {
  size_t first;
  size_t count;
};

/// Returns the rows of a block that has at most `most` of `rows`.
constexpr BlockRows BlockRowsOf(size_t block, size_t rows, size_t most) {
  const size_t first = block * most;
  const size_t left = rows - first;
  return {first, left < most ? left : most};
}

/// A matrix whose rows of a block may be in the block's room.
struct KeptRows {
  MatrixView<const float> matrix;
  BlockRows rows;
  float* room;  ///< null: they stay where they are
  size_t apart;

  /// Returns a row of the block.
  constexpr const float* Row(size_t row) const {
    return room == nullptr ? matrix.Row(row)
                           : room + (row - rows.first) * apart;
  }
};

/// Begins a thread's copies of a row into its room.
template <size_t kThreads, typename Block>
constexpr void KeepRow(Block& block, size_t thread, const float* from,
                       size_t cols, bool has_quads, float* room) {
  const auto to = block.AddressOf(room);
  ForEachPart<kThreads>(thread, cols, has_quads,
                        [&block, from, to](size_t i, auto width) {
                          block.template Copy<decltype(width)::value>(
                              from + i, to + static_cast<uint32_t>(i));
                        });
}

/// Keeps a block's rows of some matrices.
template <size_t kThreads, typename Block, typename... Rows>
constexpr void KeepRows(Block& block, bool has_quads, const Rows&... kept) {
  const auto keep = [&block, has_quads](size_t thread, const KeptRows& of) {
    for (size_t i = 0; i < of.rows.count && of.room != nullptr; ++i) {
      KeepRow<kThreads>(block, thread, of.matrix.Row(of.rows.first + i),
                        of.matrix.cols(), has_quads, of.room + i * of.apart);
    }
  };
  block.Each([&block, &keep, &kept...](size_t thread) {
    (keep(thread, kept), ...);
    block.CommitCopies();
    block.template AwaitCopies<0>();
  });
}

}  // namespace isoloss::device
