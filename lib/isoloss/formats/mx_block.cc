#include "isoloss/formats/mx_block.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "isoloss/base/error.h"

namespace isoloss::formats {
namespace {

constexpr uint32_t kInfinityBits = 0x7F800000;
constexpr uint8_t kNanScale = 0xFF;
constexpr uint8_t kMaxScale = 0xFE;

struct NamedMode {
  ScaleMode value;
  std::string_view name;
};
constexpr NamedMode kScaleModes[] = {{ScaleMode::kFloor, "floor"},
                                     {ScaleMode::kCeil, "ceil"},
                                     {ScaleMode::kEven, "even"},
                                     {ScaleMode::kRceil, "rceil"}};

struct NamedPolicy {
  NonFinitePolicy value;
  std::string_view name;
};
constexpr NamedPolicy kNonFinitePolicies[] = {
    {NonFinitePolicy::kBlockNan, "block_nan"}, {NonFinitePolicy::kTe, "te"}};

template <typename Named, size_t kCount, typename Value>
std::string_view NameOf(const Named (&table)[kCount], Value value) {
  const auto entry = std::find_if(
      std::begin(table), std::end(table),
      [&](const Named& candidate) { return candidate.value == value; });
  ISOLOSS_ASSERT(entry != std::end(table));
  return entry->name;
}

template <typename Named, size_t kCount>
auto ValueOf(const Named (&table)[kCount], std::string_view name,
             std::string_view what) {
  std::array<std::string_view, kCount> names;
  for (size_t i = 0; i < kCount; ++i) {
    if (table[i].name == name) return table[i].value;
    names[i] = table[i].name;
  }
  ThrowError(ErrorKind::kConfig,
             "{}: `{}` was given, but it must be one of {}. Use one of these "
             "names.",
             what, name, fmt::join(names, ", "));
}

uint32_t MagnitudeBits(float value) {
  return std::bit_cast<uint32_t>(value) & 0x7FFFFFFF;
}

/// Bits of the largest magnitude. As integers, finite < infinity < NaN, so a
/// NaN or an infinity in the block shows in the maximum.
uint32_t MaxMagnitudeBits(std::span<const float> block, bool skip_nan) {
  uint32_t largest = 0;
  for (const float value : block) {
    const uint32_t bits = MagnitudeBits(value);
    if (skip_nan && bits > kInfinityBits) continue;
    largest = std::max(largest, bits);
  }
  return largest;
}

/// The scale byte for a finite largest magnitude.
uint8_t FiniteScale(uint32_t amax_bits, const Format& element, ScaleMode mode) {
  const uint32_t exponent = amax_bits >> 23;
  const uint32_t mantissa = amax_bits & 0x7FFFFF;
  const uint32_t emax = static_cast<uint32_t>(element.emax);
  uint32_t rounded_exponent = exponent;
  switch (mode) {
    case ScaleMode::kFloor:
      break;
    case ScaleMode::kCeil:
      rounded_exponent += mantissa != 0 ? 1 : 0;
      break;
    case ScaleMode::kEven:
      rounded_exponent =
          (amax_bits + (1u << (22 - element.mantissa_bits))) >> 23;
      if (rounded_exponent == 255) return kNanScale;
      break;
    case ScaleMode::kRceil: {
      // The definition rounds amax * (1 / max) to FP32 first. That differs from
      // the exact quotient for one amax per format, whose quotient rounds down
      // to 2^-127.
      const uint32_t limit =
          element.max_mantissa_field() + (exponent == emax ? 1 : 0);
      rounded_exponent += mantissa > limit ? 1 : 0;
      break;
    }
  }
  return static_cast<uint8_t>(rounded_exponent > emax ? rounded_exponent - emax
                                                      : 0);
}

uint8_t EncodeElement(float value, float reciprocal, const MxSpec& spec) {
  const Format& element = *spec.element;
  if (std::isnan(value)) {
    // Only kTe gets here with a NaN.
    return element.has_nan() ? Encode(element, value, Overflow::kSaturate)
                             : element.max_code;
  }
  return Encode(element, value * reciprocal, Overflow::kSaturate);
}

float DequantizedElement(uint8_t code, float scale, const Format& element) {
  return Decode(element, code) * scale;
}

/// Writes the codes of one block and returns its scale byte.
uint8_t QuantizeBlock(std::span<const float> block, const MxSpec& spec,
                      std::span<uint8_t> codes) {
  const uint8_t scale = MxScale(block, spec);
  if (scale == kNanScale) {
    std::fill(codes.begin(), codes.end(), spec.element->nan_code);
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

std::string_view ScaleModeName(ScaleMode mode) {
  return NameOf(kScaleModes, mode);
}

std::string_view NonFinitePolicyName(NonFinitePolicy policy) {
  return NameOf(kNonFinitePolicies, policy);
}

ScaleMode ScaleModeByName(std::string_view name) {
  return ValueOf(kScaleModes, name, "scale mode");
}

NonFinitePolicy NonFinitePolicyByName(std::string_view name) {
  return ValueOf(kNonFinitePolicies, name, "non-finite policy");
}

float DecodeE8m0(uint8_t scale) {
  if (scale == kNanScale) return std::bit_cast<float>(0x7FC00000u);
  if (scale == 0) return std::bit_cast<float>(0x00400000u);
  return std::bit_cast<float>(uint32_t{scale} << 23);
}

float E8m0Reciprocal(uint8_t scale) {
  return DecodeE8m0(
      scale == kNanScale ? kNanScale : static_cast<uint8_t>(kMaxScale - scale));
}

uint8_t MxScale(std::span<const float> block, const MxSpec& spec) {
  ISOLOSS_ASSERT(spec.element != nullptr && !block.empty());
  const bool te = spec.non_finite == NonFinitePolicy::kTe;
  const uint32_t amax_bits = MaxMagnitudeBits(block, te);
  if (amax_bits >= kInfinityBits) return te ? kMaxScale : kNanScale;
  return FiniteScale(amax_bits, *spec.element, spec.scale_mode);
}

MxMatrix QuantizeMx(MatrixView<const float> values, const MxSpec& spec) {
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

void QuantizeDequantizeBlock(std::span<const float> in, const MxSpec& spec,
                             std::span<float> out) {
  ISOLOSS_ASSERT(in.size() == out.size() && in.size() <= kMxBlockSize);
  std::array<uint8_t, kMxBlockSize> codes;
  const float scale =
      DecodeE8m0(QuantizeBlock(in, spec, std::span(codes).first(in.size())));
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = DequantizedElement(codes[i], scale, *spec.element);
  }
}

}  // namespace isoloss::formats
