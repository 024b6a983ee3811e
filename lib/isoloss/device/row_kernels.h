// Kernels that sum along rows: 16 threads a row are the 16 logical lanes of
// kernels/rowwise.h.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "isoloss/base/matrix.h"
#include "isoloss/device/element_kernels.h"
#include "isoloss/device/kernel.h"
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

/// Calls use(row, local, sum) for each row of the block. The sum is the tree
/// over the row's lanes, which lane_sum(row, lane) gives.
template <typename Block, typename Lane, typename Use>
constexpr void FoldRows(Block& block, size_t rows, const Lane& lane_sum,
                        const Use& use) {
  block.Each([&block, rows, &lane_sum](size_t thread) {
    const auto [local, lane, row] = RowPlaceOf(block, thread);
    if (row < rows) block.shared().lanes[local][lane] = lane_sum(row, lane);
  });
  block.Each([&block, rows, &use](size_t thread) {
    const auto [local, lane, row] = RowPlaceOf(block, thread);
    if (row >= rows || lane != 0) return;
    use(row, local, kernels::FoldLanes(block.shared().lanes[local]));
  });
}

struct RmsNormForwardRows : RowKernel {
  Input x;
  const float* weight;
  float eps;
  Rounding rounding;
  Output y;
  float* rstd;

  size_t blocks() const { return CeilOf(x.rows(), kRowsOfBlock); }
  template <typename Block>
  constexpr void operator()(Block& block) const {
    const size_t d = x.cols();
    FoldRows(
        block, x.rows(),
        [this, d](size_t row, size_t lane) {
          const auto of = [values = x.Row(row)](size_t i) { return values[i]; };
          return kernels::SumOfLane<float>(lane, d, of, of);
        },
        [this, d, &block](size_t row, size_t local, float sum) {
          const float r = kernels::Rsqrt(sum / static_cast<float>(d) + eps);
          block.shared().first[local] = r;
          rstd[row] = r;
        });
    block.Each([this, d, &block](size_t thread) {
      const auto [local, lane, row] = RowPlaceOf(block, thread);
      if (row >= x.rows()) return;
      const float r = block.shared().first[local];
      for (size_t i = lane; i < d; i += kLanes) {
        y(row, i) = kernels::Rounded((x(row, i) * r) * weight[i], rounding);
      }
    });
  }
};

struct RmsNormBackwardRows : RowKernel {
  Input x;
  const float* weight;
  const float* rstd;
  Input dy;
  Rounding rounding;
  bool add;
  Output dx;

  size_t blocks() const { return CeilOf(x.rows(), kRowsOfBlock); }
  template <typename Block>
  constexpr void operator()(Block& block) const {
    const size_t d = x.cols();
    FoldRows(
        block, x.rows(),
        [this, d](size_t row, size_t lane) {
          return kernels::SumOfLane<float>(
              lane, d, [this, row](size_t i) { return dy(row, i) * weight[i]; },
              [this, row](size_t i) { return x(row, i); });
        },
        [this, d, &block](size_t row, size_t local, float sum) {
          const float r = rstd[row];
          block.shared().first[local] = ((r * r) / static_cast<float>(d)) * sum;
        });
    block.Each([this, d, &block](size_t thread) {
      const auto [local, lane, row] = RowPlaceOf(block, thread);
      if (row >= x.rows()) return;
      for (size_t i = lane; i < d; i += kLanes) {
        const float dx_i = kernels::NormGradientOf(
            rstd[row], block.shared().first[local], x(row, i),
            dy(row, i) * weight[i], rounding);
        dx(row, i) = add ? kernels::Rounded(dx(row, i) + dx_i, rounding) : dx_i;
      }
    });
  }
};

/// A softmax reads `length` numbers of a row and writes `width` of them.
struct SoftmaxRow {
  const float* x;
  float* p;
  size_t length;
  size_t width;
};

