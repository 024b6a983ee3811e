// Describes how tensor cores add products, which is no chain of FP32 additions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "isoloss/kernels/rounding.h"

namespace isoloss::kernels {

/// These elements are the part of an operand row that a tensor core reads at
/// once.
struct Elements {
  const float* values;
  /// The exponent of an element adds the unbiased exponent fields of its code
  /// and of its scale. A subnormal has the exponent of the smallest normal
  /// value.
  const int16_t* exponents;
};

/// Adds products of one instruction at a time, as truncating_sum.h defines.
struct Accumulator {
  std::string_view name;
  /// One instruction adds this number of products.
  size_t steps;
  /// The aligned terms keep `fraction_bits`, and their sum keeps
  /// `significand_bits`.
  int fraction_bits;
  int significand_bits;
  std::string_view source;
};

std::span<const Accumulator* const> AllAccumulators();

/// Finds an accumulator by its name.
/// Errors   ConfigError that lists the names.
const Accumulator& AccumulatorByName(std::string_view name);

/// Describes how the products of one output element are added up.
struct Accumulation {
  /// Null means an FP32 chain of fused multiply-adds.
  const Accumulator* accumulator = nullptr;
  /// After this number of steps the accumulator's sum is added to an outer sum,
  /// and begins anew; 0 means never. It begins anew at segments as well.
  size_t interval = 0;
  /// After each addition the outer sum is rounded to this type.
  Rounding outer = Rounding::kFp32;

  bool operator==(const Accumulation&) const = default;
};

}  // namespace isoloss::kernels
