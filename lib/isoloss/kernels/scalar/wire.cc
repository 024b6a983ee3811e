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
#include "isoloss/kernels/travel.h"

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

/// Returns the bits of the largest magnitude: finite < infinity < NaN.
uint32_t LargestMagnitude(std::span<const float> run) {
  uint32_t largest = 0;
  for (const float value : run) {
    largest = std::max(largest, std::bit_cast<uint32_t>(std::fabs(value)));
  }
  return largest;
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
  const RowFormat format = run_scale == RunScale::kFp32 ? RowFormat::kE4m3Fp32
                                                        : RowFormat::kE4m3Pow2;
  std::byte* const scales = bytes + width;
  for (size_t first = 0; first < width; first += kScaledRun) {
    const size_t count = std::min(kScaledRun, width - first);
    const RunFactors factors =
        FactorsOfRun(format, LargestMagnitude({row + first, count}));
    for (size_t i = first; i < first + count; ++i) {
      bytes[i] = static_cast<std::byte>(WireCode(row[i], factors));
    }
    Put(factors.decode, scales, first / kScaledRun);
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
