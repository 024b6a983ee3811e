// Kernels that sum along rows: 16 threads a row are the 16 logical lanes of
// kernels/rowwise.h.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "isoloss/base/matrix.h"
#include "isoloss/device/element_kernels.h"
#include "isoloss/device/kernel.h"
#include "isoloss/device/quads.h"
#include "isoloss/device/row_room.h"
#include "isoloss/kernels/elements.h"
#include "isoloss/kernels/lanes.h"
#include "isoloss/kernels/rowwise.h"

namespace isoloss::device {

using kernels::kLanes;

inline constexpr size_t kRowsOfBlock = 8;
inline constexpr size_t kRowThreads = kRowsOfBlock * kLanes;

/// The threads of a block that has kRowsOfBlock rows share this.
struct SharedRows {
  float lanes[kRowsOfBlock][kLanes];
  float first[kRowsOfBlock];
  float second[kRowsOfBlock];
};

/// Where a thread of such a block works.
struct RowPlace {
  size_t local;
  size_t lane;
  size_t row;
};

template <typename Block>
constexpr RowPlace RowPlaceOf(const Block& block, size_t thread) {
  const size_t local = thread / kLanes;
  return {local, thread % kLanes, block.index() * kRowsOfBlock + local};
}

/// Base of kernels whose blocks have kRowsOfBlock rows.
struct RowKernel {
  static constexpr size_t kThreads = kRowThreads;
  using Shared = SharedRows;
};

/// Calls use(row, local, result) for each row of the block. The result is
/// fold(lanes) of the row's lanes, which of_lane(row, lane) gives.
template <typename Block, typename Lane, typename Fold, typename Use>
constexpr void ReduceRows(Block& block, const BlockRows& rows,
                          const Lane& of_lane, const Fold& fold,
                          const Use& use) {
  block.Each([&block, &rows, &of_lane](size_t thread) {
    const size_t local = thread / kLanes;
    const size_t lane = thread % kLanes;
    if (local >= rows.count) return;
    block.shared().lanes[local][lane] = of_lane(rows.first + local, lane);
  });
  block.Each([&block, &rows, &fold, &use](size_t thread) {
    const size_t local = thread / kLanes;
    if (local >= rows.count || thread % kLanes != 0) return;
    use(rows.first + local, local, fold(block.shared().lanes[local]));
  });
}

/// Reduces rows by the tree over their lanes.
template <typename Block, typename Lane, typename Use>
constexpr void FoldRows(Block& block, const BlockRows& rows,
                        const Lane& lane_sum, const Use& use) {
  ReduceRows(
      block, rows, lane_sum,
      [](auto* lanes) { return kernels::FoldLanes(lanes); }, use);
}

template <typename Block, typename Lane, typename Use>
constexpr void FoldRows(Block& block, size_t rows, const Lane& lane_sum,
                        const Use& use) {
  FoldRows(block, BlockRowsOf(block.index(), rows, kRowsOfBlock), lane_sum,
           use);
}

/// Base of kernels whose blocks keep their rows.
struct KeptRowKernel {
  static constexpr size_t kThreads = kRowThreads;
  /// An H100's processor has room for ten such blocks.
  using Room = RowRoom<5120>;
  struct Shared : SharedRows {
    Room room;
  };

  bool has_quads;  ///< all rows consist of quads

  static constexpr size_t RowsOfBlock(size_t cols) {
    const size_t rows = Room::RowsThatFit(1, cols, kRowsOfBlock);
    return rows == 0 ? kRowsOfBlock : rows;
  }
  /// Returns the room of a block's rows, or null if not one fits.
  template <typename Block>
  static constexpr float* RoomOf(Block& block, size_t cols) {
    return Room::RowsThatFit(1, cols, 1) > 0 ? block.shared().room.of : nullptr;
  }
  template <typename Block>
  static constexpr KeptRows RowsOf(Block& block, const Input& matrix) {
    const size_t cols = matrix.cols();
    return {matrix,
            BlockRowsOf(block.index(), matrix.rows(), RowsOfBlock(cols)),
            RoomOf(block, cols), Room::Apart(cols)};
  }
};

struct RmsNormForwardRows : KeptRowKernel {
  Input x;
  const float* weight;
  float eps;
  Rounding rounding;
  Output y;
  float* rstd;

