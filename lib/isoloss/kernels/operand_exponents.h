// Exponents of elements, which accumulators align their terms by. They are
// constexpr, so that kernels of a device can share this text.
#pragma once

#include <cstdint>

#include "isoloss/formats/e4m3.h"
#include "isoloss/formats/format.h"
#include "isoloss/formats/quantization.h"
#include "isoloss/formats/scaling.h"
#include "isoloss/kernels/fused_sum.h"

namespace isoloss::kernels {

/// Returns the unbiased exponent field of a code; a subnormal has that of the
/// smallest normal, and zero has -126.
constexpr int ExponentOfCode(const formats::Format& format, uint32_t code) {
  const uint32_t magnitude = code & ((1u << (format.bits() - 1)) - 1);
  if (magnitude == 0) return -126;
  const auto field = static_cast<int>(magnitude >> format.mantissa_bits);
  return (field < 1 ? 1 : field) - format.bias;
}

/// Returns the exponent of a cell's scale, if it is among the scales that codes
/// are multiplied by, and 0 otherwise.
constexpr int ExponentOfScale(const formats::Quantization& quantization,
                              const formats::Scale& scale) {
  constexpr formats::Format kStored = formats::kE4m3Format;
  switch (quantization.scale_format) {
    case formats::ScaleFormat::kE8m0:
      return scale.byte - 127;
    case formats::ScaleFormat::kE4m3:
      return ExponentOfCode(kStored, scale.byte);
    case formats::ScaleFormat::kPow2:
      return FloatExponentOf(scale.decode);
    case formats::ScaleFormat::kNone:
    case formats::ScaleFormat::kFp32:
      break;
  }
  return 0;
}

/// Returns what an accumulator with FactorExponents other than kOfValues aligns
/// an element by. `element` is the format of the codes.
constexpr int ExponentOfElement(FactorExponents exponents,
                                const formats::Quantization& quantization,
                                const formats::Format& element, uint32_t code,
                                const formats::Scale& scale) {
  const int of_scale = ExponentOfScale(quantization, scale);
  return exponents == FactorExponents::kOfScales
             ? of_scale
             : ExponentOfCode(element, code) + of_scale;
}

}  // namespace isoloss::kernels
