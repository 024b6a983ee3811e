#include "isoloss/formats/mx_block.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "isoloss/base/error.h"

namespace isoloss::formats {
namespace {

constexpr uint32_t kInfinityBits = 0x7F800000;
uint32_t MagnitudeBits(float value) {
  return std::bit_cast<uint32_t>(value) & 0x7FFFFFFF;
}

/// Returns the bits of the largest magnitude. As integers, finite < infinity <
/// NaN, so a NaN or an infinity in the block shows in the maximum.
uint32_t MaxMagnitudeBits(std::span<const float> block, bool skip_nan) {
  uint32_t largest = 0;
  for (const float value : block) {
    const uint32_t bits = MagnitudeBits(value);
    if (skip_nan && bits > kInfinityBits) continue;
    largest = std::max(largest, bits);
  }
  return largest;
}

uint8_t EncodeElement(float value, float reciprocal, const Quantization& spec) {
  const Format& element = *spec.element;
  if (std::isnan(value)) {
    // Only kTe comes here with a NaN.
    return static_cast<uint8_t>(
        element.has_nan() ? Encode(element, value, Overflow::kSaturate)
                          : element.max_code);
  }
  return static_cast<uint8_t>(
      Encode(element, value * reciprocal, Overflow::kSaturate));
}

float DequantizedElement(uint8_t code, float scale, const Format& element) {
  return Decode(element, code) * scale;
}

/// Writes the codes of one block and returns its scale byte.
uint8_t QuantizeBlock(std::span<const float> block, const Quantization& spec,
                      std::span<uint8_t> codes) {
  const uint8_t scale = MxScale(block, spec);
  if (scale == kNanE8m0) {
    std::fill(codes.begin(), codes.end(),
              static_cast<uint8_t>(spec.element->nan_code));
    return scale;
  }
  const float reciprocal = E8m0Reciprocal(scale);
  for (size_t i = 0; i < block.size(); ++i) {
    codes[i] = EncodeElement(block[i], reciprocal, spec);
  }
  return scale;
}

size_t BlockCount(size_t length) {
  return (length + kMxBlockSize - 1) / kMxBlockSize;
}

}  // namespace

uint8_t MxScale(std::span<const float> block, const Quantization& spec) {
  ISOLOSS_ASSERT(spec.is_mx() && !block.empty());
  const bool te = spec.non_finite == NonFinitePolicy::kTe;
  const uint32_t amax_bits = MaxMagnitudeBits(block, te);
  if (amax_bits >= kInfinityBits) return te ? kMaxE8m0 : kNanE8m0;
  return E8m0Scale(amax_bits, *spec.element, spec.scale_rule);
}

MxMatrix QuantizeMx(MatrixView<const float> values, const Quantization& spec) {
  MxMatrix result;
  result.codes.ResizeUninitialized(values.rows(), values.cols());
  result.scales.ResizeUninitialized(values.rows(), BlockCount(values.cols()));
  for (size_t row = 0; row < values.rows(); ++row) {
    for (size_t block = 0; block < result.scales.cols(); ++block) {
      const size_t first = block * kMxBlockSize;
      const size_t count = std::min(kMxBlockSize, values.cols() - first);
      result.scales(row, block) =
          QuantizeBlock({values.Row(row) + first, count}, spec,
                        {result.codes.Row(row) + first, count});
    }
  }
  return result;
}

Matrix<float> DequantizeMx(const MxMatrix& quantized, const Format& element) {
  const Matrix<uint8_t>& codes = quantized.codes;
  const Matrix<uint8_t>& scales = quantized.scales;
  if (scales.rows() != codes.rows() ||
      scales.cols() != BlockCount(codes.cols())) {
    ThrowError(ErrorKind::kShape,
               "DequantizeMx: codes is {}x{} and scales is {}x{}, but {} "
               "columns in blocks of {} need {} scales in each of {} rows. "
               "Pass the scales that QuantizeMx returned with the codes.",
               codes.rows(), codes.cols(), scales.rows(), scales.cols(),
               codes.cols(), kMxBlockSize, BlockCount(codes.cols()),
               codes.rows());
  }
  Matrix<float> values;
  values.ResizeUninitialized(codes.rows(), codes.cols());
  for (size_t row = 0; row < codes.rows(); ++row) {
    for (size_t col = 0; col < codes.cols(); ++col) {
      values(row, col) = DequantizedElement(
          codes(row, col), DecodeE8m0(scales(row, col / kMxBlockSize)),
          element);
    }
  }
  return values;
}

void QuantizeDequantizeBlock(std::span<const float> in,
                             const Quantization& spec, std::span<float> out) {
  ISOLOSS_ASSERT(in.size() == out.size() && in.size() <= kMxBlockSize);
  std::array<uint8_t, kMxBlockSize> codes;
  const float scale =
      DecodeE8m0(QuantizeBlock(in, spec, std::span(codes).first(in.size())));
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = DequantizedElement(codes[i], scale, *spec.element);
  }
}

}  // namespace isoloss::formats
