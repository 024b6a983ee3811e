#include "isoloss/runlog/model_graph.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <set>
#include <utility>

#include "isoloss/base/saturating.h"
#include "isoloss/runlog/graph_schema.h"

namespace isoloss::runlog {
namespace {

constexpr std::string_view kKinds[] = {"weight",   "activation", "output",
                                       "gradient", "dgrad",      "wgrad",
                                       "update",   "parameter",  "expert_ids"};
constexpr std::string_view kPhases[] = {"forward", "backward", "optimizer"};
constexpr std::string_view kUnits[] = {"tokens", "expert_tokens", "parameter"};

bool IsOneOf(std::span<const std::string_view> words, std::string_view word) {
  return std::ranges::count(words, word) > 0;
}

/// Visitor of the schema: whether columns of a group are equally long.
struct LengthCheck {
  void Group(const char* name, const char* /*description*/, int64_t) {
    group = name;
    index = nullptr;
  }
  template <typename T>
  void RequiredColumn(const Field& field, const std::vector<T>& values) {
    if (index == nullptr) {
      index = field.name;
      rows = values.size();
    }
    if (values.size() == rows || !wrong.empty()) return;
    wrong = fmt::format("/{}/{} has {} values, but /{}/{} has {}", group,
                        field.name, values.size(), group, index, rows);
  }

  /// An absent one is as good as a whole one.
  template <typename T>
  void Column(const Field& field, const std::vector<T>& values) {
    if (!values.empty()) RequiredColumn(field, values);
  }

  std::string wrong = {};
  const char* group = nullptr;
  const char* index = nullptr;
  size_t rows = 0;
};

bool IsPlace(int64_t place, size_t size) {
  return place >= 0 && place < static_cast<int64_t>(size);
}

std::string WrongTensors(const GraphColumns& tensors) {
  std::set<std::string_view> names;
  for (size_t i = 0; i < tensors.name.size(); ++i) {
    const std::string where = fmt::format("/graph has in row {}", i);
    if (!names.insert(tensors.name[i]).second ||
        tensors.name[i] != tensors.module[i] + "_" + tensors.kind[i]) {
      return fmt::format(
          "{} name `{}`, module `{}` and kind `{}`, but the name must be "
          "<module>_<kind> and stand there once",
          where, tensors.name[i], tensors.module[i], tensors.kind[i]);
    }
    if (!IsOneOf(kKinds, tensors.kind[i])) {
      return fmt::format("{} kind `{}`, but it must be one of {}", where,
                         tensors.kind[i], fmt::join(kKinds, ", "));
    }
    if (!IsOneOf(kPhases, tensors.phase[i]) ||
        !IsOneOf(kUnits, tensors.rows_of[i])) {
      return fmt::format(
          "{} phase `{}` and rows_of `{}`, but they must be one "
          "of {} and one of {}",
          where, tensors.phase[i], tensors.rows_of[i], fmt::join(kPhases, ", "),
          fmt::join(kUnits, ", "));
    }
    const bool chosen = tensors.rows_of[i] == "expert_tokens" ||
                        tensors.kind[i] == "expert_ids";
    if (chosen && tensors.moe[i].empty()) {
      return fmt::format(
          "{} `{}` without a MoE layer, but a choice of experts and rows that "
          "follow it belong to one",
          where, tensors.name[i]);
    }
    const bool of_parameter = tensors.rows_of[i] == "parameter";
    if (of_parameter != (tensors.rows[i] > 0) ||
        of_parameter == tensors.parameter[i].empty()) {
      return fmt::format(
          "{} {} rows of {} `{}`, but the number of rows and the parameter are "
          "known if they are a parameter's, and only then",
          where, tensors.rows[i], tensors.rows_of[i], tensors.parameter[i]);
    }
  }
  return "";
}

std::string WrongInputs(const GraphInputs& inputs, size_t tensors) {
  for (size_t i = 0; i < inputs.tensor.size(); ++i) {
    if (IsPlace(inputs.tensor[i], tensors) &&
        IsPlace(inputs.input[i], tensors) &&
        inputs.tensor[i] != inputs.input[i] &&
        (i == 0 || inputs.tensor[i - 1] <= inputs.tensor[i])) {
      continue;
    }
    return fmt::format(
        "/graph_inputs has in row {} input {} of tensor {}, but both must be "
        "places in the {} rows of /graph, two, and tensors must ascend",
        i, inputs.input[i], inputs.tensor[i], tensors);
  }
  return "";
}

std::string WrongSites(const GraphColumns& tensors,
                       const RecipeColumns& recipe) {
  std::set<std::string_view> of_graph(tensors.site.begin(), tensors.site.end());
  of_graph.erase("");
  const std::set<std::string_view> sites(recipe.site.begin(),
                                         recipe.site.end());
  if (sites == of_graph && sites.size() == recipe.site.size()) return "";
  return fmt::format(
      "/recipe has {} sites, {} different ones, and /graph {}, but both must "
      "have the same, and /recipe each once",
      recipe.site.size(), sites.size(), of_graph.size());
}

}  // namespace

bool GraphColumns::operator==(const GraphColumns& other) const {
  const auto same_bits = [](double a, double b) {
    return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b);
  };
  return name == other.name && module == other.module && kind == other.kind &&
         phase == other.phase && parameter == other.parameter &&
         site == other.site && moe == other.moe && rows_of == other.rows_of &&
         rows == other.rows && columns == other.columns &&
         std::ranges::equal(initial_std, other.initial_std, same_bits) &&
         std::ranges::equal(initial_cut, other.initial_cut, same_bits);
}

