#include "isoloss/precision/recipe_keys.h"

namespace isoloss::precision {

OperandKeys OperandKeys::Of(const formats::Quantization& operand) {
  return {
      .element = std::string(operand.element->name),
      .scaling = std::string(operand.scaling->name),
      .block_rows = static_cast<int64_t>(operand.cell.rows),
      .block_columns = static_cast<int64_t>(operand.cell.cols),
      .scale_format = operand.scale_format,
      .scale_rule = operand.scale_rule,
      .rounding = std::string(operand.rounding->name),
      .random_bits = operand.random_bits,
      .transform = operand.transform == nullptr
                       ? kNoName
                       : std::string(operand.transform->name),
      .non_finite = operand.non_finite,
      .history = operand.history,
  };
}

formats::Quantization OperandKeys::Made() const {
  return {
      .element = &formats::FormatByName(element),
      .scale_rule = scale_rule,
      .non_finite = non_finite,
      .scale_format = scale_format,
      .scaling = &formats::ScalingByName(scaling),
      .cell = {static_cast<size_t>(block_rows),
               static_cast<size_t>(block_columns)},
      .rounding = &formats::RoundingModeByName(rounding),
      .random_bits = random_bits,
      .transform =
          transform == kNoName ? nullptr : &formats::TransformByName(transform),
      .history = history,
  };
}

SumKeys SumKeys::Of(const kernels::Accumulation& accumulation) {
  return {.accumulator = accumulation.accumulator == nullptr
                             ? kNoName
                             : std::string(accumulation.accumulator->name),
          .promote_every = accumulation.interval,
          .outer_sums = accumulation.outer};
}

kernels::Accumulation SumKeys::Made() const {
  return {.accumulator = accumulator == kNoName
                             ? nullptr
                             : &kernels::AccumulatorByName(accumulator),
          .interval = promote_every,
          .outer = outer_sums};
}

RecipeKeys RecipeKeys::Of(const Recipe& recipe) {
  return {.summary = recipe.summary,
          .source = recipe.source,
          .activation = recipe.activation,
          .weight_gradients = recipe.weight_gradients,
          .include = recipe.include,
          .exclude = recipe.exclude,
          .first_layers = recipe.first_layers,
          .last_layers = recipe.last_layers,
          .width_multiple = recipe.width_multiple};
}

void RecipeKeys::MoveTo(Recipe& recipe) const {
  recipe.summary = summary;
  recipe.source = source;
  recipe.activation = activation;
  recipe.weight_gradients = weight_gradients;
  recipe.include = include;
  recipe.exclude = exclude;
  recipe.first_layers = first_layers;
  recipe.last_layers = last_layers;
  recipe.width_multiple = width_multiple;
}

}  // namespace isoloss::precision
