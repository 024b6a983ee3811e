// Fragments are parts of matrices that a warp holds in its threads' registers,
// and multiplies by one instruction of its tensor cores: PTX calls it
// mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32.
#pragma once

#include <cstddef>
#include <cstdint>

#include "isoloss/kernels/accumulator.h"

namespace isoloss::device {

inline constexpr uint32_t kWarp = 32;
inline constexpr uint32_t kFragmentRows = 16;
inline constexpr uint32_t kFragmentCols = 8;
inline constexpr uint32_t kFragmentSteps = 16;

/// A thread's part of sums [16, 8] += a [16, 16] b^T, b [8, 16]. A word is a
/// pair of neighbouring steps in BF16, the first one in its lower half.
struct Fragments {
  const uint32_t* a;  ///< 4 words
  const uint32_t* b;  ///< 2 words
  float* upper;       ///< 2 neighbouring sums
  float* lower;       ///< 2 sums, 8 rows below
};

/// Says where a lane's part lies: word i of a, word i of b, and the first sum.
struct FragmentLane {
  uint32_t row;   ///< of a and of the sums, and column of the sums in b
  uint32_t pair;  ///< the lane's first step, or sum, is twice this

  explicit constexpr FragmentLane(uint32_t thread)
      : row(thread % kWarp / 4), pair(thread % 4) {}

  constexpr uint32_t RowOfA(uint32_t i) const { return row + i % 2 * 8; }
  constexpr uint32_t StepOfA(uint32_t i) const { return 2 * pair + i / 2 * 8; }
  constexpr uint32_t StepOfB(uint32_t i) const { return 2 * pair + i * 8; }
};

/// Tells whether such an instruction adds as an accumulator does, on some
/// tensor cores.
constexpr bool AddsFragments(const kernels::Accumulator& accumulator) {
  return accumulator.exponents == kernels::FactorExponents::kOfValues &&
         accumulator.adder == kernels::Adder::kTruncating &&
         accumulator.group == 1 && kFragmentSteps % accumulator.steps == 0;
}

}  // namespace isoloss::device
