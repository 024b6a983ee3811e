// Defines what a description of a quantisation means for one cell and one
// element. It is constexpr, so that kernels of a device can share this text.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "isoloss/base/rng.h"
#include "isoloss/formats/e4m3.h"
#include "isoloss/formats/e8m0.h"
#include "isoloss/formats/hadamard.h"
#include "isoloss/formats/quantization.h"
#include "isoloss/formats/quantize.h"
#include "isoloss/formats/scaling.h"

namespace isoloss::formats {

/// These are std::max and std::min by value: a device cannot bind a constant of
/// the host to a reference.
template <typename T>
constexpr T Max(T a, T b) {
  return a < b ? b : a;
}
template <typename T>
constexpr T Min(T a, T b) {
  return b < a ? b : a;
}

inline constexpr float kFloatMax = std::numeric_limits<float>::max();
inline constexpr uint32_t kExponentField = 0x7F800000;

constexpr Scale E8m0ScaleOf(const Quantization& quantization, uint32_t amax) {
  const uint8_t byte =
      E8m0Scale(amax, *quantization.element, quantization.scale_rule);
  return {E8m0Reciprocal(byte), DecodeE8m0(byte), byte};
}

/// Returns the power of two at or below a positive finite number. The least
/// result is 2^-127, the least power whose reciprocal is finite.
constexpr float PowerBelow(float value) {
  const float power =
      std::bit_cast<float>(std::bit_cast<uint32_t>(value) & kExponentField);
  return Max(power, 0x1p-127f);
}

/// Returns the power of two at or above the value; its exponent field is in [1,
/// 254].
constexpr float PowerAbove(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t exponent = (bits >> 23) + ((bits & 0x7FFFFF) != 0 ? 1 : 0);
  return std::bit_cast<float>(Min(Max(exponent, 1u), 254u) << 23);
}

/// Makes TransformerEngine's and torchao's scale: `encode` is the quotient of
/// the largest element and amax, and `decode` is its reciprocal.
constexpr Scale ScaleOfQuotient(const Quantization& quantization,
                                float quotient) {
  Scale scale;
  scale.encode = quantization.scale_format == ScaleFormat::kPow2
                     ? PowerBelow(quotient)
                     : quotient;
  scale.decode = 1 / scale.encode;
  return scale;
}

/// Makes DeepGEMM's scale: `decode` is the quotient of amax and the largest
/// element.
constexpr Scale DeepgemmScale(const Quantization& quantization, float amax) {
  constexpr float kLeast = 1e-4f;
  const float decode = Max(amax, kLeast) / MaxFinite(*quantization.element);
  Scale scale;
  scale.decode = quantization.scale_format == ScaleFormat::kPow2
                     ? PowerAbove(decode)
                     : decode;
  scale.encode = 1 / scale.decode;
  return scale;
}

constexpr Scale WideScale(const Quantization& quantization, float amax) {
  const float largest = MaxFinite(*quantization.element);
  switch (quantization.scale_rule) {
    case ScaleRule::kDeepgemm:
      return DeepgemmScale(quantization, amax);
    case ScaleRule::kTorchao: {
      constexpr double kLeast = 1e-12;
      const double quotient =
          static_cast<double>(largest) / Max(static_cast<double>(amax), kLeast);
      return ScaleOfQuotient(quantization, static_cast<float>(quotient));
    }
    default:
      if (amax == 0) return {};
      return ScaleOfQuotient(quantization, Min(largest / amax, kFloatMax));
  }
}

/// Returns a cell's own E4M3 scale, if the tensor has no scale.
constexpr Scale E4m3Scale(const Quantization& quantization, float amax) {
  constexpr Format stored = kE4m3Format;
  const float largest = MaxFinite(*quantization.element);
  const bool torchao = quantization.scale_rule == ScaleRule::kTorchao;
  const float wanted =
      torchao ? Max(amax / largest, 0x1p-6f) : amax * (1 / largest);
  Scale scale;
  scale.byte =
      static_cast<uint8_t>(Encode(stored, wanted, Overflow::kSaturate));
  scale.decode = ValueOfCode(stored, scale.byte);
  scale.encode = Min(1 / scale.decode, kFloatMax);
  return scale;
}

/// Returns the scale of elements whose largest magnitude has the finite bits
/// `amax`.
constexpr Scale ScaleOfAmax(const Quantization& quantization, uint32_t amax) {
  switch (quantization.scale_format) {
    case ScaleFormat::kNone:
      break;
    case ScaleFormat::kE8m0:
      return E8m0ScaleOf(quantization, amax);
    case ScaleFormat::kE4m3:
      return E4m3Scale(quantization, std::bit_cast<float>(amax));
    case ScaleFormat::kPow2:
    case ScaleFormat::kFp32:
      return WideScale(quantization, std::bit_cast<float>(amax));
  }
  return {};
}

/// Without a history the scale is 1, as in TransformerEngine at the start.
constexpr Scale DelayedScale(const Quantization& quantization,
                             const TensorAmax& tensor) {
  if (tensor.history) {
    return ScaleOfAmax(quantization, std::bit_cast<uint32_t>(*tensor.history));
  }
  constexpr uint8_t kOneE8m0 = 127;
  constexpr uint8_t kOneE4m3 = 0x38;
  return {
      1, 1,
      quantization.scale_format == ScaleFormat::kE8m0 ? kOneE8m0 : kOneE4m3};
}

/// Returns the largest product of an element and a cell's scale.
constexpr float RangeOfTwoLevels(const Quantization& quantization) {
  constexpr float largest_scale = MaxFinite(kE4m3Format);
  return largest_scale * MaxFinite(*quantization.element);
}

/// TransformerEngine multiplies the tensor by `encode` before it looks at
/// cells. If the tensor has an infinity, `encode` is 1, and the infinity's cell
/// has the scale 448.
constexpr Scale TeScale(float range, float amax) {
  const float encode = Min(range / amax, kFloatMax);
  if (amax == 0 || encode == 0) return {};
  return {.encode = encode, .decode = 1 / encode};
}

/// torchao divides by `decode`. It has 0 for a tensor of zeros, and infinity
/// for a tensor with an infinity, which makes the tensor NaN. Here both are 1.
constexpr Scale TorchaoScale(float range, float amax) {
  const float decode = amax / range;
  if (decode == 0 || std::isinf(decode)) return {};
  return {.encode = 1 / decode, .decode = decode};
}

constexpr Scale TwoLevelScaleOfTensor(const Quantization& quantization,
                                      const TensorAmax& tensor) {
  const float amax = std::bit_cast<float>(tensor.current);
  const float range = RangeOfTwoLevels(quantization);
  return quantization.scale_rule == ScaleRule::kTorchao
             ? TorchaoScale(range, amax)
             : TeScale(range, amax);
}

constexpr Scale TwoLevelScale(const Quantization& quantization,
                              uint32_t amax_bits, const TensorAmax& tensor) {
  const float amax = std::bit_cast<float>(amax_bits);
  const float largest = MaxFinite(*quantization.element);
  const bool torchao = quantization.scale_rule == ScaleRule::kTorchao;
  constexpr Format stored = kE4m3Format;
  constexpr float kMinNormal = 0x1p-6f;
  const float wanted =
      torchao ? Max(amax / largest / tensor.scale.decode, kMinNormal)
              : amax * (tensor.scale.encode * (1 / largest));
  Scale scale;
  scale.byte =
      static_cast<uint8_t>(Encode(stored, wanted, Overflow::kSaturate));
  scale.decode = ValueOfCode(stored, scale.byte);
  scale.encode = torchao
                     ? tensor.scale.encode / scale.decode
                     : Min(1 / (scale.decode * tensor.scale.decode), kFloatMax);
  return scale;
}

/// Fills in amax.scale, which all cells share under kTwoLevel.
constexpr void ScaleTensor(const Quantization& quantization, TensorAmax& amax) {
  if (!quantization.scales_tensor()) return;
  amax.scale = TwoLevelScaleOfTensor(quantization, amax);
}

/// Returns the scale of a cell whose largest magnitude has the finite bits
/// `amax`.
constexpr Scale ScaleOfFiniteCell(const Quantization& quantization,
                                  uint32_t amax, const TensorAmax& tensor) {
  switch (quantization.scaling) {
    case Scaling::kCurrent:
      break;
    case Scaling::kDelayed:
      return DelayedScale(quantization, tensor);
    case Scaling::kTwoLevel:
      return TwoLevelScale(quantization, amax, tensor);
  }
  return ScaleOfAmax(quantization, amax);
}

/// Return the scale of a cell in which a NaN or an infinity decides.
constexpr Scale NanScale(const Quantization& quantization) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const bool e4m3 = quantization.scale_format == ScaleFormat::kE4m3;
  return {kNan, kNan, e4m3 ? uint8_t{0x7F} : kNanE8m0};
}

