// Lists mistakes in how codes and scales of an operand are computed.
// catalogue.cc has those in its values and their description, and
// earlier_scales.cc and misread_scales.cc those of other scales.
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "isoloss/formats/format.h"
#include "isoloss/operations/catalogue.h"
#include "isoloss/operations/scale_changes.h"

namespace isoloss::operations {
namespace {

using formats::Quantization;
using formats::ScaleFormat;
using formats::ScaleRule;
using oracle::ScalarScale;
using oracle::ScalarTensor;

bool HasScales(const Side& side, ScaleFormat format) {
  return side.quantization && side.quantization->scale_format == format;
}

bool HasPowersOfTwo(const Side& side) {
  return HasScales(side, ScaleFormat::kE8m0) ||
         HasScales(side, ScaleFormat::kPow2);
}

bool MayBeRounded(const Side& side) {
  return HasScales(side, ScaleFormat::kFp32) ||
         HasScales(side, ScaleFormat::kE4m3);
}

/// Leaves scales unrounded, if powers of two are due.
bool UnroundedScales(Side& side) {
  if (!HasPowersOfTwo(side)) return false;
  side.quantization->scale_format = ScaleFormat::kFp32;
  if (side.quantization->scale_rule != ScaleRule::kDeepgemm) {
    side.quantization->scale_rule = ScaleRule::kTe;
  }
  return true;
}

template <int kExponent>
bool ScaleOff(ScalarTensor& tensor, const Quantization& quantization) {
  for (ScalarScale& scale : tensor.scales) {
    const float wanted = std::ldexp(scale.decode, kExponent);
    const float decode = InScaleFormat(quantization, wanted);
    if (decode == wanted) {
      scale.decode = decode;
      scale.encode = std::ldexp(scale.encode, -kExponent);
    } else {
      SetScale(decode, tensor.tensor_scale, scale);
    }
  }
  return Recast(tensor, quantization);
}

template <int kUnits>
bool ScaleUnitsOff(ScalarTensor& tensor, const Quantization& quantization) {
  if (quantization.scale_format != ScaleFormat::kE4m3) return false;
  for (ScalarScale& scale : tensor.scales) {
    SetScale(NextE4m3(scale.decode, kUnits), tensor.tensor_scale, scale);
  }
  return Recast(tensor, quantization);
}

/// Computes scales from only the elements that keep(element, row, column)
/// chooses.
template <typename Keep>
bool ScaleOf(ScalarTensor& tensor, const Quantization& quantization,
             const Keep& keep) {
  return FollowLargest(LargestOfCells(tensor, keep),
                       LargestOf(LargestOfCells(tensor)), quantization, tensor);
}

bool ScaleOfLargest(ScalarTensor& tensor, const Quantization& quantization) {
  return ScaleOf(tensor, quantization,
                 [](float element, size_t, size_t) { return element > 0.0f; });
}

bool ScaleOfFirstHalf(ScalarTensor& tensor, const Quantization& quantization) {
  const size_t block = tensor.cell_cols;
  return ScaleOf(tensor, quantization, [block](float, size_t, size_t column) {
    return 2 * (column % block) < block;
  });
}

/// Lets the scale of the whole tensor follow its maximum times kFactor.
template <double kFactor>
bool TensorScaleOff(ScalarTensor& tensor, const Quantization& quantization) {
  if (!quantization.scales_tensor()) return false;
  const std::vector<float> largest = LargestOfCells(tensor);
  return FollowLargest(largest,
                       LargestOf(largest) * static_cast<float>(kFactor),
                       quantization, tensor);
}

bool OneLevel(ScalarTensor& tensor, const Quantization& quantization) {
  if (!quantization.scales_tensor()) return false;
  Quantization one = quantization;
  one.scaling = formats::Scaling::kCurrent;
  return FollowLargest(LargestOfCells(tensor), 0.0f, one, tensor);
}

/// These are exponents of E4M3's powers of two.
constexpr int kLeastOfE4m3 = -9;
constexpr int kMostOfE4m3 = 8;

/// Computes exponents of amax over the largest element. A number is rounded up
/// from `kUpFrom` of the power of two above it on; else it is rounded down.
template <double kUpFrom>
bool RoundedScales(ScalarTensor& tensor, const Quantization& quantization) {
  const float most = formats::MaxFinite(*quantization.element);
  const std::vector<float> largest = LargestOfCells(tensor);
  std::vector<ScalarScale> scales = tensor.scales;
  for (size_t i = 0; i < scales.size(); ++i) {
    if (!(largest[i] > 0.0f)) continue;
    // E4M3 holds the number itself, rounded.
    const bool is_e4m3 = quantization.scale_format == ScaleFormat::kE4m3;
    int exponent = 0;
    const double fraction = std::frexp(
        is_e4m3 ? static_cast<double>(scales[i].decode)
                : static_cast<double>(largest[i]) / static_cast<double>(most),
        &exponent);
    if (fraction < kUpFrom) --exponent;
    if (is_e4m3) {
      exponent = std::clamp(exponent, kLeastOfE4m3, kMostOfE4m3);
    }
    SetScale(std::ldexp(1.0f, exponent), tensor.tensor_scale, scales[i]);
  }
  return TakeScales(scales, tensor.tensor_scale, quantization, tensor);
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
  TakeScales(scales, tensor.tensor_scale, quantization, tensor);
  return changed;
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

/// 240 is the largest E4M3 number if negative zero is NaN, and 4 is what blocks
/// of four-over-six may end at.
template <int kMostCode>
bool ClampAt(ScalarTensor& tensor, const Quantization& /*quantization*/) {
  static constexpr auto kMost = static_cast<float>(kMostCode);
  return Recast(tensor, [](float, const ScalarScale&, float code) {
    return std::clamp(code, -kMost, kMost);
  });
}

template <int kScale>
bool ZeroCells(ScalarTensor& tensor, const Quantization& /*quantization*/) {
  const std::vector<float> largest = LargestOfCells(tensor);
  bool changed = false;
  for (size_t i = 0; i < largest.size(); ++i) {
    if (largest[i] > 0.0f) continue;
    changed = changed || tensor.scales[i].decode != kScale;
    tensor.scales[i].decode = kScale;
  }
  return changed;
}

bool ZeroCellsBecomeNan(ScalarTensor& tensor,
                        const Quantization& quantization) {
  if (!quantization.element->has_nan()) return false;
  const std::vector<float> largest = LargestOfCells(tensor);
  return Recast(tensor, [&](float, const ScalarScale& scale, float code) {
    const auto cell = static_cast<size_t>(&scale - tensor.scales.data());
    return largest[cell] == 0.0f ? std::numeric_limits<float>::quiet_NaN()
                                 : code;
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
    {"scale_plus_1", "exponents of the scales of {} were one too large",
     [](Side& side) { return SetChange(side, ScaleOff<1>); }},
    {"scale_minus_1", "exponents of the scales of {} were one too small",
     [](Side& side) { return SetChange(side, ScaleOff<-1>); }},
    {"scale_unit_plus_1", "scales of {} were one unit of E4M3 too large",
     [](Side& side) { return SetChange(side, ScaleUnitsOff<1>); }},
    {"scale_unit_minus_1", "scales of {} were one unit of E4M3 too small",
     [](Side& side) { return SetChange(side, ScaleUnitsOff<-1>); }},
    {"scale_exact_plus_1",
     "exponents of the scales of {} were one too large where the logarithm is "
     "a whole number",
     [](Side& side) {
       return HasPowersOfTwo(side) && SetChange(side, ExactPowersOff<1>);
     }},
    {"scale_exact_minus_1",
     "exponents of the scales of {} were one too small where the logarithm is "
     "a whole number",
     [](Side& side) {
       return HasPowersOfTwo(side) && SetChange(side, ExactPowersOff<-1>);
     }},
    {"tensor_scale_256",
     "the scale of the whole tensor of {} left blocks scales up to 256, as "
     "four-over-six does",
     [](Side& side) { return SetChange(side, TensorScaleOff<448.0 / 256>); }},
    {"one_level", "{} had no scale of the whole tensor, only those of blocks",
     [](Side& side) { return SetChange(side, OneLevel); }},
    {"zero_block_scale_1", "scales of blocks of zeros in {} were 1",
     [](Side& side) { return SetChange(side, ZeroCells<1>); }},
    {"zero_block_scale_0", "scales of blocks of zeros in {} were 0",
     [](Side& side) { return SetChange(side, ZeroCells<0>); }},
    {"zero_block_nan", "elements of blocks of zeros in {} became NaN",
     [](Side& side) { return SetChange(side, ZeroCellsBecomeNan); }},
    {"scale_rounded", "scales of {} were rounded to the nearest power of two",
     [](Side& side) { return SetChange(side, RoundedScales<kRootOfHalf>); }},
    {"scale_rounded_up", "scales of {} were rounded up to powers of two",
     [](Side& side) {
       return MayBeRounded(side) &&
              SetChange(side, RoundedScales<0x1.0000000000001p-1>);
     }},
    {"scale_rounded_down", "scales of {} were rounded down to powers of two",
     [](Side& side) {
       return MayBeRounded(side) && SetChange(side, RoundedScales<1.0>);
     }},
    {"scale_unrounded",
     "scales of {} were FP32 numbers, not rounded to powers of two",
     UnroundedScales},
    {"scale_of_largest",
     "scales of {} followed the largest elements, not the largest magnitudes",
     [](Side& side) { return SetChange(side, ScaleOfLargest); }},
    {"scale_of_first_half",
     "scales of {} followed the first half of each block",
     [](Side& side) { return SetChange(side, ScaleOfFirstHalf); }},
    {"no_clamp",
     "elements of {} beyond the largest value became NaN or infinity",
     [](Side& side) { return SetChange(side, NoClamp); }},
    {"clamp_240", "elements of {} were clamped to 240",
     [](Side& side) { return SetChange(side, ClampAt<240>); }},
    {"clamp_4", "elements of {} were clamped to 4",
     [](Side& side) { return SetChange(side, ClampAt<4>); }},
    {"no_subnormals", "subnormal elements of {} became zero",
     [](Side& side) { return SetChange(side, NoSubnormals); }},
};

}  // namespace

bool FollowMaxima(double factor, Side& side) {
  if (side.change != nullptr) return false;
  if (side.quantization && side.quantization->reads_history()) {
    return OtherHistory(side, [&] {
      const float amax = side.state.history.value_or(0.0f);
      side.margin = 0.0;
      return amax * static_cast<float>(factor);
    });
  }
  return SetChange(
      side, [factor](ScalarTensor& tensor, const Quantization& quantization) {
        std::vector<float> largest = LargestOfCells(tensor);
        const float of_tensor = LargestOf(largest);
        for (float& amax : largest) amax *= static_cast<float>(factor);
        return FollowLargest(largest, of_tensor, quantization, tensor);
      });
}

bool FollowShare(const RankShare& share, bool along_rows, Side& side) {
  // The catalogue has the first half of each block.
  const bool is_half =
      !along_rows && share == RankShare{.parts = 2, .place = 0};
  if (side.change != nullptr || is_half) return false;
  return SetChange(side, [=](ScalarTensor& tensor,
                             const Quantization& quantization) {
    const formats::Cell& cell = quantization.cell;
    const bool spans_it = cell.cols == 0 && (!along_rows || cell.rows == 0);
    if (!spans_it || quantization.scales_tensor()) return false;
    const size_t size =
        along_rows ? tensor.elements.rows() : tensor.elements.cols();
    const size_t part = (size + share.parts - 1) / share.parts;
    return ScaleOf(tensor, quantization, [=](float, size_t row, size_t column) {
      return (along_rows ? row : column) / part == share.place;
    });
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
