// Computes what the wire would make of rows, and their sums on the way back,
// where all ranks share one memory and nothing travels.
//
// The definitions of one value are constexpr, so that kernels of a device can
// share their text.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

#include "isoloss/base/executor.h"
#include "isoloss/base/matrix.h"
#include "isoloss/formats/e4m3.h"
#include "isoloss/formats/e8m0.h"
#include "isoloss/formats/format.h"
#include "isoloss/formats/mx_block.h"
#include "isoloss/kernels/rounding.h"
#include "isoloss/kernels/wire.h"

namespace isoloss::kernels {

/// Names a wire format that quantises; wire.h has the formulas.
enum class RowFormat {
  kMx,        ///< EncodeMxRow
  kE4m3Fp32,  ///< EncodeE4m3Row with RunScale::kFp32
  kE4m3Pow2,  ///< EncodeE4m3Row with RunScale::kPow2
};

/// Returns how many values of a row share a scale.
constexpr size_t RunOf(RowFormat format) {
  return format == RowFormat::kMx ? formats::kMxBlockSize : kScaledRun;
}

/// Values are multiplied by `encode` before they become codes; codes' values
/// are multiplied by `decode`. Both are NaN for a run that is not finite.
struct RunFactors {
  float encode;
  float decode;
};

/// Returns the factors of a run whose largest magnitude has the bits `amax`.
constexpr RunFactors FactorsOfRun(RowFormat format, uint32_t amax) {
  constexpr formats::Format element = formats::kE4m3Format;
  constexpr float nan = std::bit_cast<float>(formats::fp32::kNan);
  constexpr float least = 1e-4f;
  constexpr float max = formats::MaxFinite(element);
  if (amax >= formats::fp32::kInfinity) return {nan, nan};
  if (format == RowFormat::kMx) {
    const uint8_t scale =
        formats::E8m0Scale(amax, element, formats::ScaleRule::kRceil);
    return {formats::E8m0Reciprocal(scale), formats::DecodeE8m0(scale)};
  }
  const float given = std::bit_cast<float>(amax);
  const float a = given < least ? least : given;
  if (format == RowFormat::kE4m3Fp32) return {max / a, a / max};
  const int exponent = static_cast<int>(std::bit_cast<uint32_t>(a) >> 23) -
                       formats::fp32::kBias - element.emax;
  float scale = formats::fp32::PowerOfTwo(exponent);
  if (max * scale < a) scale *= 2;
  return {1 / scale, scale};
}

/// Returns the code of a value of a run.
constexpr uint32_t WireCode(float value, RunFactors factors) {
  constexpr formats::Format element = formats::kE4m3Format;
  if (std::isnan(factors.decode)) return element.nan_code;
  return formats::Encode(element, value * factors.encode,
                         formats::Overflow::kSaturate);
}

/// Returns what a receiver makes of a value of a run.
constexpr float RoundTripped(float value, RunFactors factors,
                             Rounding rounding) {
  constexpr formats::Format element = formats::kE4m3Format;
  const float decoded = formats::ValueOfCode(element, WireCode(value, factors));
  return Rounded(decoded * factors.decode, rounding);
}

/// Each row of `to` is what a receiver decodes from the encoded row of `from`.
/// Shapes   from, to [T, D]; they may be the same memory.
/// Errors   ShapeError if they differ.
void RoundTripRows(MatrixView<const float> from, RowFormat format,
                   Rounding rounding, MatrixView<float> to, Executor& executor);

/// Sums are rounded at their end, or after every addition.
struct SumRounding {
  Rounding rounding;
  bool each = false;
};

/// Sum i has the terms rows[terms[begins[i]]], …, rows[terms[begins[i + 1] -
/// 1]], in this order. If there are weights, a term is round(fma(weight of the
/// row, row, +0)).
/// Shapes   rows [R, D]; weights [R, 1] or empty; begins [sums + 1]; terms
///          [begins.back()], each in [0, R).
struct RowSums {
  MatrixView<const float> rows;
  MatrixView<const float> weights;
  std::span<const uint32_t> begins;
  std::span<const int32_t> terms;

  size_t sums() const { return begins.size() - 1; }
  /// Returns column `j` of sum `i`, from +0.
  constexpr float Of(size_t i, size_t j, SumRounding how) const {
    float sum = 0.0f;
    for (size_t n = begins[i]; n < begins[i + 1]; ++n) {
      const auto row = static_cast<size_t>(terms[n]);
      float term = rows(row, j);
      if (!weights.empty()) {
        term = Rounded(std::fma(weights(row, 0), term, 0.0f), how.rounding);
      }
      sum += term;
      if (how.each) sum = Rounded(sum, how.rounding);
    }
    return Rounded(sum, how.rounding);
  }
};

/// Sets out[i] = sum i.
/// Shapes   out [sums, D]; no memory of the rows.
/// Errors   ShapeError if an extent or a term breaks a rule above.
void SumRows(const RowSums& sums, SumRounding how, MatrixView<float> out,
             Executor& executor);

}  // namespace isoloss::kernels
