// The oracle's own text of what tensor cores add (docs/numerics.md, section
// 14).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace isoloss::oracle {

/// Steps of one operand row, as a tensor core reads them.
struct CoreOperand {
  std::span<const float> values;
  std::span<const int16_t> exponents;
};

/// Terms are aligned by the exponents of BF16 values, of FP8 codes and their
/// scales, or of the scales of FP4.
enum class Aligned { kByValues, kByCodes, kByScales };

/// These numbers describe a tensor core.
struct TensorCore {
  std::string_view name;
  Aligned aligned;
  size_t steps;  ///< of one instruction
  size_t group;  ///< so many products are one term
  int fraction_bits;
  int significand_bits;  ///< 0 means AMD's adder
  size_t parts = 1;      ///< AMD adds so many interleaved parts apart

  /// Returns the sum of all products, an FP32 number.
  float Dot(const CoreOperand& a, const CoreOperand& b) const;

 private:
  float Add(float sum, const CoreOperand& a, const CoreOperand& b) const;
};

/// Errors   ConfigError for a name that the oracle does not know.
const TensorCore& TensorCoreByName(std::string_view name);

}  // namespace isoloss::oracle
