// Describes how tensor cores add products, which is no chain of FP32 additions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "isoloss/kernels/rounding.h"

namespace isoloss::kernels {

/// Tensor cores align products by the exponents of their factors.
enum class FactorExponents : uint8_t {
  kOfValues,  ///< factors are BF16, and have the exponents of their values
  kOfCodes,   ///< of FP8: that of the code and that of its scale are added
  kOfScales,  ///< of FP4: that of the scale alone
};

/// Says which terms are aligned together, and how they are cut. Each is defined
/// in kernels/fused_sum.h.
enum class Adder : uint8_t {
  kTruncating,  ///< NVIDIA: products and the sum before, toward zero
  kCdna3,       ///< AMD: products, toward zero, and then the sum before, down
  kCdna3Fp8,    ///< the same, but products of even and odd steps apart
};

/// These elements are the part of an operand row that a tensor core reads at
/// once.
struct Elements {
  const float* values;
  /// A subnormal has the exponent of the smallest normal value of its type,
  /// and zero has -126. Null means FactorExponents::kOfValues. Values are then
  /// rounded to BF16, which changes none that BF16 holds.
  const int16_t* exponents;
};

/// One instruction adds some products to a sum, as fused_sum.h defines.
struct Accumulator {
  std::string_view name;
  FactorExponents exponents = FactorExponents::kOfValues;
  Adder adder = Adder::kTruncating;
  /// One instruction adds this number of products.
  size_t steps;
  /// So many neighbours are added exactly and are one term.
  size_t group = 1;
  /// The aligned terms keep `fraction_bits`, and their sum keeps
  /// `significand_bits`.
  int fraction_bits;
  int significand_bits;
  /// Says which tensor cores add like this, for instance "Hopper FP8".
  std::string_view cores;
  /// Says who found it, and on which silicon the project has seen it.
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

  /// Returns the exponents that operands must be prepared with.
  FactorExponents exponents() const {
    return accumulator == nullptr ? FactorExponents::kOfValues
                                  : accumulator->exponents;
  }
  bool operator==(const Accumulation&) const = default;
};

}  // namespace isoloss::kernels
