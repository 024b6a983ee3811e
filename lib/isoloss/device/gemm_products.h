// Products in the device's memory, and kernels that compute an element of a
// result.
#pragma once

#include <cstddef>
#include <cstdint>

#include "isoloss/base/matrix.h"
#include "isoloss/device/kernel.h"
#include "isoloss/device/quads.h"
#include "isoloss/device/table.h"
#include "isoloss/kernels/fused_sum.h"
#include "isoloss/kernels/piece_sum.h"
#include "isoloss/kernels/rounding.h"
#include "isoloss/kernels/tree.h"

namespace isoloss::device {

/// Is one side of a product, ready to be multiplied.
struct Side {
  StepRows<const float> values;
  size_t readable_rows = 0;  ///< in memory, at least those of the operand
  bool has_quads = false;    ///< rows lie in aligned quads of neighbours
  StepRows<const int16_t> exponents = {};  ///< steps are neighbours; or null
  StepRows<const float> factors = {};      ///< of (row, piece); or null
  StepRows<const uint16_t> packed = {};    ///< replaces values; or null

  /// Returns steps of a row as an accumulator reads them, from `step` on.
  constexpr kernels::Elements From(size_t row, size_t step) const {
    return {values.At(row, step),
            exponents.data == nullptr ? nullptr : exponents.At(row, step)};
  }
  constexpr float Factor(size_t row, size_t piece) const {
    return factors.data == nullptr ? 1.0f : factors(row, piece);
  }
};

/// A part of the steps of a product, which is summed on its own. Steps are
/// those of the sides as they lie in memory.
struct Segment {
  uint32_t begin;
  uint32_t end;
  uint32_t first_piece;
};

/// Is where sums go.
struct Result {
  MatrixView<float> c;
  MatrixView<const float> addend;
  kernels::Rounding rounding = kernels::Rounding::kFp32;
  bool has_quads = false;  ///< the rows of c are aligned quads of neighbours

  /// Makes elements of c from `count` neighbouring sums, in place.
  template <size_t kMost>
  constexpr void Finish(size_t row, size_t col, size_t count,
                        float (&sums)[kMost]) const {
    RoundAll(rounding, sums);
    if (addend.empty()) return;
    const float* const more = &addend(row, col);
    ISOLOSS_UNROLL
    for (size_t i = 0; i < kMost; ++i) {
      if (i < count) sums[i] = more[i] + sums[i];
    }
    RoundAll(rounding, sums);
  }
  constexpr void Write(size_t row, size_t col, float sum) const {
    float sums[1] = {sum};
    Finish(row, col, 1, sums);
    c(row, col) = sums[0];
  }
};

/// Is a product as kernels read it, in the device's memory.
struct Product {
  Side a;
  Side b;
  Result result;
  kernels::PieceSum adder = {};
  kernels::Accumulator accumulator = {};  ///< without steps: chains
  const Segment* segments = nullptr;
  size_t segment_count = 0;
  size_t piece_steps = 0;  ///< 0: segments are whole

  /// A task is a tile of the result and a group of segments: a subtree of the
  /// aligned tree over all of them.
  size_t group = 1;
  size_t stack_depth = 0;     ///< sums that a task puts aside
  float* stack = nullptr;     ///< [tasks, depth, elements of a tile]
  float* subtrees = nullptr;  ///< [groups, rows, cols] if groups are several

  size_t tasks_end = 0;
  size_t elements_end = 0;

  constexpr size_t group_count() const { return CeilOf(segment_count, group); }
  constexpr size_t StepsOfPiece() const {
    return piece_steps == 0 ? SIZE_MAX : piece_steps;
  }
};

/// So many elements of a tile are those of a result.
struct TileExtent {
  uint32_t rows;
  uint32_t cols;
};

/// Says what a block computes. Numbers of 32 bits save registers.
struct TileTask {
  uint32_t row;
  uint32_t col;
  uint32_t rows;  ///< of the tile that the result has
  uint32_t cols;
  uint32_t group;

  constexpr TileExtent extent() const { return {rows, cols}; }
};

/// Folds the subtrees of an element of a result.
struct FoldElement {
  Table<Product, &Product::elements_end> products;

  constexpr void operator()(size_t i) const {
    const auto [entry, number] = products.Find(i);
    const Product& product = *entry;
    const auto [row, col] = PlaceOf(number, product.result.c.cols());
    kernels::AlignedFold<float> fold;
    for (size_t group = 0; group < product.group_count(); ++group) {
      fold.Push(product.subtrees[(group * product.result.c.rows() + row) *
                                     product.result.c.cols() +
                                 col]);
    }
    product.result.Write(row, col, fold.Finish());
  }
};

/// Lets an accumulator compute an element of a result.
struct AccumulateElement {
  Table<Product, &Product::elements_end> products;

  constexpr void operator()(size_t i) const {
    const auto [entry, number] = products.Find(i);
    const Product& product = *entry;
    const auto [row, col] = PlaceOf(number, product.result.c.cols());
    kernels::AlignedFold<float> fold;
    for (size_t s = 0; s < product.segment_count; ++s) {
      fold.Push(SumOfSegment(product, row, col, product.segments[s]));
    }
    product.result.Write(row, col, fold.Finish());
  }

 private:
  static constexpr float SumOfSegment(const Product& product, size_t row,
                                      size_t col, const Segment& segment) {
    float sum = 0.0f;
    size_t piece = segment.first_piece;
    size_t end = segment.begin;
    for (size_t begin = segment.begin; begin < segment.end; begin = end) {
      const size_t steps = product.StepsOfPiece();
      end = segment.end - begin < steps ? segment.end : begin + steps;
      sum = product.adder.Add(
          begin == segment.begin, sum,
          SumOfPiece(product, row, col, begin, end),
          product.a.Factor(row, piece) * product.b.Factor(col, piece));
      ++piece;
    }
    return sum;
  }
  static constexpr float SumOfPiece(const Product& product, size_t row,
                                    size_t col, size_t begin, size_t end) {
    const size_t steps = product.accumulator.steps;
    float sum = 0.0f;
    for (size_t k = begin; k < end; k += steps) {
      sum = kernels::FusedSum(product.accumulator, sum, product.a.From(row, k),
                              product.b.From(col, k),
                              end - k < steps ? end - k : steps);
    }
    return sum;
  }
};

}  // namespace isoloss::device