GemmCounts CountGemms(const RecipeColumns& recipe) {
  GemmCounts counts;
  for (size_t i = 0; i < recipe.site.size(); ++i) {
    for (const auto& [one, other] :
         {std::pair(&recipe.fprop_x, &recipe.fprop_w),
          std::pair(&recipe.dgrad_dy, &recipe.dgrad_w),
          std::pair(&recipe.wgrad_dy, &recipe.wgrad_x)}) {
      counts.all = SaturatingAdd(counts.all, recipe.groups[i]);
      if (!(*one)[i].empty() || !(*other)[i].empty()) {
        counts.quantized = SaturatingAdd(counts.quantized, recipe.groups[i]);
      }
    }
  }
  return counts;
}

std::string WrongGraph(const ModelGraph& graph) {
  LengthCheck lengths;
  VisitGraph(lengths, graph);
  if (!lengths.wrong.empty()) return lengths.wrong;
  std::string wrong = WrongTensors(graph.tensors);
  if (wrong.empty()) {
    wrong = WrongInputs(graph.inputs, graph.tensors.name.size());
  }
  return wrong.empty() ? WrongSites(graph.tensors, graph.recipe) : wrong;
}

GraphIndex::GraphIndex(const ModelGraph& graph) : graph_(graph) {
  const auto& names = graph.tensors.name;
  begins_.assign(names.size() + 1, 0);
  if (!WrongGraph(graph).empty()) return;
  for (size_t i = 0; i < names.size(); ++i) places_.emplace(names[i], i);
  for (const int64_t tensor : graph.inputs.tensor) {
    ++begins_[static_cast<size_t>(tensor) + 1];
  }
  for (size_t i = 0; i < names.size(); ++i) begins_[i + 1] += begins_[i];
}

std::optional<size_t> GraphIndex::Find(std::string_view name) const {
  const auto found = places_.find(name);
  return found == places_.end() ? std::nullopt : std::optional(found->second);
}

std::span<const int64_t> GraphIndex::InputsOf(size_t place) const {
  return std::span(graph_.inputs.input)
      .subspan(begins_[place], begins_[place + 1] - begins_[place]);
}

}  // namespace isoloss::runlog
