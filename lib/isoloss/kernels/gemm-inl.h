// The vector GEMM of one Highway target: register tiles, segments, blocking.
#if defined(ISOLOSS_KERNELS_GEMM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISOLOSS_KERNELS_GEMM_INL_H_
#undef ISOLOSS_KERNELS_GEMM_INL_H_
#else
#define ISOLOSS_KERNELS_GEMM_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <span>
#include <utility>

#include "isoloss/base/matrix.h"
#include "isoloss/kernels/bf16-inl.h"
#include "isoloss/kernels/gemm.h"
#include "isoloss/kernels/gemm_scalar.h"
#include "isoloss/kernels/pack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isoloss::kernels::HWY_NAMESPACE {

/// A register tile: kTileRows rows of a by two vectors of rows of b, all of
/// them accumulators. 14x2 of 32 registers, or 6x2 of 16.
constexpr size_t kTileVectors = 2;
constexpr size_t kTileColumns = kTileVectors * kLanes;
constexpr size_t kTileRows = kLanes == 16 ? 14 : kLanes == 8 ? 6 : 8;
constexpr size_t kTileSize = kTileRows * kTileColumns;
/// Distance of successive k in a panel of a, whole vectors.
constexpr size_t kRowStride = (kTileRows + kLanes - 1) / kLanes * kLanes;

/// Panels of a packed at a time: half of a 1 MB L2.
constexpr size_t kStripBytes = 512 << 10;
/// Panels of b kept while several strips of a pass: a share of L3.
constexpr size_t kColumnBlockBytes = 4 << 20;

/// Where a tile goes.
struct TileOutput {
  float* data;
  size_t stride;
  size_t columns;  ///< at most kTileColumns
  Rounding rounding;
};

HWY_INLINE void StoreVector(VecF value, const TileOutput& out, size_t row,
                            size_t vector) {
  const F32 d;
  if (out.rounding == Rounding::kBf16) value = RoundToBf16(d, value);
  float* to = out.data + row * out.stride + vector * kLanes;
  const size_t left = out.columns - vector * kLanes;
  if (left >= kLanes) {
    hn::StoreU(value, d, to);
  } else {
    StorePartial(value, to, left);
  }
}

/// out[i, j] = sum over k in [0, depth) of a[k][i] * b[k][j]: one ascending
/// chain of fused multiply-adds per element, from +0.
template <size_t kRows, size_t kVectors>
void MultiplyTile(const float* HWY_RESTRICT a, const float* HWY_RESTRICT b,
                  size_t depth, const TileOutput& out) {
  const F32 d;
  VecF acc[kRows][kVectors];
  HWY_UNROLL(14)
  for (size_t i = 0; i < kRows; ++i) {
    HWY_UNROLL(2)
    for (size_t j = 0; j < kVectors; ++j) acc[i][j] = hn::Zero(d);
  }
  for (size_t k = 0; k < depth; ++k) {
    VecF right[kVectors];
    HWY_UNROLL(2)
    for (size_t j = 0; j < kVectors; ++j) {
      right[j] = hn::Load(d, b + j * kLanes);
    }
    HWY_UNROLL(14)
    for (size_t i = 0; i < kRows; ++i) {
      const VecF left = hn::Set(d, a[i]);
      HWY_UNROLL(2)
      for (size_t j = 0; j < kVectors; ++j) {
        acc[i][j] = hn::MulAdd(left, right[j], acc[i][j]);
      }
    }
    a += kRowStride;
    b += kTileColumns;
  }
  HWY_UNROLL(14)
  for (size_t i = 0; i < kRows; ++i) {
    HWY_UNROLL(2)
    for (size_t j = 0; j < kVectors; ++j) StoreVector(acc[i][j], out, i, j);
  }
}

using TileKernel = void (*)(const float*, const float*, size_t,
                            const TileOutput&);

template <size_t kVectors, typename Rows>
struct TileKernels;
/// kByRows[n - 1] multiplies a tile of n rows.
template <size_t kVectors, size_t... kRows>
struct TileKernels<kVectors, std::index_sequence<kRows...>> {
  static constexpr TileKernel kByRows[] = {
      &MultiplyTile<kRows + 1, kVectors>...};
};

HWY_INLINE TileKernel KernelFor(size_t rows, size_t columns) {
  using Rows = std::make_index_sequence<kTileRows>;
  return columns > kLanes ? TileKernels<2, Rows>::kByRows[rows - 1]
                          : TileKernels<1, Rows>::kByRows[rows - 1];
}

