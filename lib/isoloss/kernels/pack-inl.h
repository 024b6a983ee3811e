// Lays GEMM operands out as register tiles read them, and quantises them as it
// does. Each Highway target with a fused multiply-add and vectors of fixed
// length includes this file once.
//
// Rows of b go into panels of one tile's width, step by step, in whichever way
// they are stored, because tiles want vectors along them. Tiles only broadcast
// from rows of a, so that these keep the way they are stored.
#if defined(ISOLOSS_KERNELS_PACK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISOLOSS_KERNELS_PACK_INL_H_
#undef ISOLOSS_KERNELS_PACK_INL_H_
#else
#define ISOLOSS_KERNELS_PACK_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>

#include "isoloss/kernels/gemm.h"
#include "isoloss/kernels/quantize-inl.h"
#include "isoloss/kernels/tile-inl.h"
#include "isoloss/kernels/transpose-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isoloss::kernels::HWY_NAMESPACE {

/// Transposes steps [begin, end) of a vector of rows that lie along columns:
/// row i's step k goes to panel[(k - begin) * kTileColumns + i]. Lanes from
/// `count` on repeat the last row; nobody reads their results.
template <Rounding kRounding>
HWY_INLINE void GatherTransposed(MatrixView<const float> rows, size_t first,
                                 size_t count, size_t begin, size_t end,
                                 size_t next_rows, float* panel) {
  constexpr size_t kAhead = 4 * kLanes;
  const F32 d;
  const float* from[kLanes];
  for (size_t i = 0; i < kLanes; ++i) {
    from[i] = rows.Row(first + std::min(i, count - 1));
  }
  for (size_t k = begin; k < end; k += kLanes) {
    const size_t steps = std::min(kLanes, end - k);
    // Prefetches the values that are gathered next: of these rows, or the
    // beginning of the next rows.
    const size_t next = k + kAhead < rows.cols() ? k + kAhead
                                                 : next_rows * rows.stride() +
                                                       k + kAhead - rows.cols();
    VecF v[kLanes];
    HWY_UNROLL(16)
    for (size_t i = 0; i < kLanes; ++i) {
      hwy::Prefetch(from[i] + next);
      v[i] = Round(d, LoadFirst(d, from[i] + k, steps), kRounding);
    }
    Transpose(v);
    if (HWY_LIKELY(steps == kLanes)) {
      HWY_UNROLL(16)
      for (size_t i = 0; i < kLanes; ++i) {
        hn::StoreU(v[i], d, panel + i * kTileColumns);
      }
    } else {
      for (size_t i = 0; i < steps; ++i) {
        hn::StoreU(v[i], d, panel + i * kTileColumns);
      }
    }
    panel += kLanes * kTileColumns;
  }
}

/// Rows of a matrix that are visited one by one are fetched this number of
/// steps ahead: the processor does not guess steps as wide as a row.
constexpr size_t kStepsAhead = 16;

/// Copies steps [begin, end) of rows that lie along columns already: from
/// from[k * stride + i] to panel[(k - begin) * kTileColumns + i].
template <Rounding kRounding>
HWY_INLINE void GatherRows(MatrixView<const float> steps, size_t first,
                           size_t count, size_t begin, size_t end,
                           float* panel) {
  const F32 d;
  for (size_t k = begin; k < end; ++k) {
    const float* from = steps.Row(k) + first;
    // Prefetches the values that are gathered next: of these columns, or of the
    // next panel's.
    const size_t ahead = k + kStepsAhead;
    const float* next = ahead < steps.rows()
                            ? from + kStepsAhead * steps.stride()
                            : steps.data() +
                                  (ahead - steps.rows()) * steps.stride() +
                                  first + kTileColumns;
    for (size_t i = 0; i < count; i += kLanes) {
      hwy::Prefetch(next + i);
      const VecF value = LoadFirst(d, from + i, std::min(kLanes, count - i));
      hn::StoreU(Round(d, value, kRounding), d, panel + i);
    }
    panel += kTileColumns;
  }
}

template <Rounding kRounding>
HWY_INLINE void PackPanelRounded(const Operand& operand, size_t first,
                                 size_t count,
                                 std::span<const size_t> segment_ends,
                                 float* panel) {
  const bool transposed = operand.contraction == Contraction::kColumns;
  const auto gather = [&](size_t begin, size_t end, float* to) HWY_ATTR {
    if (!transposed) {
      GatherRows<kRounding>(operand.values, first, count, begin, end, to);
      return;
    }
    for (size_t i = 0; i < count; i += kLanes) {
      GatherTransposed<kRounding>(
          operand.values, first + i, std::min(kLanes, count - i), begin, end,
          operand.quantization == nullptr ? kLanes : kTileColumns, to + i);
    }
  };
  if (operand.quantization == nullptr) return gather(0, operand.depth(), panel);

  const BlockQuantizer quantizer(*operand.quantization);
  ForEachMxBlock(segment_ends, [&](size_t k, size_t steps) HWY_ATTR {
    float* const to = panel + k * kTileColumns;
    const bool in_place = !transposed && kRounding == Rounding::kFp32;
    if (!in_place) gather(k, k + steps, to);
    const float* from = in_place ? operand.values.Row(k) + first : to;
    QuantizeBlocksDown<kTileVectors>(
        quantizer, from, in_place ? operand.values.stride() : kTileColumns,
        count, steps, to, kTileColumns);
  });
}