  size_t blocks() const { return CeilOf(x.rows(), RowsOfBlock(x.cols())); }
  template <typename Block>
  constexpr void operator()(Block& block) const {
    const size_t d = x.cols();
    const KeptRows kept = RowsOf(block, x);
    KeepRows<kThreads>(block, has_quads, kept);
    FoldRows(
        block, kept.rows,
        [&kept, d](size_t row, size_t lane) {
          const auto of = [values = kept.Row(row)](size_t i) {
            return values[i];
          };
          return kernels::SumOfLane<float>(lane, d, of, of);
        },
        [this, d, &block](size_t row, size_t local, float sum) {
          const float r = kernels::Rsqrt(sum / static_cast<float>(d) + eps);
          block.shared().first[local] = r;
          rstd[row] = r;
        });
    block.Each([this, d, &kept, &block](size_t thread) {
      for (size_t local = 0; local < kept.rows.count; ++local) {
        const size_t row = kept.rows.first + local;
        const float r = block.shared().first[local];
        ForEachPart<kThreads>(thread, d, has_quads,
                              [this, &kept, row, r](size_t i, auto width) {
                                float values[decltype(width)::value];
                                float gains[decltype(width)::value];
                                LoadPart(kept.Row(row) + i, values);
                                LoadPart(weight + i, gains);
                                ISOLOSS_UNROLL
                                for (size_t k = 0; k < width; ++k) {
                                  values[k] = (values[k] * r) * gains[k];
                                }
                                RoundAll(rounding, values);
                                StorePart(values, y.Row(row) + i);
                              });
      }
    });
  }
};

/// A block has a leaf of tokens, some rows after others. Gradients of the gain
/// come before dx, which may be dy.
struct RmsNormBackwardLeaves {
  static constexpr size_t kThreads = 512;
  static constexpr size_t kRows = kThreads / kLanes;
  using Room = RowRoom<20480>;
  struct Shared {
    float lanes[kRows][kLanes];
    float first[kRows];
    Room room;
  };

  bool has_quads;  ///< all rows consist of quads
  Input x;
  const float* weight;
  const float* rstd;
  Input dy;
  Rounding rounding;
  bool add;
  Output dx;
  Output leaves;  ///< [leaves, D]: parts of the gain's gradient

  size_t blocks() const { return leaves.rows(); }
  template <typename Block>
  constexpr void operator()(Block& block) const {
    const size_t d = x.cols();
    const BlockRows leaf =
        BlockRowsOf(block.index(), x.rows(), kernels::kTokenLeaf);
    const size_t fit = Room::RowsThatFit(2, d, kRows);
    const size_t most = fit == 0 ? kRows : fit;
    for (size_t done = 0; done < leaf.count; done += most) {
      const size_t left = leaf.count - done;
      const BlockRows rows = {leaf.first + done, left < most ? left : most};
      float* const room = fit == 0 ? nullptr : block.shared().room.of;
      const size_t apart = Room::Apart(d);
      const KeptRows of_x = {x, rows, room, apart};
      const KeptRows of_dy = {dy, rows, fit == 0 ? nullptr : room + fit * apart,
                              apart};
      KeepRows<kThreads>(block, has_quads, of_x, of_dy);
      FoldRows(
          block, rows,
          [this, &of_x, &of_dy, d](size_t row, size_t lane) {
            return kernels::SumOfLane<float>(
                lane, d,
                [this, values = of_dy.Row(row)](size_t i) {
                  return values[i] * weight[i];
                },
                [values = of_x.Row(row)](size_t i) { return values[i]; });
          },
          [this, d, &block](size_t row, size_t local, float sum) {
            const float r = rstd[row];
            block.shared().first[local] =
                ((r * r) / static_cast<float>(d)) * sum;
          });
      block.Each([this, d, done, &of_x, &of_dy, &block](size_t thread) {
        ForEachPart<kThreads>(
            thread, d, has_quads,
            [this, done, &of_x, &of_dy, &block](size_t i, auto width) {
              AddRows<decltype(width)::value>(of_x, of_dy, block.shared().first,
                                              i, done == 0,
                                              leaves.Row(block.index()) + i);
            });
      });
    }
  }

