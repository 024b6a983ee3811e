#include <fmt/format.h>

#include "isoloss/formats/quantization.h"
#include "isoloss/kernels/prepared_operand.h"
#include "isoloss/precision/recipe.h"

namespace isoloss::precision {
namespace {

using formats::Quantization;

std::string WrongPieces(const GemmPrecision& precision) {
  const kernels::PieceSteps steps =
      kernels::PieceStepsOf(precision.left_operand(), precision.right_operand(),
                            precision.accumulation);
  if (steps.multiples) return "";
  return fmt::format(
      "has scales of the operands every {} and {} steps and promotion every "
      "{}, but each must be a multiple of the least of them",
      steps.scales_of_a, steps.scales_of_b, steps.promotion);
}

/// An accumulator's factors are described in words, and for a program.
struct FactorRule {
  const char* words;
  bool (*fits)(const Quantization* quantization);
};

bool IsBf16(const Quantization* quantization) {
  constexpr int kBf16Bits = 7;
  if (quantization == nullptr) return true;
  // The product of two significands has as many bits as both.
  const int of_scale =
      quantization->scale_format == formats::ScaleFormat::kE4m3 ? 4 : 0;
  return quantization->element->mantissa_bits + of_scale <= kBf16Bits;
}

bool IsFp8(const Quantization* quantization) {
  return quantization != nullptr && quantization->element->bits() == 8 &&
         !quantization->element->twos_complement &&
         quantization->scale_format != formats::ScaleFormat::kE4m3 &&
         quantization->scale_format != formats::ScaleFormat::kPow2;
}

bool IsFp4(const Quantization* quantization) {
  constexpr size_t kNeighbours = 16;
  return quantization != nullptr && quantization->element->bits() == 4 &&
         (quantization->scale_format == formats::ScaleFormat::kE4m3 ||
          quantization->scale_format == formats::ScaleFormat::kE8m0) &&
         quantization->cell.cols % kNeighbours == 0 &&
         quantization->cell.cols > 0;
}

FactorRule RuleFor(kernels::FactorExponents exponents) {
  switch (exponents) {
    case kernels::FactorExponents::kOfCodes:
      return {
          "FP8 elements whose scales are in e8m0 or fp32, or that have "
          "none",
          IsFp8};
    case kernels::FactorExponents::kOfScales:
      return {
          "FP4 elements in blocks of a multiple of 16 whose scales are in "
          "e4m3 or e8m0",
          IsFp4};
    case kernels::FactorExponents::kOfValues:
      break;
  }
  return {"BF16 values, or elements that BF16 holds", IsBf16};
}

std::string WrongAccumulation(const GemmPrecision& precision) {
  const kernels::Accumulation& sums = precision.accumulation;
  const FactorRule rule = RuleFor(sums.exponents());
  if (sums.accumulator != nullptr && !(rule.fits(precision.left_operand()) &&
                                       rule.fits(precision.right_operand()))) {
    return fmt::format(
        "has accumulator {}, which adds products of {}, but not both of its "
        "operands are so quantised",
        sums.accumulator->name, rule.words);
  }
  if (sums.outer != kernels::Rounding::kFp32 && sums.interval == 0) {
    return "has outer sums in bf16, but promotes nothing: give promote_every";
  }
  return "";
}

/// Says what is wrong with a description that is not for a linear layer's
/// operand.
std::string WrongOutsideSites(const Quantization& quantization) {
  std::string wrong = WrongQuantization(quantization);
  if (!wrong.empty()) return wrong;
  if (quantization.history > 0) {
    return "has delayed scaling, but only linear layers keep a history: give "
           "scaling = \"current\"";
  }
  if (quantization.transforms()) {
    return fmt::format(
        "has the transform {}, but only linear layers transform operands: give "
        "none",
        formats::TransformName(quantization.transform));
  }
  return "";
}

}  // namespace

std::string WrongAttention(const AttentionPrecision& precision) {
  for (const auto& [key, operand] : kAttentionOperands) {
    if (!(precision.*operand)) continue;
    const std::string wrong = WrongOutsideSites(*(precision.*operand));
    if (!wrong.empty()) {
      return fmt::format("has `{}` as {}, which {}", key,
                         QuantizationName(*(precision.*operand)), wrong);
    }
  }
  const LinearPrecision both[] = {precision.Scores(), precision.Values()};
  const char* const products[][3] = {{"Q K^T", "dS K", "dS^T Q"},
                                     {"P V", "dO V^T", "P^T dO"}};
  for (size_t i = 0; i < 2; ++i) {
    for (const GemmRole role : kGemmRoles) {
      const std::string wrong = WrongPrecision(both[i].For(role), role);
      if (wrong.empty()) continue;
      return fmt::format("has a product {} that {}",
                         products[i][static_cast<size_t>(role)], wrong);
    }
  }
  return "";
}

std::string WrongNormGains(const Quantization& gains) {
  const std::string wrong = WrongOutsideSites(gains);
  if (wrong.empty()) return "";
  return fmt::format("has {}, which {}", QuantizationName(gains), wrong);
}

std::string WrongPrecision(const GemmPrecision& precision, GemmRole role) {
  for (const Quantization* operand :
       {precision.left_operand(), precision.right_operand()}) {
    if (operand == nullptr) continue;
    std::string wrong = WrongQuantization(*operand);
    if (!wrong.empty()) {
      return fmt::format("has the operand {}, which {}",
                         QuantizationName(*operand), wrong);
    }
  }
  const auto transform_of = [](const Quantization* operand) {
    return operand == nullptr ? formats::Transform::kNone : operand->transform;
  };
  if (transform_of(precision.left_operand()) !=
      transform_of(precision.right_operand())) {
    return "transforms its operands differently, so that their product changes";
  }
  if ((precision.left_again || precision.right_again) &&
      role != GemmRole::kWgrad) {
    return "quantises an operand again, which is done for wgrad only";
  }
  std::string wrong = WrongPieces(precision);
  return wrong.empty() ? WrongAccumulation(precision) : wrong;
}

}  // namespace isoloss::precision
