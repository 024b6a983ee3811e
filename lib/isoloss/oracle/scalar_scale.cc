#include "isoloss/oracle/scalar_scale.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>

#include "isoloss/oracle/scalar_cast.h"

namespace isoloss::oracle {
namespace {

using formats::NonFinitePolicy;
using formats::Quantization;
using formats::ScaleFormat;
using formats::ScaleRule;

constexpr float kNanScale = std::numeric_limits<float>::quiet_NaN();
constexpr float kLeastNormalE4m3 = 0x1p-6f;

/// Returns the largest element, which FP32 holds: formats with a scale have at
/// most 8 bits.
float Largest(const Quantization& quantization) {
  return static_cast<float>(LargestOf(*quantization.element));
}

ScalarScale ScaleOfPower(int exponent) {
  // E8M0 has 2^-127 to 2^127.
  const int clamped = std::clamp(exponent, -127, 127);
  return {std::ldexp(1.0f, -clamped), std::ldexp(1.0f, clamped)};
}

/// Returns the least n with 2^n >= value > 0.
int CeilLog2(double value) {
  const int floor = std::ilogb(value);
  return std::ldexp(1.0, floor) == value ? floor : floor + 1;
}

ScalarScale E8m0Scale(const Quantization& quantization, float amax) {
  const formats::Format& element = *quantization.element;
  if (amax == 0.0f) return ScaleOfPower(-127);
  const auto size = static_cast<double>(amax);
  switch (quantization.scale_rule) {
    case ScaleRule::kCeil:
      return ScaleOfPower(CeilLog2(size) - element.emax);
    case ScaleRule::kEven: {
      // Half a step of a significand as long as an element's is added first.
      const int m = element.twos_complement ? 6 : element.mantissa_bits;
      const int exponent = std::max(std::ilogb(size), -126);
      const int rounded = std::ilogb(size + std::ldexp(1.0, exponent - m - 1));
      if (rounded > 127) return {kNanScale, kNanScale};
      return ScaleOfPower(rounded - element.emax);
    }
    case ScaleRule::kRceil: {
      const float largest = Largest(quantization);
      // INT8 uses the exact quotient, every other element a product in FP32.
      const double quotient =
          element.twos_complement
              ? size / static_cast<double>(largest)
              : static_cast<double>(amax * (1.0f / largest));
      return ScaleOfPower(quotient == 0.0 ? -127 : CeilLog2(quotient));
    }
    default:
      return ScaleOfPower(std::ilogb(size) - element.emax);
  }
}

/// Returns a cell's scale if the tensor has none.
ScalarScale E4m3Scale(const Quantization& quantization, float amax) {
  const float largest = Largest(quantization);
  const float wanted = quantization.scale_rule == ScaleRule::kTorchao
                           ? std::fmax(amax / largest, kLeastNormalE4m3)
                           : amax * (1.0f / largest);
  const float decode = NearestE4m3(wanted);
  return {std::fmin(1.0f / decode, kFloatMax), decode};
}

/// Returns the power of two at or below `value` > 0, but at least 2^-127, the
/// least whose inverse FP32 has.
float PowerBelow(float value) {
  return std::ldexp(1.0f, std::max(std::ilogb(value), -127));
}

/// Returns an FP32 scale, which may have to be a power of two.
ScalarScale WideScale(const Quantization& quantization, float amax) {
  const float largest = Largest(quantization);
  const bool power = quantization.scale_format == ScaleFormat::kPow2;
  if (quantization.scale_rule == ScaleRule::kDeepgemm) {
    const float quotient = std::fmax(amax, 1e-4f) / largest;
    const int exponent =
        std::clamp(CeilLog2(static_cast<double>(quotient)), -126, 127);
    const float decode = power ? std::ldexp(1.0f, exponent) : quotient;
    return {1.0f / decode, decode};
  }
  float factor = 0.0f;
  if (quantization.scale_rule == ScaleRule::kTorchao) {
    factor = static_cast<float>(static_cast<double>(largest) /
                                std::fmax(static_cast<double>(amax), 1e-12));
  } else {
    if (amax == 0.0f) return {};
    factor = std::fmin(largest / amax, kFloatMax);
  }
  if (power) factor = PowerBelow(factor);
  return {factor, 1.0f / factor};
}

ScalarScale CurrentScale(const Quantization& quantization, float amax) {
  switch (quantization.scale_format) {
    case ScaleFormat::kNone:
      break;
    case ScaleFormat::kE8m0:
      return E8m0Scale(quantization, amax);
    case ScaleFormat::kE4m3:
      return E4m3Scale(quantization, amax);
    case ScaleFormat::kPow2:
    case ScaleFormat::kFp32:
      return WideScale(quantization, amax);
  }
  return {};
}

/// TransformerEngine multiplies a tensor by this first.
float OuterEncode(const Quantization& quantization, float amax) {
  if (amax == 0.0f) return 1.0f;
  const float encode =
      std::fmin(kLargestE4m3 * Largest(quantization) / amax, kFloatMax);
  return encode == 0.0f ? 1.0f : encode;
}

/// torchao divides by this.
float OuterDecode(const Quantization& quantization, float amax) {
  const float decode = amax / (kLargestE4m3 * Largest(quantization));
  return decode == 0.0f || std::isinf(decode) ? 1.0f : decode;
}

ScalarScale TwoLevelScale(const Quantization& quantization, float amax,
                          float of_tensor) {
  const float largest = Largest(quantization);
  if (quantization.scale_rule == ScaleRule::kTorchao) {
    const float outer = OuterDecode(quantization, of_tensor);
    const float decode =
        NearestE4m3(std::fmax(amax / largest / outer, kLeastNormalE4m3));
    return {1.0f / outer / decode, decode};
  }
  const float outer = OuterEncode(quantization, of_tensor);
  const float decode = NearestE4m3(amax * (outer * (1.0f / largest)));
  return {std::fmin(1.0f / (decode * (1.0f / outer)), kFloatMax), decode};
}

/// Returns the scale of a cell in which an infinity or a NaN decides.
ScalarScale NonFiniteScale(const Quantization& quantization) {
  if (quantization.non_finite == NonFinitePolicy::kBlockNan) {
    return {kNanScale, kNanScale};
  }
  if (quantization.scale_format == ScaleFormat::kE8m0) return ScaleOfPower(127);
  if (quantization.scale_format == ScaleFormat::kE4m3) {
    return {1.0f / kLargestE4m3, kLargestE4m3};
  }
  return {};
}

}  // namespace

ScalarScale ScaleOfCell(const Quantization& quantization, float amax,
                        const TensorMagnitudes& tensor) {
  if (quantization.scale_format == ScaleFormat::kNone) return {};
  if (!std::isfinite(amax)) return NonFiniteScale(quantization);
  switch (quantization.scaling) {
    case formats::Scaling::kCurrent:
      break;
    case formats::Scaling::kDelayed:
      return tensor.history ? CurrentScale(quantization, *tensor.history)
                            : ScalarScale{};
    case formats::Scaling::kTwoLevel:
      return TwoLevelScale(quantization, amax, tensor.current);
  }
  return CurrentScale(quantization, amax);
}

float ScaleOfTensor(const Quantization& quantization,
                    const TensorMagnitudes& tensor) {
  if (quantization.scaling != formats::Scaling::kTwoLevel) return 1.0f;
  return quantization.scale_rule == ScaleRule::kTorchao
             ? OuterDecode(quantization, tensor.current)
             : 1.0f / OuterEncode(quantization, tensor.current);
}

}  // namespace isoloss::oracle
