// Lists the keys of a recipe's sections, as config::Reader and Writer take
// them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "isoloss/base/named.h"
#include "isoloss/formats/quantization.h"
#include "isoloss/precision/recipe.h"

namespace isoloss::precision {

/// Returns the entries that a .def file registers. `value` is added if it is
/// not one of them.
template <typename T>
std::vector<Named<const T*>> Entries(std::span<const T* const> registered,
                                     const T* value) {
  std::vector<Named<const T*>> entries;
  for (const T* entry : registered) entries.push_back({entry->name, entry});
  if (value != nullptr &&
      std::ranges::find(registered, value) == registered.end()) {
    entries.push_back({value->name, value});
  }
  return entries;
}

/// Returns the same entries, and "none" for a value that may be absent.
template <typename T>
std::vector<Named<const T*>> EntriesOrNone(std::span<const T* const> registered,
                                           const T* value) {
  std::vector<Named<const T*>> entries = Entries(registered, value);
  entries.insert(entries.begin(), {"none", nullptr});
  return entries;
}

inline constexpr Named<kernels::Rounding> kPrecisionNames[] = {
    {"bf16", kernels::Rounding::kBf16}, {"fp32", kernels::Rounding::kFp32}};

/// Visits [operands.<name>]. A size of 0 means the tensor's whole extent.
template <typename Fields>
void Visit(Fields& fields, formats::Quantization& operand) {
  constexpr auto kMaxBlock = static_cast<int64_t>(formats::kMaxCell);
  fields.Choice("element", operand.element,
                Entries(formats::AllFormats(), operand.element));
  fields.Choice("scaling", operand.scaling, formats::kScalingNames);
  fields.Integer("block_rows", operand.cell.rows, 0, kMaxBlock);
  fields.Integer("block_columns", operand.cell.cols, 0, kMaxBlock);
  fields.Choice("scale_format", operand.scale_format,
                formats::kScaleFormatNames);
  fields.Choice("scale_rule", operand.scale_rule, formats::kScaleRuleNames);
  fields.Choice("rounding", operand.rounding, formats::kRoundingModeNames);
  fields.Integer("random_bits", operand.random_bits, 0, 16);
  fields.Choice("transform", operand.transform, formats::kTransformNames);
  fields.Choice("non_finite", operand.non_finite,
                formats::kNonFinitePolicyNames);
  fields.Integer("history", operand.history, 0, formats::kMaxHistory);
}

/// Visits the keys that say how the sums of a product are made.
template <typename Fields>
void Visit(Fields& fields, kernels::Accumulation& sums) {
  constexpr int64_t kMaxInterval = 1 << 20;
  fields.Choice("accumulator", sums.accumulator,
                EntriesOrNone(kernels::AllAccumulators(), sums.accumulator));
  fields.Integer("promote_every", sums.interval, 0, kMaxInterval);
  fields.Choice("outer_sums", sums.outer, kPrecisionNames);
}

/// Visits the keys that are at the top, except `name`, `sites` and tables.
template <typename Fields>
void Visit(Fields& fields, Recipe& recipe) {
  constexpr int64_t kMaxLayers = 1 << 16;
  constexpr int64_t kMaxWidth = 1 << 20;
  fields.Text("summary", recipe.summary);
  fields.Text("source", recipe.source);
  fields.Choice("activation", recipe.activation, kPrecisionNames);
  fields.Choice("weight_gradients", recipe.weight_gradients, kPrecisionNames);
  fields.Texts("include", recipe.include);
  fields.Texts("exclude", recipe.exclude);
  fields.Integer("first_layers", recipe.first_layers, 0, kMaxLayers);
  fields.Integer("last_layers", recipe.last_layers, 0, kMaxLayers);
  fields.Integer("width_multiple", recipe.width_multiple, 1, kMaxWidth);
}

}  // namespace isoloss::precision