 private:
  /// Writes dx of some columns of the rows, and adds the rows to the columns'
  /// gradients of the gain.
  template <size_t kWidth>
  constexpr void AddRows(const KeptRows& of_x, const KeptRows& of_dy,
                         const float* factors, size_t col, bool is_first,
                         float* leaf) const {
    float sums[kWidth] = {};
    float gains[kWidth];
    if (!is_first) LoadPart(leaf, sums);
    LoadPart(weight + col, gains);
    for (size_t local = 0; local < of_x.rows.count; ++local) {
      const size_t row = of_x.rows.first + local;
      const float r = rstd[row];
      float values[kWidth];
      float gradients[kWidth];
      float results[kWidth];
      LoadPart(of_x.Row(row) + col, values);
      LoadPart(of_dy.Row(row) + col, gradients);
      ISOLOSS_UNROLL
      for (size_t k = 0; k < kWidth; ++k) {
        sums[k] = std::fma(gradients[k] * values[k], r, sums[k]);
        results[k] =
            kernels::NormGradientOf(r, factors[local], values[k],
                                    gradients[k] * gains[k], Rounding::kFp32);
      }
      RoundAll(rounding, results);
      if (add) {
        float before[kWidth];
        LoadPart(dx.Row(row) + col, before);
        ISOLOSS_UNROLL
        for (size_t k = 0; k < kWidth; ++k) results[k] = before[k] + results[k];
        RoundAll(rounding, results);
      }
      StorePart(results, dx.Row(row) + col);
    }
    StorePart(sums, leaf);
  }
};

/// A row is a slot of a token.
struct CombineBackwardRows : RowKernel {
  Input rows;
  MatrixView<const int32_t> index;
  Input weights;
  Input dout;
  Rounding rounding;
  Output drows;
  Output dweights;

  size_t blocks() const {
    return CeilOf(index.rows() * index.cols(), kRowsOfBlock);
  }
  template <typename Block>
  constexpr void operator()(Block& block) const {
    const size_t d = dout.cols();
    const size_t slots = index.rows() * index.cols();
    FoldRows(
        block, slots,
        [this, d](size_t number, size_t lane) {
          const auto [t, k] = PlaceOf(number, index.cols());
          const auto of = [values = dout.Row(t)](size_t i) {
            return values[i];
          };
          const auto row = [values = rows.Row(static_cast<size_t>(
                                index(t, k)))](size_t i) { return values[i]; };
          return kernels::SumOfLane<float>(lane, d, of, row);
        },
        [this](size_t number, size_t, float sum) {
          const auto [t, k] = PlaceOf(number, index.cols());
          dweights(t, k) = sum;
        });
    block.Each([this, d, slots, &block](size_t thread) {
      const auto [local, lane, number] = RowPlaceOf(block, thread);
      if (number >= slots) return;
      const auto [t, k] = PlaceOf(number, index.cols());
      const auto r = static_cast<size_t>(index(t, k));
      for (size_t j = lane; j < d; j += kLanes) {
        drows(r, j) = kernels::Rounded(
            std::fma(weights(t, k), dout(t, j), 0.0f), rounding);
      }
    });
  }
};

}  // namespace isoloss::device
