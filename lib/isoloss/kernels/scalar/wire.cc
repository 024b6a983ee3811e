#include "isoloss/kernels/scalar/wire.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <span>

#include "isoloss/formats/bf16.h"
#include "isoloss/formats/format.h"
#include "isoloss/formats/mx_block.h"

namespace isoloss::kernels::scalar {
namespace {

const formats::Format& E4m3() {
  static const formats::Format& format = formats::FormatByName("e4m3");
  return format;
}

template <typename T>
void Put(T value, std::byte* bytes, size_t index) {
  std::memcpy(bytes + index * sizeof(T), &value, sizeof(T));
}

template <typename T>
T Get(const std::byte* bytes, size_t index) {
  T value;
  std::memcpy(&value, bytes + index * sizeof(T), sizeof(T));
  return value;
}

/// Values are multiplied by `encode` before they are sent and by `decode` on
/// arrival.
struct Factors {
  float encode;
  float decode;
};

/// Returns a value that is not finite if one of the values is not.
float LargestMagnitude(std::span<const float> run) {
  float largest = 1e-4f;
  for (const float value : run) {
    if (!std::isfinite(value)) return std::nanf("");
    largest = std::max(largest, std::fabs(value));
  }
  return largest;
}

Factors FactorsOf(float amax, RunScale run_scale) {
  const float max = formats::MaxFinite(E4m3());
  if (run_scale == RunScale::kFp32) return {max / amax, amax / max};
  const int exponent = std::ilogb(amax) - E4m3().emax;
  float scale = std::ldexp(1.0f, exponent);
  if (max * scale < amax) scale *= 2;
  return {1 / scale, scale};
}

}  // namespace

void EncodeBf16Row(const float* row, size_t width, std::byte* bytes) {
  for (size_t i = 0; i < width; ++i) {
    Put<uint16_t>(formats::EncodeBf16(row[i]), bytes, i);
  }
}

void DecodeBf16Row(const std::byte* bytes, size_t width, float* row) {
  for (size_t i = 0; i < width; ++i) {
    row[i] = formats::DecodeBf16(Get<uint16_t>(bytes, i));
  }
}

void EncodeMxRow(const float* row, size_t width, std::byte* bytes) {
  const formats::MxMatrix quantized = formats::QuantizeMx(
      {row, 1, width}, {&E4m3(), formats::ScaleRule::kRceil,
                        formats::NonFinitePolicy::kBlockNan});
  for (size_t i = 0; i < width; ++i) Put(quantized.codes(0, i), bytes, i);
  for (size_t block = 0; block < quantized.scales.cols(); ++block) {
    Put(quantized.scales(0, block), bytes + width, block);
  }
}

void DecodeMxRow(const std::byte* bytes, size_t width, Rounding rounding,
                 float* row) {
  const std::byte* const scales = bytes + width;
  for (size_t i = 0; i < width; ++i) {
    const float value = formats::Decode(E4m3(), Get<uint8_t>(bytes, i));
    const float scale =
        formats::DecodeE8m0(Get<uint8_t>(scales, i / formats::kMxBlockSize));
    row[i] = Rounded(value * scale, rounding);
  }
}

void EncodeE4m3Row(const float* row, size_t width, RunScale run_scale,
                   std::byte* bytes) {
  std::byte* const scales = bytes + width;
  for (size_t first = 0; first < width; first += kScaledRun) {
    const size_t count = std::min(kScaledRun, width - first);
    const float amax = LargestMagnitude({row + first, count});
    const bool finite = std::isfinite(amax);
    const Factors factors = FactorsOf(finite ? amax : 1.0f, run_scale);
    for (size_t i = first; i < first + count; ++i) {
      const uint32_t code =
          finite ? formats::Encode(E4m3(), row[i] * factors.encode,
                                   formats::Overflow::kSaturate)
                 : E4m3().nan_code;
      bytes[i] = static_cast<std::byte>(code);
    }
    Put(finite ? factors.decode : std::bit_cast<float>(0x7FC00000u), scales,
        first / kScaledRun);
  }
}

void DecodeE4m3Row(const std::byte* bytes, size_t width, Rounding rounding,
                   float* row) {
  for (size_t i = 0; i < width; ++i) {
    const float value = formats::Decode(E4m3(), Get<uint8_t>(bytes, i));
    const float scale = Get<float>(bytes + width, i / kScaledRun);
    row[i] = Rounded(value * scale, rounding);
  }
}

}  // namespace isoloss::kernels::scalar
