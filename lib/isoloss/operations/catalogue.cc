#include "isoloss/operations/catalogue.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

#include "isoloss/formats/bf16.h"
#include "isoloss/formats/format.h"
#include "isoloss/formats/rounding_mode.h"

namespace isoloss::operations {
namespace {

using formats::ScaleFormat;
using formats::ScaleRule;
using oracle::ScalarTensor;

bool IsE8m0(const Side& side) {
  return side.quantization &&
         side.quantization->scale_format == ScaleFormat::kE8m0;
}

// ---- another description ----------------------------------------------------

template <ScaleRule kRule>
bool Rule(Side& side) {
  if (!IsE8m0(side) || side.quantization->scale_rule == kRule) return false;
  side.quantization->scale_rule = kRule;
  return true;
}

bool Element(Side& side, const char* name) {
  const formats::Format* element = &formats::FormatByName(name);
  if (!side.quantization || side.quantization->element == element) return false;
  side.quantization->element = element;
  return true;
}

template <size_t kRows, size_t kCols>
bool Block(Side& side) {
  constexpr formats::Cell kCell = {kRows, kCols};
  if (!side.quantization ||
      side.quantization->scale_format == ScaleFormat::kNone ||
      side.quantization->cell == kCell) {
    return false;
  }
  side.quantization->cell = kCell;
  return true;
}

bool Rounding(Side& side, formats::RoundingMode rounding) {
  if (!side.quantization || side.quantization->rounding == rounding) {
    return false;
  }
  side.quantization->rounding = rounding;
  return true;
}

bool Unquantized(Side& side) {
  if (!side.quantization) return false;
  side.quantization.reset();
  side.before.reset();
  side.fixed.reset();
  return true;
}

/// Makes the mirrored mistake: the operand is quantised, but should not be.
bool QuantizedAnyway(Side& side) {
  if (side.quantization || !side.left_out) return false;
  side.quantization = side.left_out;
  return true;
}

// ---- other values -----------------------------------------------------------

/// Computes what the quantisation makes of the values along their other axis.
bool AlongOtherAxis(Side& side, Matrix<float>& result) {
  if (!side.quantization || side.before) return false;
  const bool down = !side.down;
  Matrix<float> turned;
  MatrixView<const float> values = side.values;
  if (down) {
    turned = Transposed(values);
    values = turned.view();
  }
  result = ScalarDequantize(
      oracle::ScalarQuantize(values, *side.quantization, side.state),
      values.cols());
  if (down) result = Transposed(result.view());
  return true;
}

bool OtherAxis(Side& side) {
  Matrix<float> values;
  if (!AlongOtherAxis(side, values)) return false;
  side.Own(std::move(values));
  side.quantization.reset();
  return true;
}

bool Twice(Side& side) {
  Matrix<float> values;
  if (!AlongOtherAxis(side, values)) return false;
  side.Own(std::move(values));
  return true;
}

bool TwiceAlongOneAxis(Side& side) {
  if (side.before || side.change != nullptr) return false;
  const std::optional<ScalarTensor> once = Quantized(side);
  if (!once) return false;
  const size_t cols = side.depth();
  Matrix<float> values = oracle::ScalarDequantize(*once, cols);
  side.Own(side.down ? Transposed(values.view()) : std::move(values));
  return true;
}

template <formats::Transform kTransform>
bool Rotation(Side& side) {
  if (!side.quantization || !side.quantization->transforms() ||
      side.quantization->transform == kTransform) {
    return false;
  }
  side.quantization->transform = kTransform;
  return true;
}

/// Makes blocks choose by another rule; none: all of them end at 6.
bool ChooseBy(Side& side, std::optional<oracle::FourOverSix> rule) {
  if (!side.quantization || !side.quantization->scales_tensor() ||
      side.quantization->element->name != "e2m1" ||
      side.four_over_six == rule) {
    return false;
  }
  side.four_over_six = rule;
  return true;
}

/// Changes the rule, if there is one.
template <bool kBySquares>
bool OtherError(Side& side) {
  if (!side.four_over_six) return false;
  oracle::FourOverSix rule = *side.four_over_six;
  rule.by_squares = kBySquares;
  return ChooseBy(side, rule);
}

bool OtherLargestScale(Side& side) {
  if (!side.four_over_six) return false;
  oracle::FourOverSix rule = *side.four_over_six;
  rule.largest_scale = rule.largest_scale == 448.0f ? 256.0f : 448.0f;
  return ChooseBy(side, rule);
}

bool OtherRotation(Side& side) {
  if (!side.quantization || !side.quantization->transforms()) return false;
  side.rounds_rotation = !side.rounds_rotation;
  return true;
}

bool OnlyOnce(Side& side) {
  if (!side.before) return false;
  side.before.reset();
  return true;
}

template <Earlier kEarlier>
bool Stale(Side& side) {
  return TakeEarlier(kEarlier, side);
}

float RoundToTf32(float value) {
  return formats::RoundToFormat(formats::FormatByName("tf32"), value,
                                formats::Overflow::kNonFinite);
}

/// Returns what a tensor core reads of an FP32 number that was not rounded.
float CutToTf32(float value) {
  constexpr uint32_t kUnread = (uint32_t{1} << 13) - 1;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(value) & ~kUnread);
}

template <float (*kRound)(float)>
bool RoundedFirst(Side& side) {
  Matrix<float> rounded(side.values.rows(), side.values.cols());
  bool changed = false;
  for (size_t r = 0; r < rounded.rows(); ++r) {
    for (size_t c = 0; c < rounded.cols(); ++c) {
      rounded(r, c) = kRound(side.values(r, c));
      changed = changed || rounded(r, c) != side.values(r, c);
    }
  }
  if (changed) side.Own(std::move(rounded));
  return changed;
}

/// Swaps the two codes of each byte.
bool HalvesSwapped(Side& side) {
  if (!side.quantization || side.change != nullptr ||
      side.quantization->element->bits() != 4) {
    return false;
  }
  return SetChange(side,
                   [](ScalarTensor& tensor, const formats::Quantization&) {
                     for (size_t r = 0; r < tensor.codes.rows(); ++r) {
                       for (size_t c = 0; c + 1 < tensor.codes.cols(); c += 2) {
                         std::swap(tensor.codes(r, c), tensor.codes(r, c + 1));
                       }
                     }
                     return true;
                   });
}

// ---- the table of operands --------------------------------------------------

constexpr SideMistake kSideMistakes[] = {
    {"unquantized", "{} stayed as it was: it was not quantised", Unquantized},
    {"quantized", "{} was quantised, though it was to stay as it was",
     QuantizedAnyway},
    {"stale", "{} was that of the step before", Stale<&Side::previous>},
    {"stale_call", "{} was that of the call before",
     Stale<&Side::previous_call>},
    {"scale_floor", "scales of {} followed the rule floor",
     Rule<ScaleRule::kFloor>},
    {"scale_rceil", "scales of {} followed the rule rceil",
     Rule<ScaleRule::kRceil>},
    {"scale_ceil", "scales of {} followed the rule ceil",
     Rule<ScaleRule::kCeil>},
    {"scale_even", "scales of {} followed the rule even",
     Rule<ScaleRule::kEven>},
    {"element_e4m3", "elements of {} were E4M3",
     [](Side& side) { return Element(side, "e4m3"); }},
    {"element_e5m2", "elements of {} were E5M2",
     [](Side& side) { return Element(side, "e5m2"); }},
    {"element_e3m2", "elements of {} were E3M2",
     [](Side& side) { return Element(side, "e3m2"); }},
    {"element_e2m3", "elements of {} were E2M3",
     [](Side& side) { return Element(side, "e2m3"); }},
    {"element_e2m1", "elements of {} were E2M1",
     [](Side& side) { return Element(side, "e2m1"); }},
    {"block_16", "scales of {} were of blocks of 16", Block<1, 16>},
    {"block_32", "scales of {} were of blocks of 32", Block<1, 32>},
    {"block_64", "scales of {} were of blocks of 64", Block<1, 64>},
    {"block_128", "scales of {} were of blocks of 128", Block<1, 128>},
    {"block_16x16", "scales of {} were of squares of 16", Block<16, 16>},
    {"block_32x32", "scales of {} were of squares of 32", Block<32, 32>},
    {"block_row", "scales of {} were of whole rows", Block<1, 0>},
    {"block_128x128", "scales of {} were of squares of 128", Block<128, 128>},
    {"block_tensor", "{} had one scale for the whole tensor", Block<0, 0>},
    {"other_axis", "blocks of {} lay along the other axis", OtherAxis},
    {"quantized_twice",
     "{} was quantised twice: from values that had been quantised along the "
     "other axis",
     Twice},
    {"quantized_twice_along_one_axis",
     "{} was quantised twice along the same axis: from values that had been "
     "quantised so",
     TwiceAlongOneAxis},
    {"rotated_bf16",
     "what the transform made of {} was rounded to BF16, or was not",
     OtherRotation,
     {},
     false,
     /*is_right=*/true},
    {"hadamard_missing", "{} was not transformed",
     Rotation<formats::Transform::kNone>},
    {"hadamard_without_signs", "{} was transformed without signs",
     Rotation<formats::Transform::kHadamard16>},
    {"six_only", "all blocks of {} ended at 6, none at 4",
     [](Side& side) { return ChooseBy(side, std::nullopt); }},
    {"four_over_six",
     "blocks of {} ended at 4 or at 6, but all were to end at "
     "6",
     [](Side& side) {
       return !side.four_over_six && ChooseBy(side, oracle::FourOverSix());
     }},
    {"four_over_six_256",
     "blocks of {} ended at 4 or at 6, with scales up to "
     "256, but all were to end at 6",
     [](Side& side) {
       return !side.four_over_six &&
              ChooseBy(side, oracle::FourOverSix{.largest_scale = 256.0f});
     }},
    {"four_over_six_mae",
     "blocks of {} chose 4 or 6 by magnitudes of errors, "
     "not by squares",
     OtherError<false>},
    {"four_over_six_mse",
     "blocks of {} chose 4 or 6 by squares of errors, not "
     "by magnitudes",
     OtherError<true>},
    {"four_over_six_largest",
     "the scale of the whole tensor of {} left the "
     "other of 448 and 256 for those of blocks",
     OtherLargestScale},
    {"quantized_once",
     "{} was quantised from the original values, not from quantised ones",
     OnlyOnce},
    {"halves_swapped", "the two elements of {} in each byte were swapped",
     HalvesSwapped},
    {"truncated", "elements of {} were rounded toward zero",
     [](Side& side) {
       return Rounding(side, formats::RoundingMode::kTowardZero);
     }},
    {"ties_away",
     "elements of {} halfway between two were rounded away from zero",
     [](Side& side) {
       return Rounding(side, formats::RoundingMode::kHalfAway);
     }},
    {"from_bf16", "{} was rounded to BF16 first",
     RoundedFirst<formats::RoundToBf16>},
    {"from_tf32", "{} was rounded to TF32 first", RoundedFirst<RoundToTf32>},
    {"from_tf32_cut", "{} was cut off to TF32", RoundedFirst<CutToTf32>},
};

}  // namespace

bool TakeEarlier(Earlier earlier, Side& side) {
  const auto& values = side.*earlier;
  if (!values || values->rows() != side.values.rows() ||
      values->cols() != side.values.cols()) {
    return false;
  }
  bool changed = false;
  for (size_t r = 0; r < side.values.rows(); ++r) {
    const float* row = side.values.Row(r);
    changed =
        changed || !std::equal(row, row + side.values.cols(), values->Row(r));
  }
  side.values = *values;
  return changed;
}

std::span<const SideMistake> SideMistakes() {
  static const std::vector<SideMistake> all = [] {
    std::vector<SideMistake> mistakes(std::begin(kSideMistakes),
                                      std::end(kSideMistakes));
    for (SideMistake& mistake : mistakes) {
      mistake.of_values = mistake.name != "unquantized";
    }
    std::ranges::copy(ScaleMistakes(), std::back_inserter(mistakes));
    std::ranges::copy(EarlierScales(), std::back_inserter(mistakes));
    std::ranges::copy(MisreadScales(), std::back_inserter(mistakes));
    return mistakes;
  }();
  return all;
}

}  // namespace isoloss::operations
