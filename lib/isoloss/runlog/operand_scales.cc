#include "isoloss/runlog/operand_scales.h"

#include <algorithm>
#include <string>
#include <unordered_map>

namespace isoloss::runlog {
namespace {

/// Returns true for a word such as "1x128".
bool IsCell(std::string_view word) {
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  const size_t x = word.find('x');
  return x != std::string_view::npos && x > 0 && x + 1 < word.size() &&
         std::ranges::all_of(word.substr(0, x), is_digit) &&
         std::ranges::all_of(word.substr(x + 1), is_digit);
}

}  // namespace

OperandScales OperandScales::Of(std::string_view description) {
  OperandScales scales;
  if (description.empty()) return scales;
  description = description.substr(0, description.find(' '));
  constexpr std::string_view kDot = "·";
  for (size_t number = 0;; ++number) {
    const size_t end = description.find(kDot);
    const std::string_view word = description.substr(0, end);
    if (number == 1) {
      scales.none = word == "none";
      // Recipes with these words have scales of another kind.
      scales.e8m0 = !scales.none && word != "te" && word != "deepgemm" &&
                    word != "torchao";
    }
    if (number > 1 && IsCell(word)) scales.blocks = false;
    if (word.starts_with("hadamard")) scales.transformed = true;
    if (end == std::string_view::npos) return scales;
    description.remove_prefix(end + kDot.size());
  }
}

std::vector<std::array<OperandScales, 2>> OperandScalesOf(
    const RunLog& log, const RecipeColumns& recipe) {
  std::vector<std::array<OperandScales, 2>> all(log.tensors.names.size());
  const GraphIndex graph(log.provenance.graph);
  std::unordered_map<std::string_view, size_t> sites;
  for (size_t i = 0; i < recipe.site.size(); ++i) sites[recipe.site[i]] = i;
  for (size_t i = 0; i < all.size(); ++i) {
    const auto place = graph.Find(log.tensors.names[i]);
    if (!place) continue;
    const auto site = sites.find(graph.tensors().site[*place]);
    if (site == sites.end()) continue;
    const std::string& kind = graph.tensors().kind[*place];
    const auto set = [&](const auto& rowwise, const auto& columnwise) {
      all[i] = {OperandScales::Of(rowwise[site->second]),
                OperandScales::Of(columnwise[site->second])};
    };
    if (kind == "weight") set(recipe.fprop_w, recipe.dgrad_w);
    if (kind == "activation") set(recipe.fprop_x, recipe.wgrad_x);
    if (kind == "gradient") set(recipe.dgrad_dy, recipe.wgrad_dy);
  }
  return all;
}

}  // namespace isoloss::runlog