/// Writes softmax(scale * x) of each row; `Rows` says which they are.
template <typename Rows>
struct SoftmaxForwardRows : RowKernel {
  Rows rows;
  float scale;

  size_t blocks() const { return CeilOf(rows.count(), kRowsOfBlock); }
  template <typename Block>
  constexpr void operator()(Block& block) const {
    block.Each([this, &block](size_t thread) {
      const auto [local, lane, number] = RowPlaceOf(block, thread);
      if (number >= rows.count()) return;
      const SoftmaxRow row = rows.Of(number);
      float largest = -std::numeric_limits<float>::infinity();
      for (size_t i = lane; i < row.length; i += kLanes) {
        largest = kernels::Larger(largest, row.x[i]);
      }
      block.shared().lanes[local][lane] = largest;
    });
    block.Each([this, &block](size_t thread) {
      const auto [local, lane, number] = RowPlaceOf(block, thread);
      if (number >= rows.count() || lane != 0) return;
      float largest = block.shared().lanes[local][0];
      for (size_t i = 1; i < kLanes; ++i) {
        largest = kernels::Larger(largest, block.shared().lanes[local][i]);
      }
      block.shared().first[local] = largest;
    });
    FoldRows(
        block, rows.count(),
        [this, &block](size_t number, size_t lane) {
          const SoftmaxRow row = rows.Of(number);
          const float largest = block.shared().first[number % kRowsOfBlock];
          for (size_t i = lane; i < row.length; i += kLanes) {
            row.p[i] = kernels::Exp((row.x[i] - largest) * scale);
          }
          return kernels::SumOfLane<float>(
              lane, row.length, [row](size_t i) { return row.p[i]; },
              [](size_t) { return 1.0f; });
        },
        [&block](size_t, size_t local, float sum) {
          block.shared().second[local] = 1.0f / sum;
        });
    block.Each([this, &block](size_t thread) {
      const auto [local, lane, number] = RowPlaceOf(block, thread);
      if (number >= rows.count()) return;
      const SoftmaxRow row = rows.Of(number);
      for (size_t i = lane; i < row.width; i += kLanes) {
        row.p[i] =
            i < row.length ? row.p[i] * block.shared().second[local] : 0.0f;
      }
    });
  }
};

struct PlainSoftmaxRows {
  Input x;
  Output out;

  constexpr size_t count() const { return x.rows(); }
  constexpr SoftmaxRow Of(size_t row) const {
    return {x.Row(row), out.Row(row), x.cols(), x.cols()};
  }
};

/// A causal block's queries in a list of all blocks' queries.
struct CausalRows {
  const kernels::CausalBlock* blocks;
  const size_t* ends;  ///< of each block's queries in the list
  size_t block_count;
  size_t total;

  constexpr size_t count() const { return total; }
  /// Returns the block of a query, and the query's place in it.
  constexpr Place BlockOf(size_t number) const {
    size_t first = 0;
    size_t last = block_count - 1;
    while (first < last) {
      const size_t middle = (first + last) / 2;
      if (number < ends[middle]) {
        last = middle;
      } else {
        first = middle + 1;
      }
    }
    return {first, number - (first == 0 ? 0 : ends[first - 1])};
  }
  constexpr size_t LengthOf(const kernels::CausalBlock& block,
                            size_t row) const {
    const size_t length = block.first_length + row;
    return length < block.p.cols() ? length : block.p.cols();
  }
  constexpr SoftmaxRow Of(size_t number) const {
    const auto [block, row] = BlockOf(number);
    const kernels::CausalBlock& of = blocks[block];
    return {of.p.Row(row), of.p.Row(row), LengthOf(of, row), of.p.cols()};
  }
};

struct CausalSoftmaxBackwardRows : RowKernel {
  CausalRows rows;
  float scale;

