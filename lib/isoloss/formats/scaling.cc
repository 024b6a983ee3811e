#include "isoloss/formats/scaling.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "isoloss/formats/e8m0.h"

namespace isoloss::formats {

extern const Format kFormat_e4m3;

namespace {

constexpr float kFloatMax = std::numeric_limits<float>::max();
constexpr uint32_t kExponentField = 0x7F800000;

Scale E8m0ScaleOf(const Quantization& quantization, uint32_t amax) {
  const uint8_t byte =
      E8m0Scale(amax, *quantization.element, quantization.scale_rule);
  return {E8m0Reciprocal(byte), DecodeE8m0(byte), byte};
}

/// Returns the power of two at or below a positive finite number. The least
/// result is 2^-127, the least power whose reciprocal is finite.
float PowerBelow(float value) {
  const float power =
      std::bit_cast<float>(std::bit_cast<uint32_t>(value) & kExponentField);
  return std::max(power, 0x1p-127f);
}

/// Returns the power of two at or above the value; its exponent field is in [1,
/// 254].
float PowerAbove(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t exponent = (bits >> 23) + ((bits & 0x7FFFFF) != 0 ? 1 : 0);
  return std::bit_cast<float>(std::clamp(exponent, 1u, 254u) << 23);
}

/// Makes TransformerEngine's and torchao's scale: `encode` is the quotient of
/// the largest element and amax, and `decode` is its reciprocal.
Scale ScaleOfQuotient(const Quantization& quantization, float quotient) {
  Scale scale;
  scale.encode = quantization.scale_format == ScaleFormat::kPow2
                     ? PowerBelow(quotient)
                     : quotient;
  scale.decode = 1 / scale.encode;
  return scale;
}

/// Makes DeepGEMM's scale: `decode` is the quotient of amax and the largest
/// element.
Scale DeepgemmScale(const Quantization& quantization, float amax) {
  constexpr float kLeast = 1e-4f;
  const float decode =
      std::max(amax, kLeast) / MaxFinite(*quantization.element);
  Scale scale;
  scale.decode = quantization.scale_format == ScaleFormat::kPow2
                     ? PowerAbove(decode)
                     : decode;
  scale.encode = 1 / scale.decode;
  return scale;
}

Scale WideScale(const Quantization& quantization, float amax) {
  const float largest = MaxFinite(*quantization.element);
  switch (quantization.scale_rule) {
    case ScaleRule::kDeepgemm:
      return DeepgemmScale(quantization, amax);
    case ScaleRule::kTorchao: {
      constexpr double kLeast = 1e-12;
      const double quotient = static_cast<double>(largest) /
                              std::max(static_cast<double>(amax), kLeast);
      return ScaleOfQuotient(quantization, static_cast<float>(quotient));
    }
    default:
      if (amax == 0) return {};
      return ScaleOfQuotient(quantization, std::min(largest / amax, kFloatMax));
  }
}

/// Returns a cell's own E4M3 scale, if the tensor has no scale.
Scale E4m3Scale(const Quantization& quantization, float amax) {
  const float largest = MaxFinite(*quantization.element);
  const bool torchao = quantization.scale_rule == ScaleRule::kTorchao;
  const float wanted =
      torchao ? std::max(amax / largest, 0x1p-6f) : amax * (1 / largest);
  Scale scale;
  scale.byte =
      static_cast<uint8_t>(Encode(kFormat_e4m3, wanted, Overflow::kSaturate));
  scale.decode = Decode(kFormat_e4m3, scale.byte);
  scale.encode = std::min(1 / scale.decode, kFloatMax);
  return scale;
}

/// Returns the scale of elements whose largest magnitude has the finite bits
/// `amax`.
Scale ScaleOfAmax(const Quantization& quantization, uint32_t amax) {
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
Scale DelayedScale(const Quantization& quantization, const TensorAmax& tensor) {
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
float RangeOfTwoLevels(const Quantization& quantization) {
  return MaxFinite(kFormat_e4m3) * MaxFinite(*quantization.element);
}

/// TransformerEngine multiplies the tensor by `encode` before it looks at
/// cells. If the tensor has an infinity, `encode` is 1, and the infinity's cell
/// has the scale 448.
Scale TeScale(float range, float amax) {
  const float encode = std::min(range / amax, kFloatMax);
  if (amax == 0 || encode == 0) return {};
  return {.encode = encode, .decode = 1 / encode};
}

/// torchao divides by `decode`. It has 0 for a tensor of zeros, and infinity
/// for a tensor with an infinity, which makes the tensor NaN. Here both are 1.
Scale TorchaoScale(float range, float amax) {
  const float decode = amax / range;
  if (decode == 0 || std::isinf(decode)) return {};
  return {.encode = 1 / decode, .decode = decode};
}

Scale TwoLevelScaleOfTensor(const Quantization& quantization,
                            const TensorAmax& tensor) {
  const float amax = std::bit_cast<float>(tensor.current);
  const float range = RangeOfTwoLevels(quantization);
  return quantization.scale_rule == ScaleRule::kTorchao
             ? TorchaoScale(range, amax)
             : TeScale(range, amax);
}

Scale TwoLevelScale(const Quantization& quantization, uint32_t amax_bits,
                    const TensorAmax& tensor) {
  const float amax = std::bit_cast<float>(amax_bits);
  const float largest = MaxFinite(*quantization.element);
  const bool torchao = quantization.scale_rule == ScaleRule::kTorchao;
  constexpr float kMinNormal = 0x1p-6f;
  const float wanted =
      torchao ? std::max(amax / largest / tensor.scale.decode, kMinNormal)
              : amax * (tensor.scale.encode * (1 / largest));
  Scale scale;
  scale.byte =
      static_cast<uint8_t>(Encode(kFormat_e4m3, wanted, Overflow::kSaturate));
  scale.decode = Decode(kFormat_e4m3, scale.byte);
  scale.encode =
      torchao ? tensor.scale.encode / scale.decode
              : std::min(1 / (scale.decode * tensor.scale.decode), kFloatMax);
  return scale;
}

}  // namespace

void ScaleTensor(const Quantization& quantization, TensorAmax& amax) {
  if (!quantization.scales_tensor()) return;
  amax.scale = TwoLevelScaleOfTensor(quantization, amax);
}

Scale ScaleOfFiniteCell(const Quantization& quantization, uint32_t amax,
                        const TensorAmax& tensor) {
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

Scale NanScale(const Quantization& quantization) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const bool e4m3 = quantization.scale_format == ScaleFormat::kE4m3;
  return {kNan, kNan, e4m3 ? uint8_t{0x7F} : kNanE8m0};
}

Scale InfinityScale(const Quantization& quantization) {
  if (quantization.scale_format == ScaleFormat::kE8m0) {
    return {E8m0Reciprocal(kMaxE8m0), DecodeE8m0(kMaxE8m0), kMaxE8m0};
  }
  if (quantization.scale_format == ScaleFormat::kE4m3) {
    Scale scale;
    scale.byte = static_cast<uint8_t>(kFormat_e4m3.max_code);
    scale.decode = MaxFinite(kFormat_e4m3);
    scale.encode = 1 / scale.decode;
    return scale;
  }
  return {};
}

}  // namespace isoloss::formats