constexpr Scale InfinityScale(const Quantization& quantization) {
  if (quantization.scale_format == ScaleFormat::kE8m0) {
    return {E8m0Reciprocal(kMaxE8m0), DecodeE8m0(kMaxE8m0), kMaxE8m0};
  }
  if (quantization.scale_format == ScaleFormat::kE4m3) {
    Scale scale;
    constexpr Format stored = kE4m3Format;
    scale.byte = static_cast<uint8_t>(stored.max_code);
    scale.decode = MaxFinite(stored);
    scale.encode = 1 / scale.decode;
    return scale;
  }
  return {};
}

/// Returns the scale of a cell whose largest magnitude has the bits `amax`,
/// finite or not.
constexpr Scale ScaleOfCell(const Quantization& quantization, uint32_t amax,
                            const TensorAmax& tensor) {
  if (quantization.scale_format == ScaleFormat::kNone) return {};
  if (amax >= fp32::kInfinity) {
    return quantization.non_finite == NonFinitePolicy::kTe
               ? InfinityScale(quantization)
               : NanScale(quantization);
  }
  return ScaleOfFiniteCell(quantization, amax, tensor);
}

/// Returns the code of one element under its cell's scale.
constexpr uint32_t CodeOf(float value, const Scale& scale,
                          const Quantization& quantization, RandomBits random) {
  const Format& element = *quantization.element;
  if (std::isnan(scale.decode)) return element.nan_code;
  if (std::isnan(value) && !element.has_nan()) return element.max_code;
  const bool overflows =
      quantization.scale_format == ScaleFormat::kNone && element.has_infinity;
  return Encode(element, value * scale.encode,
                overflows ? Overflow::kNonFinite : Overflow::kSaturate,
                quantization.rounding, random);
}