  size_t blocks() const { return CeilOf(rows.count(), kRowsOfBlock); }
  template <typename Block>
  constexpr void operator()(Block& block) const {
    FoldRows(
        block, rows.count(),
        [this](size_t number, size_t lane) {
          const auto [place, row] = rows.BlockOf(number);
          const kernels::CausalBlock& of = rows.blocks[place];
          const auto dp = [values = of.dp.Row(row)](size_t i) {
            return values[i];
          };
          const auto read = [values = of.read.Row(row)](size_t i) {
            return values[i];
          };
          return kernels::SumOfLane<float>(lane, rows.LengthOf(of, row), dp,
                                           read);
        },
        [&block](size_t, size_t local, float sum) {
          block.shared().first[local] = sum;
        });
    block.Each([this, &block](size_t thread) {
      const auto [local, lane, number] = RowPlaceOf(block, thread);
      if (number >= rows.count()) return;
      const auto [place, row] = rows.BlockOf(number);
      const kernels::CausalBlock& of = rows.blocks[place];
      const size_t length = rows.LengthOf(of, row);
      const float mean = block.shared().first[local];
      for (size_t j = lane; j < of.p.cols(); j += kLanes) {
        of.dp(row, j) =
            j < length ? scale * (of.p(row, j) * (of.dp(row, j) - mean)) : 0.0f;
      }
    });
  }
};

struct CrossEntropyRows : RowKernel {
  Input logits;
  const int32_t* labels;
  float grad_scale;
  Rounding rounding;
  float* loss;
  Output dlogits;  ///< may be empty

  size_t blocks() const { return CeilOf(logits.rows(), kRowsOfBlock); }
  template <typename Block>
  constexpr void operator()(Block& block) const {
    const size_t v = logits.cols();
    block.Each([this, v, &block](size_t thread) {
      const auto [local, lane, row] = RowPlaceOf(block, thread);
      if (row >= logits.rows()) return;
      float largest = -std::numeric_limits<float>::infinity();
      for (size_t j = lane; j < v; j += kLanes) {
        largest = kernels::Larger(largest, logits(row, j));
      }
      block.shared().lanes[local][lane] = largest;
    });
    block.Each([this, &block](size_t thread) {
      const auto [local, lane, row] = RowPlaceOf(block, thread);
      if (row >= logits.rows() || lane != 0) return;
      float largest = block.shared().lanes[local][0];
      for (size_t i = 1; i < kLanes; ++i) {
        largest = kernels::Larger(largest, block.shared().lanes[local][i]);
      }
      block.shared().first[local] = largest;
    });
    FoldRows(
        block, logits.rows(),
        [this, v, &block](size_t row, size_t lane) {
          const float largest = block.shared().first[row % kRowsOfBlock];
          return kernels::SumOfLane<float>(
              lane, v,
              [this, row, largest](size_t j) {
                return kernels::Exp((logits(row, j) - largest) * 1.0f);
              },
              [](size_t) { return 1.0f; });
        },
        [this, &block](size_t row, size_t local, float sum) {
          const int32_t label = labels[row];
          loss[row] = label == kernels::kIgnoredLabel
                          ? 0.0f
                          : kernels::Log(sum) +
                                (block.shared().first[local] -
                                 logits(row, static_cast<size_t>(label)));
          block.shared().second[local] = grad_scale / sum;
        });
    if (dlogits.empty()) return;
    block.Each([this, v, &block](size_t thread) {
      const auto [local, lane, row] = RowPlaceOf(block, thread);
      if (row >= logits.rows()) return;
      const int32_t label = labels[row];
      const bool ignored = label == kernels::kIgnoredLabel;
      const float largest = block.shared().first[local];
      const float scale = block.shared().second[local];
      for (size_t j = lane; j < v; j += kLanes) {
        dlogits(row, j) =
            ignored
                ? 0.0f
                : kernels::LogitGradientOf(
                      kernels::Exp((logits(row, j) - largest) * 1.0f), scale,
                      grad_scale, j == static_cast<size_t>(label), rounding);
      }
    });
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
