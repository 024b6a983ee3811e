// Register tiles are the inner loops of the GEMM. Each Highway target with a
// fused multiply-add and vectors of fixed length includes this file once.
#if defined(ISOLOSS_KERNELS_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISOLOSS_KERNELS_TILE_INL_H_
#undef ISOLOSS_KERNELS_TILE_INL_H_
#else
#define ISOLOSS_KERNELS_TILE_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <utility>

#include "isoloss/kernels/rounding.h"
#include "isoloss/kernels/rows-inl.h"
#include "isoloss/kernels/transpose-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isoloss::kernels::HWY_NAMESPACE {

/// A register tile has kTileRows rows of a by two vectors of rows of b, all of
/// them accumulators: 14x2 of 32 registers, or with AVX2 6x2 of 16.
constexpr size_t kTileVectors = 2;
constexpr size_t kTileColumns = kTileVectors * kLanes;
constexpr size_t kTileRows = kLanes == 8 ? 6 : 14;
constexpr size_t kTileSize = kTileRows * kTileColumns;

/// Elements of `a` are adjacent in memory in one of two ways.
enum class Adjacent {
  kRows,   ///< those of one step k: element (i, k) at [k * distance + i]
  kSteps,  ///< those of one operand row: element (i, k) at [i * distance + k]
};

/// Holds the rows of a for one tile, packed or in the caller's memory.
struct TileRows {
  const float* data;
  size_t distance;
  /// Meanwhile this memory is fetched, a cache line a step.
  const float* next;
  size_t next_distance;
};

/// A tile reads rows of b step by step: element (j, k) lies at [k * distance +
/// j].
struct TileColumns {
  const float* data;
  size_t distance;
  /// Meanwhile this memory is fetched, kTileColumns floats a step.
  const float* next;
  size_t next_distance;

  /// Returns columns that fetch their own steps, kAhead steps before these are
  /// used.
  static TileColumns Ahead(const float* data, size_t distance) {
    constexpr size_t kAhead = 24;
    return {data, distance, data + kAhead * distance, distance};
  }
};

/// A tile's sums are the right child of `folds` nodes of the segment tree,
/// whose left children lie on a stack of tiles that ends at `open`. After these
/// folds the sums are rounded, the addend is added, and the result is rounded
/// once more and stored.
struct TileOutput {
  float* data;
  size_t stride;
  size_t columns;  ///< at most kTileColumns
  Rounding rounding = Rounding::kFp32;
  const float* addend = nullptr;
  size_t addend_stride = 0;
  const float* open = nullptr;
  size_t folds = 0;
};

/// Handles the rarer ends of a tile, from its rounded sums in memory: an
/// addend, or columns that are not whole vectors. It is out of line, so that
/// tile kernels stay small.
inline HWY_NOINLINE void FinishTile(const float* sums, size_t rows,
                                    const TileOutput& out) {
  const F32 d;
  for (size_t i = 0; i < rows; ++i) {
    ForEachVector(d, out.columns, [&](size_t j, size_t n) HWY_ATTR {
      VecF value = hn::Load(d, sums + i * kTileColumns + j);
      if (out.addend != nullptr) {
        const float* const left = out.addend + i * out.addend_stride + j;
        value = Round(d, hn::Add(LoadFirst(d, left, n), value), out.rounding);
      }
      StoreFirst(d, value, out.data + i * out.stride + j, n);
    });
  }
}

/// Computes acc = left child + acc, for `folds` tiles on top of the stack that
/// ends at `open`.
template <size_t kRows, size_t kVectors>
HWY_INLINE void FoldTiles(const float* open, size_t folds,
                          VecF (&acc)[kRows][kVectors]) {
  const F32 d;
  for (size_t fold = 0; fold < folds; ++fold) {
    open -= kTileSize;
    HWY_UNROLL(14)
    for (size_t i = 0; i < kRows; ++i) {
      HWY_UNROLL(2)
      for (size_t j = 0; j < kVectors; ++j) {
        const VecF left = hn::Load(d, open + i * kTileColumns + j * kLanes);
        acc[i][j] = hn::Add(left, acc[i][j]);
      }
    }
  }
}

template <size_t kRows, size_t kVectors>
HWY_INLINE void StoreTile(const VecF (&acc)[kRows][kVectors],
                          const TileOutput& out) {
  const F32 d;
  if (out.rounding == Rounding::kBf16) {
    HWY_UNROLL(14)
    for (size_t i = 0; i < kRows; ++i) {
      HWY_UNROLL(2)
      for (size_t j = 0; j < kVectors; ++j) {
        hn::StoreU(RoundToBf16(d, acc[i][j]), d,
                   out.data + i * out.stride + j * kLanes);
      }
    }
  } else {
    HWY_UNROLL(14)
    for (size_t i = 0; i < kRows; ++i) {
      HWY_UNROLL(2)
      for (size_t j = 0; j < kVectors; ++j) {
        hn::StoreU(acc[i][j], d, out.data + i * out.stride + j * kLanes);
      }
    }
  }
}