/// A tile of several segments: their sums go up the aligned tree, as in
/// AlignedTree, on a stack of tiles in `tiles`.
inline void MultiplySegments(const float* a, const float* b, size_t rows,
                             std::span<const size_t> segment_ends,
                             const TileOutput& out, float* tiles) {
  const F32 d;
  const TileKernel kernel = KernelFor(rows, out.columns);
  const size_t vectors = (out.columns + kLanes - 1) / kLanes;
  size_t open = 0;
  const auto fold = [&]() HWY_ATTR {
    --open;
    float* left = tiles + (open - 1) * kTileSize;
    const float* right = tiles + open * kTileSize;
    for (size_t i = 0; i < rows * kTileVectors; ++i) {
      if (i % kTileVectors >= vectors) continue;
      float* to = left + i * kLanes;
      hn::Store(hn::Add(hn::Load(d, to), hn::Load(d, right + i * kLanes)), d,
                to);
    }
  };

  size_t begin = 0;
  for (size_t segment = 0; segment < segment_ends.size(); ++segment) {
    const size_t end = segment_ends[segment];
    kernel(a + begin * kRowStride, b + begin * kTileColumns, end - begin,
           {tiles + open * kTileSize, kTileColumns, vectors * kLanes,
            Rounding::kFp32});
    begin = end;
    ++open;
    for (int n = std::countr_zero(segment + 1); n > 0; --n) fold();
  }
  while (open > 1) fold();

  for (size_t i = 0; i < rows; ++i) {
    for (size_t j = 0; j < vectors; ++j) {
      StoreVector(hn::Load(d, tiles + i * kTileColumns + j * kLanes), out, i,
                  j);
    }
  }
}

/// Rows cut into tiles of equal height, give or take one row.
class RowTiles {
 public:
  explicit RowTiles(size_t rows)
      : count_((rows + kTileRows - 1) / kTileRows),
        height_(rows / count_),
        taller_(rows % count_) {}

  size_t count() const { return count_; }
  size_t First(size_t tile) const {
    return tile * height_ + std::min(tile, taller_);
  }
  size_t Rows(size_t tile) const { return height_ + (tile < taller_ ? 1 : 0); }

 private:
  size_t count_;
  size_t height_;
  size_t taller_;
};

/// One product on one thread. Holds the scratch memory of the thread.
class GemmWorker {
 public:
  void Run(const GemmProblem& problem) {
    if (problem.c.empty()) return;
    size_t whole = 0;
    const std::span<const size_t> ends = SegmentEnds(problem, &whole);
    const size_t depth = problem.a.depth();
    const RowTiles row_tiles(problem.c.rows());
    const size_t column_tiles =
        (problem.c.cols() + kTileColumns - 1) / kTileColumns;
    const size_t row_panel = depth * kRowStride;
    const size_t column_panel = depth * kTileColumns;

    const size_t strip =
        TilesPerBlock(kStripBytes, row_panel, row_tiles.count());
    const bool one_strip = strip == row_tiles.count();
    // With one strip of a, a panel of b is packed, used and forgotten.
    const size_t block = one_strip ? column_tiles
                                   : TilesPerBlock(kColumnBlockBytes,
                                                   column_panel, column_tiles);
    a_.ResizeUninitialized(strip, row_panel);
    b_.ResizeUninitialized(one_strip ? 1 : block, column_panel);
    tiles_.ResizeUninitialized(std::bit_width(ends.size()) + 1, kTileSize);

    for (size_t column = 0; column < column_tiles; column += block) {
      const size_t column_end = std::min(column + block, column_tiles);
      for (size_t row = 0; row < row_tiles.count(); row += strip) {
        const size_t row_end = std::min(row + strip, row_tiles.count());
        for (size_t i = row; i < row_end; ++i) {
          PackPanel(problem.a, row_tiles.First(i), row_tiles.Rows(i), ends,
                    a_.Row(i - row), kRowStride);
        }
        for (size_t j = column; j < column_end; ++j) {
          float* const b = b_.Row(one_strip ? 0 : j - column);
          const size_t first_column = j * kTileColumns;
          const size_t columns =
              std::min(kTileColumns, problem.c.cols() - first_column);
          if (row == 0) {
            PackPanel(problem.b, first_column, columns, ends, b, kTileColumns);
          }
          for (size_t i = row; i < row_end; ++i) {
            const TileOutput out{
                problem.c.Row(row_tiles.First(i)) + first_column,
                problem.c.stride(), columns, problem.rounding};
            Multiply(a_.Row(i - row), b, row_tiles.Rows(i), ends, out);
          }
        }
      }
    }
  }

 private:
  static size_t TilesPerBlock(size_t bytes, size_t panel_size, size_t tiles) {
    const size_t fit =
        bytes / (std::max<size_t>(panel_size, 1) * sizeof(float));
    const size_t blocks =
        (tiles + std::max<size_t>(fit, 1) - 1) / std::max<size_t>(fit, 1);
    return (tiles + blocks - 1) / blocks;
  }

  void Multiply(const float* a, const float* b, size_t rows,
                std::span<const size_t> ends, const TileOutput& out) {
    if (ends.size() == 1) {
      KernelFor(rows, out.columns)(a, b, ends[0], out);
    } else {
      MultiplySegments(a, b, rows, ends, out, tiles_.data());
    }
  }

  Matrix<float> a_;      // panels of the strip
  Matrix<float> b_;      // panels of the column block
  Matrix<float> tiles_;  // open nodes of the segment tree
};

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace isoloss::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // ISOLOSS_KERNELS_GEMM_INL_H_