/// A Philox block has the 16-bit words of so many neighbours in a row.
inline constexpr size_t kElementsOfRandomBlock = 8;

/// Returns the block (row << 32 | col / 8) of (seed, stream).
constexpr std::array<uint32_t, 4> RandomBlockOf(const TensorState& state,
                                                size_t row, size_t col) {
  return CounterRng(state.seed, state.stream)
      .Block(uint64_t{row} << 32 | uint64_t{col} / kElementsOfRandomBlock);
}

/// Returns the upper `count` bits of a block's word col % 8.
constexpr RandomBits RandomBitsIn(const std::array<uint32_t, 4>& block,
                                  size_t col, int count) {
  const size_t half = col % kElementsOfRandomBlock;
  const uint32_t word = block[half / 2] >> (16 * (half % 2)) & 0xFFFF;
  return {word >> (16 - count), count};
}

/// Returns the random bits of element (row, col).
constexpr RandomBits RandomBitsOf(const TensorState& state, size_t row,
                                  size_t col, int count) {
  return RandomBitsIn(RandomBlockOf(state, row, col), col, count);
}

/// Replaces pairs of elements that are kApart apart by their sums and
/// differences.
template <size_t kApart>
constexpr void Stage(float (&x)[kHadamardLength]) {
  for (size_t first = 0; first < kHadamardLength; first += 2 * kApart) {
    for (size_t i = first; i < first + kApart; ++i) {
      const float a = x[i];
      const float b = x[i + kApart];
      x[i] = a + b;
      x[i + kApart] = a - b;
    }
  }
}

/// Transforms a run in place, as Hadamard16.
constexpr void Hadamard16(float* run, uint32_t negative) {
  float x[kHadamardLength] = {};
  for (size_t i = 0; i < kHadamardLength; ++i) {
    const uint32_t sign = (negative >> i & 1) << 31;
    x[i] = std::bit_cast<float>(std::bit_cast<uint32_t>(run[i]) ^ sign);
  }
  Stage<1>(x);
  Stage<2>(x);
  Stage<4>(x);
  Stage<8>(x);
  for (size_t i = 0; i < kHadamardLength; ++i) run[i] = x[i] * 0.25f;
}

}  // namespace isoloss::formats