/// Sums a_i[k] * b_j[k] over k in [0, depth): each element is one ascending
/// chain of fused multiply-adds, from +0.
template <size_t kRows, size_t kVectors, Adjacent kAdjacent>
void MultiplyTile(const TileRows& a, const TileColumns& b, size_t depth,
                  const TileOutput& out) {
  const F32 d;
  VecF acc[kRows][kVectors];
  HWY_UNROLL(14)
  for (size_t i = 0; i < kRows; ++i) {
    HWY_UNROLL(2)
    for (size_t j = 0; j < kVectors; ++j) acc[i][j] = hn::Zero(d);
  }
  // Rows are addressed in groups of five: a pointer and the distances 1, 2, 4
  // (which an address multiplies by) and 3 reach them. So the addresses of a
  // tile fit the general registers.
  constexpr size_t kGroup = 5;
  constexpr size_t kPointers =
      kAdjacent == Adjacent::kRows ? 1 : (kRows + kGroup - 1) / kGroup;
  const size_t distance = a.distance * sizeof(float);
  size_t distance3 = 3 * distance;
  asm("" : "+r"(distance3));
  const char* left[kPointers];
  left[0] = reinterpret_cast<const char*>(a.data);
  for (size_t p = 1; p < kPointers; ++p) {
    left[p] = left[p - 1] + kGroup * distance;
    asm("" : "+r"(left[p]));
  }
  const auto row_at = [&](size_t i) HWY_ATTR {
    if (kAdjacent == Adjacent::kRows) return left[0] + i * sizeof(float);
    const size_t in_group = i % kGroup;
    return left[i / kGroup] + (in_group == 3 ? distance3 : in_group * distance);
  };
  const float* HWY_RESTRICT right = b.data;
  const float* next = a.next;
  const float* next_right = b.next;
  for (size_t k = 0; k < depth; ++k) {
    hwy::Prefetch(next);
    next += a.next_distance;
    VecF columns[kVectors];
    HWY_UNROLL(2)
    for (size_t j = 0; j < kVectors; ++j) {
      columns[j] = hn::LoadU(d, right + j * kLanes);
      hwy::Prefetch(next_right + j * kLanes);
    }
    HWY_UNROLL(14)
    for (size_t i = 0; i < kRows; ++i) {
      const VecF row = hn::Set(d, *reinterpret_cast<const float*>(row_at(i)));
      HWY_UNROLL(2)
      for (size_t j = 0; j < kVectors; ++j) {
        acc[i][j] = hn::MulAdd(row, columns[j], acc[i][j]);
      }
    }
    HWY_UNROLL(3)
    for (size_t p = 0; p < kPointers; ++p) {
      left[p] += kAdjacent == Adjacent::kRows ? distance : sizeof(float);
    }
    right += b.distance;
    next_right += b.next_distance;
  }
  FoldTiles<kRows, kVectors>(out.open, out.folds, acc);
  if (HWY_LIKELY(out.addend == nullptr && out.columns == kVectors * kLanes)) {
    StoreTile<kRows, kVectors>(acc, out);
    return;
  }
  HWY_ALIGN float sums[kRows * kTileColumns];
  StoreTile<kRows, kVectors>(acc, {.data = sums,
                                   .stride = kTileColumns,
                                   .columns = kTileColumns,
                                   .rounding = out.rounding});
  FinishTile(sums, kRows, out);
}

using TileKernel = void (*)(const TileRows&, const TileColumns&, size_t,
                            const TileOutput&);

template <size_t kVectors, Adjacent kAdjacent, typename Rows>
struct TileKernels;
/// kByRows[n - 1] multiplies a tile of n rows.
template <size_t kVectors, Adjacent kAdjacent, size_t... kRows>
struct TileKernels<kVectors, kAdjacent, std::index_sequence<kRows...>> {
  static constexpr TileKernel kByRows[] = {
      &MultiplyTile<kRows + 1, kVectors, kAdjacent>...};
};

template <Adjacent kAdjacent>
HWY_INLINE TileKernel KernelFor(size_t rows, size_t columns) {
  using Rows = std::make_index_sequence<kTileRows>;
  return columns > kLanes ? TileKernels<2, kAdjacent, Rows>::kByRows[rows - 1]
                          : TileKernels<1, kAdjacent, Rows>::kByRows[rows - 1];
}

HWY_INLINE TileKernel KernelFor(Adjacent adjacent, size_t rows,
                                size_t columns) {
  return adjacent == Adjacent::kRows
             ? KernelFor<Adjacent::kRows>(rows, columns)
             : KernelFor<Adjacent::kSteps>(rows, columns);
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace isoloss::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // ISOLOSS_KERNELS_TILE_INL_H_