/// Packs operand rows [first, first + count), at most a tile's width, into
/// panel[k * kTileColumns + row].
inline void PackPanel(const Operand& operand, size_t first, size_t count,
                      std::span<const size_t> segment_ends, float* panel) {
  if (operand.rounding == Rounding::kBf16) {
    PackPanelRounded<Rounding::kBf16>(operand, first, count, segment_ends,
                                      panel);
  } else {
    PackPanelRounded<Rounding::kFp32>(operand, first, count, segment_ends,
                                      panel);
  }
}

/// Returns the distance of rows of `length` floats in a buffer: an odd number
/// of cache lines, so that rows spread over all sets of the cache.
constexpr size_t SpreadDistance(size_t length) {
  constexpr size_t kLine = 16;
  return ((length + kLine - 1) / kLine | 1) * kLine;
}

/// Tells whether tiles read rows of `a` in place: nothing is to be quantised,
/// and neighbours in a column do not all fall into one set of an L1 cache,
/// which repeats every 4 KB.
inline bool ReadsInPlace(const Operand& a) {
  if (a.values.empty()) return true;
  return a.quantization == nullptr &&
         a.values.stride() * sizeof(float) % 4096 != 0;
}

inline Adjacent AdjacentOf(const Operand& a) {
  return a.contraction == Contraction::kColumns ? Adjacent::kSteps
                                                : Adjacent::kRows;
}

/// These rows of a are packed as tiles read them.
struct PackedRows {
  const float* data;
  size_t distance;
  Adjacent adjacent;

  /// Returns rows [first, first + count). While they are used, the next memory
  /// is fetched: the rows after them, or their own elements kAhead steps on.
  TileRows Tile(size_t first, size_t count) const {
    constexpr size_t kLine = 16;
    constexpr size_t kAhead = 48;
    if (adjacent == Adjacent::kSteps) {
      const float* const rows = data + first * distance;
      return {rows, distance, rows + count * distance, kLine};
    }
    const float* const steps = data + first;
    return {steps, distance, steps + count - 1 + kAhead * distance, distance};
  }
};

/// Returns rows from `first` on in the caller's memory.
inline PackedRows RowsInPlace(const Operand& a, size_t first) {
  const Adjacent adjacent = AdjacentOf(a);
  const size_t stride = a.values.stride();
  return {a.values.data() + first * (adjacent == Adjacent::kSteps ? stride : 1),
          stride, adjacent};
}

/// Returns how many floats PackRows writes for `count` rows of a.
inline size_t PackedRowsSize(const Operand& a, size_t count) {
  return a.contraction == Contraction::kColumns
             ? count * SpreadDistance(a.depth())
             : a.depth() * SpreadDistance(count);
}

/// Quantises operand rows [0, count) that lie along rows of memory.
inline void QuantizeAlongRows(const formats::Quantization& spec,
                              MatrixView<const float> rows,
                              std::span<const size_t> segment_ends,
                              MatrixView<float> to) {
  RowBlocks blocks(spec);
  for (size_t i = 0; i < rows.rows(); ++i) {
    ForEachMxBlock(segment_ends, [&](size_t k, size_t steps) HWY_ATTR {
      blocks.Add(rows.Row(i) + k, steps, to.Row(i) + k);
    });
  }
  blocks.Flush();
}

/// Quantises operand rows that lie down the columns of `steps`. Rows of `to`
/// have room for whole vectors.
inline void QuantizeDownColumns(const formats::Quantization& spec,
                                MatrixView<const float> steps,
                                std::span<const size_t> segment_ends,
                                MatrixView<float> to) {
  // Neighbouring cache lines are read together because they come from memory
  // together.
  constexpr size_t kVectors = 4;
  const BlockQuantizer quantizer(spec);
  ForEachMxBlock(segment_ends, [&](size_t k, size_t count) HWY_ATTR {
    for (size_t i = 0; i < steps.cols(); i += kVectors * kLanes) {
      QuantizeBlocksDown<kVectors>(
          quantizer, steps.Row(k) + i, steps.stride(),
          std::min(kVectors * kLanes, steps.cols() - i), count, to.Row(k) + i,
          to.stride());
    }
  });
}

/// Packs rows [first, first + count) of a, as they are stored, into `to`.
inline PackedRows PackRows(const Operand& a, size_t first, size_t count,
                           std::span<const size_t> segment_ends, float* to) {
  const bool along_rows = a.contraction == Contraction::kColumns;
  const MatrixView<const float> from =
      along_rows ? a.values.Rows(first, count) : a.values.Cols(first, count);
  const size_t distance = SpreadDistance(from.cols());
  const MatrixView<float> packed(to, from.rows(), from.cols(), distance);
  if (a.quantization == nullptr) {
    for (size_t i = 0; i < from.rows(); ++i) {
      std::memcpy(packed.Row(i), from.Row(i), from.cols() * sizeof(float));
    }
  } else if (along_rows) {
    QuantizeAlongRows(*a.quantization, from, segment_ends, packed);
  } else {
    QuantizeDownColumns(*a.quantization, from, segment_ends, packed);
  }
  return {to, distance, AdjacentOf(a)};
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace isoloss::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // ISOLOSS_KERNELS_PACK_INL_H_
