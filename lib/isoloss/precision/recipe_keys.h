// The keys of a recipe's sections, as config::Reader and Writer take them.
#pragma once

#include <string>
#include <vector>

#include "isoloss/config/values.h"
#include "isoloss/formats/scaling.h"
#include "isoloss/formats/transform.h"
#include "isoloss/precision/recipe.h"

namespace isoloss::precision {

/// The names of what a .def file registers.
template <typename T>
std::vector<std::string> NamesOf(std::span<const T* const> entries) {
  std::vector<std::string> names;
  for (const T* entry : entries) names.emplace_back(entry->name);
  return names;
}

inline constexpr config::Named<kernels::Rounding> kPrecisionNames[] = {
    {"bf16", kernels::Rounding::kBf16}, {"fp32", kernels::Rounding::kFp32}};
inline constexpr config::Named<formats::ScaleFormat> kScaleFormatNames[] = {
    {"none", formats::ScaleFormat::kNone},
    {"e8m0", formats::ScaleFormat::kE8m0},
    {"e4m3", formats::ScaleFormat::kE4m3},
    {"pow2", formats::ScaleFormat::kPow2},
    {"fp32", formats::ScaleFormat::kFp32}};
inline constexpr config::Named<formats::ScaleRule> kScaleRuleNames[] = {
    {"floor", formats::ScaleRule::kFloor},
    {"ceil", formats::ScaleRule::kCeil},
    {"even", formats::ScaleRule::kEven},
    {"rceil", formats::ScaleRule::kRceil},
    {"te", formats::ScaleRule::kTe},
    {"deepgemm", formats::ScaleRule::kDeepgemm},
    {"torchao", formats::ScaleRule::kTorchao}};
inline constexpr config::Named<formats::NonFinitePolicy> kPolicyNames[] = {
    {"block_nan", formats::NonFinitePolicy::kBlockNan},
    {"te", formats::NonFinitePolicy::kTe}};

/// The word of an absent transform or accumulator.
inline constexpr const char* kNoName = "none";

/// [operands.<name>]. Sizes of 0: the tensor's whole extent.
struct OperandKeys {
  std::string element;
  std::string scaling = "current";
  int64_t block_rows = 1;
  int64_t block_columns = 32;
  formats::ScaleFormat scale_format = formats::ScaleFormat::kE8m0;
  formats::ScaleRule scale_rule = formats::ScaleRule::kRceil;
  std::string rounding = "nearest_even";
  int random_bits = 0;
  std::string transform = kNoName;
  formats::NonFinitePolicy non_finite = formats::NonFinitePolicy::kBlockNan;
  int history = 0;

  static OperandKeys Of(const formats::Quantization& operand);
  formats::Quantization Made() const;
};

template <typename Fields>
void Visit(Fields& fields, OperandKeys& keys) {
  constexpr int64_t kMaxBlock = 1 << 20;
  constexpr int64_t kMaxHistory = 1 << 16;
  static const auto with_none = [](std::vector<std::string> names) {
    names.insert(names.begin(), kNoName);
    return names;
  };
  fields.OneOf("element", keys.element, NamesOf(formats::AllFormats()));
  fields.OneOf("scaling", keys.scaling, NamesOf(formats::AllScalings()));
  fields.Integer("block_rows", keys.block_rows, 0, kMaxBlock);
  fields.Integer("block_columns", keys.block_columns, 0, kMaxBlock);
  fields.Choice("scale_format", keys.scale_format, kScaleFormatNames);
  fields.Choice("scale_rule", keys.scale_rule, kScaleRuleNames);
  fields.OneOf("rounding", keys.rounding, NamesOf(formats::AllRoundingModes()));
  fields.Integer("random_bits", keys.random_bits, 0, 16);
  fields.OneOf("transform", keys.transform,
               with_none(NamesOf(formats::AllTransforms())));
  fields.Choice("non_finite", keys.non_finite, kPolicyNames);
  fields.Integer("history", keys.history, 0, kMaxHistory);
}

/// How the sums of a product are made.
struct SumKeys {
  std::string accumulator = kNoName;
  size_t promote_every = 0;
  kernels::Rounding outer_sums = kernels::Rounding::kFp32;

  static SumKeys Of(const kernels::Accumulation& accumulation);
  kernels::Accumulation Made() const;
};

template <typename Fields>
void Visit(Fields& fields, SumKeys& keys) {
  constexpr int64_t kMaxInterval = 1 << 20;
  std::vector<std::string> accumulators = NamesOf(kernels::AllAccumulators());
  accumulators.insert(accumulators.begin(), kNoName);
  fields.OneOf("accumulator", keys.accumulator, accumulators);
  fields.Integer("promote_every", keys.promote_every, 0, kMaxInterval);
  fields.Choice("outer_sums", keys.outer_sums, kPrecisionNames);
}

/// At the top of a recipe, besides `name`, `sites` and tables.
struct RecipeKeys {
  std::string summary;
  std::string source;
  kernels::Rounding activation = kernels::Rounding::kBf16;
  kernels::Rounding weight_gradients = kernels::Rounding::kFp32;
  std::vector<std::string> include;
  std::vector<std::string> exclude;
  size_t first_layers = 0;
  size_t last_layers = 0;
  size_t width_multiple = 1;

  static RecipeKeys Of(const Recipe& recipe);
  void MoveTo(Recipe& recipe) const;
};

template <typename Fields>
void Visit(Fields& fields, RecipeKeys& keys) {
  constexpr int64_t kMaxLayers = 1 << 16;
  constexpr int64_t kMaxWidth = 1 << 20;
  fields.Text("summary", keys.summary);
  fields.Text("source", keys.source);
  fields.Choice("activation", keys.activation, kPrecisionNames);
  fields.Choice("weight_gradients", keys.weight_gradients, kPrecisionNames);
  fields.Texts("include", keys.include);
  fields.Texts("exclude", keys.exclude);
  fields.Integer("first_layers", keys.first_layers, 0, kMaxLayers);
  fields.Integer("last_layers", keys.last_layers, 0, kMaxLayers);
  fields.Integer("width_multiple", keys.width_multiple, 1, kMaxWidth);
}

}  // namespace isoloss::precision
