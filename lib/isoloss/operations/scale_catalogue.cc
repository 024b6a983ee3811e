// Lists mistakes in the codes and scales of an operand; catalogue.cc has those
// in its values and their description.
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "isoloss/formats/bf16.h"
#include "isoloss/formats/format.h"
#include "isoloss/operations/catalogue.h"

namespace isoloss::operations {
namespace {

using formats::Quantization;
using formats::ScaleRule;
using oracle::ScalarScale;
using oracle::ScalarTensor;

bool HasScales(const Side& side, formats::ScaleFormat format) {
  return side.quantization && side.quantization->scale_format == format;
}

bool HasPowersOfTwo(const Side& side) {
  return HasScales(side, formats::ScaleFormat::kE8m0) ||
         HasScales(side, formats::ScaleFormat::kPow2);
}

/// Leaves scales unrounded, if powers of two are due.
bool UnroundedScales(Side& side) {
  if (!HasPowersOfTwo(side)) return false;
  side.quantization->scale_format = formats::ScaleFormat::kFp32;
  if (side.quantization->scale_rule != ScaleRule::kDeepgemm) {
    side.quantization->scale_rule = ScaleRule::kTe;
  }
  return true;
}

bool Change(Side& side, ChangeTensor change) {
  if (!side.quantization) return false;
  side.change = std::move(change);
  return true;
}

template <int kExponent>
bool DecodeOff(ScalarTensor& tensor, const Quantization& /*quantization*/) {
  for (ScalarScale& scale : tensor.scales) {
    scale.decode = std::ldexp(scale.decode, kExponent);
  }
  return true;
}

bool DecodeInBf16(ScalarTensor& tensor, const Quantization& /*quantization*/) {
  bool changed = false;
  for (ScalarScale& scale : tensor.scales) {
    const float rounded = formats::RoundToBf16(scale.decode);
    changed = changed || rounded != scale.decode;
    scale.decode = rounded;
  }
  return changed;
}

/// Casts each element anew.
template <typename Cast>
bool Recast(ScalarTensor& tensor, const Cast& cast) {
  bool changed = false;
  for (size_t r = 0; r < tensor.codes.rows(); ++r) {
    for (size_t c = 0; c < tensor.codes.cols(); ++c) {
      const float code =
          cast(tensor.elements(r, c), tensor.ScaleAt(r, c), tensor.codes(r, c));
      changed = changed || !(code == tensor.codes(r, c));
      tensor.codes(r, c) = code;
    }
  }
  return changed;
}

template <int kExponent>
bool ScaleOff(ScalarTensor& tensor, const Quantization& quantization) {
  for (ScalarScale& scale : tensor.scales) {
    scale.decode = std::ldexp(scale.decode, kExponent);
    scale.encode = std::ldexp(scale.encode, -kExponent);
  }
  const oracle::ScalarCoder coder(quantization);
  return Recast(tensor, [&](float element, const ScalarScale& scale, float) {
    return coder.Code(element, scale, 0);
  });
}

/// Takes scales of another tensor of equal size, and the codes that they give.
bool TakeScales(const std::vector<ScalarScale>& scales,
                const Quantization& quantization, ScalarTensor& tensor) {
  if (scales.size() != tensor.scales.size()) return false;
  tensor.scales = scales;
  const oracle::ScalarCoder coder(quantization);
  return Recast(tensor, [&](float element, const ScalarScale& scale, float) {
    return coder.Code(element, scale, 0);
  });
}

/// Computes scales from only the elements that keep(element, column) chooses.
template <typename Keep>
bool ScaleOf(ScalarTensor& tensor, const Quantization& quantization,
             const Keep& keep) {
  Matrix<float> kept(tensor.elements.rows(), tensor.elements.cols());
  for (size_t r = 0; r < kept.rows(); ++r) {
    for (size_t c = 0; c < kept.cols(); ++c) {
      const float element = tensor.elements(r, c);
      kept(r, c) = keep(element, c) ? element : 0.0f;
    }
  }
  return TakeScales(oracle::ScalarQuantize(kept.view(), quantization).scales,
                    quantization, tensor);
}

bool ScaleOfLargest(ScalarTensor& tensor, const Quantization& quantization) {
  return ScaleOf(tensor, quantization,
                 [](float element, size_t) { return element > 0.0f; });
}

bool ScaleOfFirstHalf(ScalarTensor& tensor, const Quantization& quantization) {
  const size_t block = tensor.cell_cols;
  return ScaleOf(tensor, quantization, [block](float, size_t column) {
    return 2 * (column % block) < block;
  });
}

/// Makes delayed scaling: the scales are those of an earlier tensor.
template <Earlier kEarlier>
bool StaleScale(Side& side) {
  if (!side.quantization || side.change != nullptr) return false;
  Side before = side;
  if (!TakeEarlier(kEarlier, before)) return false;
  const std::optional<ScalarTensor> tensor = Quantized(before);
  if (!tensor) return false;
  side.change = [scales = tensor->scales](ScalarTensor& changed,
                                          const Quantization& quantization) {
    return TakeScales(scales, quantization, changed);
  };
  return true;
}

std::vector<float> LargestOfCells(const ScalarTensor& tensor) {
  const size_t across =
      (tensor.codes.cols() + tensor.cell_cols - 1) / tensor.cell_cols;
  std::vector<float> largest(tensor.scales.size(), 0.0f);
  for (size_t r = 0; r < tensor.elements.rows(); ++r) {
    for (size_t c = 0; c < tensor.elements.cols(); ++c) {
      float& amax =
          largest[r / tensor.cell_rows * across + c / tensor.cell_cols];
      amax = std::max(amax, std::fabs(tensor.elements(r, c)));
    }
  }
  return largest;
}

/// Computes exponents of amax over the largest element. A number is rounded up
/// from `kUpFrom` of the power of two above it on; else it is rounded down.
template <double kUpFrom>
bool RoundedScales(ScalarTensor& tensor, const Quantization& quantization) {
  const float most = formats::MaxFinite(*quantization.element);
  const std::vector<float> largest = LargestOfCells(tensor);
  std::vector<ScalarScale> scales = tensor.scales;
  for (size_t i = 0; i < scales.size(); ++i) {
    if (!(largest[i] > 0.0f)) continue;
    int exponent = 0;
    const double fraction = std::frexp(
        static_cast<double>(largest[i]) / static_cast<double>(most), &exponent);
    if (fraction < kUpFrom) --exponent;
    scales[i].decode = std::ldexp(1.0f, exponent);
    scales[i].encode = std::ldexp(1.0f, -exponent);
  }
  return TakeScales(scales, quantization, tensor);
}

/// Changes scales of cells in which log2 of the rounded number is whole, as an
/// error of the logarithm would. It is amax over the largest element, or amax.
template <int kExponent>
bool ExactPowersOff(ScalarTensor& tensor, const Quantization& quantization) {
  const bool of_maximum = quantization.scale_rule == ScaleRule::kFloor ||
                          quantization.scale_rule == ScaleRule::kCeil ||
                          quantization.scale_rule == ScaleRule::kEven;
  const float divisor =
      of_maximum ? 1.0f : formats::MaxFinite(*quantization.element);
  const std::vector<float> largest = LargestOfCells(tensor);
  std::vector<ScalarScale> scales = tensor.scales;
  bool changed = false;
  for (size_t i = 0; i < scales.size(); ++i) {
    int exponent = 0;
    if (std::frexp(
            static_cast<double>(largest[i]) / static_cast<double>(divisor),
            &exponent) != 0.5) {
      continue;
    }
    changed = true;
    scales[i].decode = std::ldexp(scales[i].decode, kExponent);
    scales[i].encode = std::ldexp(scales[i].encode, -kExponent);
  }
  TakeScales(scales, quantization, tensor);
  return changed;
}

/// Reads the scales as if their matrix were stored transposed.
template <bool kStoredTransposed>
bool TransposedScales(ScalarTensor& tensor, const Quantization& /*q*/) {
  const std::vector<ScalarScale> scales = tensor.scales;
  const size_t cols =
      (tensor.codes.cols() + tensor.cell_cols - 1) / tensor.cell_cols;
  if (cols < 2 || scales.size() <= cols) return false;
  const size_t rows = scales.size() / cols;
  for (size_t r = 0; r < rows; ++r) {
    for (size_t c = 0; c < cols; ++c) {
      const size_t here = r * cols + c;
      const size_t there = c * rows + r;
      if (kStoredTransposed) {
        tensor.scales[there].decode = scales[here].decode;
      } else {
        tensor.scales[here].decode = scales[there].decode;
      }
    }
  }
  return true;
}

/// Gives each block the scale of another one along its row.
template <size_t kForward>
bool ShiftedScales(ScalarTensor& tensor, const Quantization& /*q*/) {
  const std::vector<ScalarScale> scales = tensor.scales;
  const size_t cols =
      (tensor.codes.cols() + tensor.cell_cols - 1) / tensor.cell_cols;
  if (cols < 2) return false;
  const size_t by = kForward == 1 ? 1 : cols - 1;
  for (size_t i = 0; i < scales.size(); ++i) {
    const size_t first = i / cols * cols;
    tensor.scales[i].decode = scales[first + (i - first + by) % cols].decode;
  }
  return true;
}

bool NoClamp(ScalarTensor& tensor, const Quantization& quantization) {
  const float most = formats::MaxFinite(*quantization.element);
  const float beyond = quantization.element->has_nan()
                           ? std::numeric_limits<float>::quiet_NaN()
                           : std::numeric_limits<float>::infinity();
  // This limit is halfway to the number after the largest one.
  const float limit =
      most + std::ldexp(1.0f, std::ilogb(most) -
                                  quantization.element->fraction_bits() - 1);
  return Recast(tensor,
                [&](float element, const ScalarScale& scale, float code) {
                  const float scaled = element * scale.encode;
                  if (!(std::fabs(scaled) > limit)) return code;
                  return quantization.element->has_infinity
                             ? std::copysign(HUGE_VALF, element)
                             : beyond;
                });
}

bool Clamp240(ScalarTensor& tensor, const Quantization& /*quantization*/) {
  static constexpr float kMost =
      240.0f;  // of E4M3 with a negative zero for NaN
  return Recast(tensor, [](float, const ScalarScale&, float code) {
    return std::clamp(code, -kMost, kMost);
  });
}

bool NoSubnormals(ScalarTensor& tensor, const Quantization& quantization) {
  const float least = std::ldexp(1.0f, 1 - quantization.element->bias);
  return Recast(tensor, [&](float, const ScalarScale&, float code) {
    return std::fabs(code) < least ? 0.0f : code;
  });
}

constexpr double kRootOfHalf = 0x1.6a09e667f3bcdp-1;

constexpr SideMistake kScaleMistakes[] = {
    {"decode_scale_plus_1",
     "products read the scales of {} with an exponent that was one too large",
     [](Side& side) { return Change(side, DecodeOff<1>); },
     "the scales of {} were stored with an exponent that is one too large"},
    {"decode_scale_minus_1",
     "products read the scales of {} with an exponent that was one too small",
     [](Side& side) { return Change(side, DecodeOff<-1>); },
     "the scales of {} were stored with an exponent that is one too small"},
    {"scale_bf16", "products read the scales of {} rounded to BF16",
     [](Side& side) { return Change(side, DecodeInBf16); },
     "the scales of {} were stored rounded to BF16"},
    {"scale_plus_1", "exponents of the scales of {} were one too large",
     [](Side& side) { return Change(side, ScaleOff<1>); }},
    {"scale_minus_1", "exponents of the scales of {} were one too small",
     [](Side& side) { return Change(side, ScaleOff<-1>); }},
    {"scale_exact_plus_1",
     "exponents of the scales of {} were one too large where the logarithm is "
     "a whole number",
     [](Side& side) {
       return HasPowersOfTwo(side) && Change(side, ExactPowersOff<1>);
     }},
    {"scale_exact_minus_1",
     "exponents of the scales of {} were one too small where the logarithm is "
     "a whole number",
     [](Side& side) {
       return HasPowersOfTwo(side) && Change(side, ExactPowersOff<-1>);
     }},
    {"scale_of_step_before",
     "scales of {} were those of the step before, elements those of this one",
     StaleScale<&Side::previous>},
    {"scale_of_call_before",
     "scales of {} were those of the call before, elements those of this one",
     StaleScale<&Side::previous_call>},
    {"scale_rounded", "scales of {} were rounded to the nearest power of two",
     [](Side& side) { return Change(side, RoundedScales<kRootOfHalf>); }},
    {"scale_rounded_up", "scales of {} were rounded up to powers of two",
     [](Side& side) {
       return HasScales(side, formats::ScaleFormat::kFp32) &&
              Change(side, RoundedScales<0x1.0000000000001p-1>);
     }},
    {"scale_rounded_down", "scales of {} were rounded down to powers of two",
     [](Side& side) {
       return HasScales(side, formats::ScaleFormat::kFp32) &&
              Change(side, RoundedScales<1.0>);
     }},
    {"scale_unrounded",
     "scales of {} were FP32 numbers, not rounded to powers of two",
     UnroundedScales},
    {"scale_of_largest",
     "scales of {} followed the largest elements, not the largest magnitudes",
     [](Side& side) { return Change(side, ScaleOfLargest); }},
    {"scale_of_first_half",
     "scales of {} followed the first half of each block",
     [](Side& side) { return Change(side, ScaleOfFirstHalf); }},
    {"transposed_scale", "the scales of {} were read transposed",
     [](Side& side) { return Change(side, TransposedScales<false>); },
     "the scales of {} were stored as if their matrix had been read "
     "transposed"},
    {"scale_stored_transposed", "the scales of {} were stored transposed",
     [](Side& side) { return Change(side, TransposedScales<true>); }},
    {"scale_of_block_before",
     "each block of {} had the scale of the one before",
     [](Side& side) { return Change(side, ShiftedScales<0>); }},
    {"scale_of_block_after", "each block of {} had the scale of the one after",
     [](Side& side) { return Change(side, ShiftedScales<1>); }},
    {"no_clamp",
     "elements of {} beyond the largest value became NaN or infinity",
     [](Side& side) { return Change(side, NoClamp); }},
    {"clamp_240", "elements of {} were clamped to 240",
     [](Side& side) { return Change(side, Clamp240); }},
    {"no_subnormals", "subnormal elements of {} became zero",
     [](Side& side) { return Change(side, NoSubnormals); }},
};

}  // namespace

bool FollowMaxima(double factor, Side& side) {
  if (side.change != nullptr) return false;
  return Change(
      side, [factor](ScalarTensor& tensor, const Quantization& quantization) {
        Matrix<float> scaled(tensor.elements.rows(), tensor.elements.cols());
        for (size_t r = 0; r < scaled.rows(); ++r) {
          for (size_t c = 0; c < scaled.cols(); ++c) {
            scaled(r, c) = tensor.elements(r, c) * static_cast<float>(factor);
          }
        }
        return TakeScales(
            oracle::ScalarQuantize(scaled.view(), quantization).scales,
            quantization, tensor);
      });
}

std::span<const double> MaximaFactors() {
  static constexpr double kFactors[] = {
      0.1,           0.01,         0.25,  0.75,        0.8,         0.9,
      0.95,          1.05,         1.1,   1.25,        1.5,         1.0 / 3,
      3.0,           0.2,          5.0,   4.0,         10.0,        16.0,
      100.0,         0.3,          0.4,   0.6,         0.7,         0.85,
      1.2,           1.0 / 448,    448.0, 1.0 / 57344, 240.0 / 448, 448.0 / 240,
      448.0 / 57344, 57344.0 / 448};
  return kFactors;
}

std::span<const SideMistake> ScaleMistakes() { return kScaleMistakes; }

}  // namespace isoloss::operations
