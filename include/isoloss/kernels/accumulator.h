// What tensor cores do in place of a chain of FP32 additions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "isoloss/kernels/rounding.h"

namespace isoloss::kernels {

/// Part of an operand row, as a tensor core reads it.
struct Elements {
  const float* values;
  /// Of each element: the exponent field of its code, unbiased, and of its
  /// scale; a subnormal has that of the smallest normal.
  const int16_t* exponents;
};

/// Adds products of one instruction at a time, as truncating_sum.h defines.
struct Accumulator {
  std::string_view name;
  /// Products of one instruction.
  size_t steps;
  /// Of the aligned terms, and of their sum.
  int fraction_bits;
  int significand_bits;
  std::string_view source;
};

/// All accumulators.
std::span<const Accumulator* const> AllAccumulators();

/// Errors   ConfigError that lists the names.
const Accumulator& AccumulatorByName(std::string_view name);

/// How the products of one output element are added up.
struct Accumulation {
  /// Null: an FP32 chain of fused multiply-adds.
  const Accumulator* accumulator = nullptr;
  /// Steps after which its sum is added to an outer one, and begins anew;
  /// 0: never. Segments begin anew as well.
  size_t interval = 0;
  /// Of the outer sum, after each addition.
  Rounding outer = Rounding::kFp32;

  bool operator==(const Accumulation&) const = default;
};

}  // namespace isoloss::kernels
