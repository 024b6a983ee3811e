#include "isoloss/precision/operands.h"

#include "isoloss/precision/site_presets.h"

namespace isoloss::precision {

using formats::Quantization;

Quantization MxOperand(std::string_view element, formats::ScaleRule rule) {
  return {.element = &formats::FormatByName(element), .scale_rule = rule};
}

Quantization Fp8Operand(std::string_view element, formats::ScaleRule rule,
                        formats::Cell cell) {
  return {.element = &formats::FormatByName(element),
          .scale_rule = rule,
          .non_finite = formats::NonFinitePolicy::kTe,
          .scale_format = formats::ScaleFormat::kFp32,
          .cell = cell};
}

Quantization Nvfp4Operand(bool square) {
  constexpr size_t kBlock = 16;
  return {.element = &formats::FormatByName("e2m1"),
          .scale_rule = formats::ScaleRule::kTe,
          .non_finite = formats::NonFinitePolicy::kTe,
          .scale_format = formats::ScaleFormat::kE4m3,
          .scaling = formats::Scaling::kTwoLevel,
          .cell = {square ? kBlock : 1, kBlock}};
}

Quantization Stochastic(Quantization operand, int bits) {
  operand.rounding = formats::RoundingMode::kStochastic;
  operand.random_bits = bits;
  return operand;
}

Quantization Transformed(Quantization operand, formats::Transform transform) {
  operand.transform = transform;
  return operand;
}

LinearPrecision Uniform(const Quantization& operand) {
  return ByTensor(operand, operand, operand);
}

LinearPrecision ByTensor(const Quantization& x, const Quantization& weight,
                         const Quantization& dy) {
  LinearPrecision precision;
  precision.fprop = {x, weight};
  precision.dgrad = {dy, weight};
  precision.wgrad = {dy, x};
  return precision;
}

Recipe RecipeOf(const LinearPrecision& precision) {
  Recipe recipe;
  static_cast<LinearPrecision&>(recipe) = precision;
  const SitePreset& sites = AllSitePresets().front();
  recipe.include = sites.include;
  recipe.exclude = sites.exclude;
  return recipe;
}

}  // namespace isoloss::precision
