#include "isoloss/runlog/model_graph.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "isoloss/base/saturating.h"
#include "isoloss/runlog/schema.h"

namespace isoloss::runlog {
namespace {

/// Describes all tensors of a kind.
struct TensorKind {
  std::string_view name;
  std::string_view phase;
  bool of_parameter;  ///< whether its rows are a parameter's
  size_t least_inputs;
  size_t most_inputs;
};
constexpr size_t kAny = std::numeric_limits<size_t>::max();
constexpr TensorKind kTensorKinds[] = {
    {"weight", "forward", true, 0, 0},
    {"activation", "forward", false, 1, kAny},
    {"output", "forward", false, 1, kAny},
    {"expert_ids", "forward", false, 1, 1},
    {"gradient", "backward", false, 1, kAny},
    {"dgrad", "backward", false, 1, kAny},
    {"wgrad", "backward", true, 1, kAny},
    {"parameter", "optimizer", true, 1, 1},
    {"update", "optimizer", true, 1, 1},
};
constexpr std::string_view kUnits[] = {"tokens", "expert_tokens", "parameter"};

/// Each GEMM site or parameter has this tensor once; it reads the named parts
/// of the same site or parameter.
struct Part {
  std::string_view kind;
  std::string_view reads[2] = {};
};
constexpr Part kSiteParts[] = {
    {"weight"},
    {"activation"},
    {"output", {"activation", "weight"}},
    {"gradient"},
    {"dgrad", {"gradient", "weight"}},
    {"wgrad", {"gradient", "activation"}},
};
constexpr Part kParameterParts[] = {
    {"weight"}, {"wgrad"}, {"update", {"wgrad"}}, {"parameter", {"update"}}};

/// Returns null if there is no kind of this name.
const TensorKind* KindOf(std::string_view name) {
  const auto* kind = std::ranges::find(kTensorKinds, name, &TensorKind::name);
  return kind == std::end(kTensorKinds) ? nullptr : kind;
}

/// Checks that columns of a group are equally long.
std::string WrongLengths(const ModelGraph& graph) {
  const View view(graph);
  for (const Group& group : SchemaOf<ModelGraph>()) {
    const Column& index = group.columns.front();
    for (const Column& column : group.columns) {
      if (view.Count(column) == view.Count(index)) continue;
      return fmt::format("{} has {} values, but {} has {}",
                         group.PathOf(column), view.Count(column),
                         group.PathOf(index), view.Count(index));
    }
  }
  return "";
}

bool IsPlace(int64_t place, size_t size) {
  return place >= 0 && place < static_cast<int64_t>(size);
}

std::string WrongInitialValues(const GraphColumns& tensors, size_t i) {
  const std::string& kind = tensors.kind[i];
  const double deviation = tensors.initial_std[i];
  const double cut = tensors.initial_cut[i];
  const bool is_drawn = kind == "weight" && deviation >= 0 && cut >= 0;
  const bool is_none =
      kind != "weight" && std::isnan(deviation) && std::isnan(cut);
  // Weights of a larger deviation would overflow in their first product.
  constexpr double kLargest = 0x1p10;
  if (!(is_drawn && deviation <= kLargest) && !is_none) {
    return fmt::format(
        "/graph has in row {} initial values of `{}` of standard deviation {}, "
        "cut at {}, but a weight has such of at most {}, and all else NaN",
        i, tensors.name[i], deviation, cut, kLargest);
  }
  return "";
}

std::string WrongTensor(const GraphColumns& tensors, size_t i) {
  const std::string where = fmt::format("/graph has in row {}", i);
  const TensorKind* kind = KindOf(tensors.kind[i]);
  if (kind == nullptr || tensors.phase[i] != kind->phase ||
      tensors.name[i] != tensors.module[i] + "_" + tensors.kind[i]) {
    return fmt::format(
        "{} name `{}`, module `{}`, kind `{}` and phase `{}`, but the kind "
        "must "
        "be known, decides on the phase, and the name must be <module>_<kind>",
        where, tensors.name[i], tensors.module[i], tensors.kind[i],
        tensors.phase[i]);
  }
  const std::string& rows_of = tensors.rows_of[i];
  const bool of_parameter = rows_of == "parameter";
  if (of_parameter != kind->of_parameter ||
      std::ranges::count(kUnits, rows_of) == 0) {
    return fmt::format(
        "{} rows_of `{}` of kind `{}`, but it must be one of {}, and "
        "`parameter` for a weight and what changes it",
        where, rows_of, kind->name, fmt::join(kUnits, ", "));
  }
  const bool chosen = rows_of == "expert_tokens" || kind->name == "expert_ids";
  if (chosen && tensors.moe[i].empty()) {
    return fmt::format(
        "{} `{}` without a MoE layer, but a choice of experts and rows that "
        "follow it belong to one",
        where, tensors.name[i]);
  }
  if (of_parameter != (tensors.rows[i] > 0) ||
      of_parameter == tensors.parameter[i].empty()) {
    return fmt::format(
        "{} {} rows of {} `{}`, but the number of rows and the parameter are "
        "known if they are a parameter's, and only then",
        where, tensors.rows[i], rows_of, tensors.parameter[i]);
  }
  return WrongInitialValues(tensors, i);
}

std::string WrongTensors(const GraphColumns& tensors) {
  std::set<std::string_view> names;
  std::map<std::string_view, size_t> first_of;  // parameters
  // The tensors of tokens are counted by MoE layer and kind.
  std::map<std::string_view, std::map<std::string_view, size_t>> choices;
  for (size_t i = 0; i < tensors.name.size(); ++i) {
    std::string wrong = WrongTensor(tensors, i);
    if (!wrong.empty()) return wrong;
    const size_t first =
        tensors.parameter[i].empty()
            ? i
            : first_of.try_emplace(tensors.parameter[i], i).first->second;
    if (!names.insert(tensors.name[i]).second ||
        tensors.module[i] != tensors.module[first] ||
        tensors.rows[i] != tensors.rows[first] ||
        tensors.columns[i] != tensors.columns[first]) {
      return fmt::format(
          "/graph has in row {} name `{}` with {} x {} values, but each name "
          "must stand there once, and what is of parameter `{}` have the "
          "module and extent of `{}`",
          i, tensors.name[i], tensors.rows[i], tensors.columns[i],
          tensors.parameter[i], tensors.name[first]);
    }
    if (!tensors.moe[i].empty()) {
      const bool of_tokens = tensors.rows_of[i] == "tokens";
      choices[tensors.moe[i]][tensors.kind[i]] += of_tokens ? 1 : 0;
    }
  }
  for (auto& [moe, counts] : choices) {
    for (const char* kind : {"expert_ids", "output", "gradient"}) {
      if (counts[kind] == 1) continue;
      return fmt::format(
          "/graph has {} {} of tokens of MoE layer `{}`, but each has one: its "
          "choice, the weights of slots and their gradient",
          counts[kind], kind, moe);
    }
  }
  return "";
}

/// Returns where the inputs of each tensor begin, and where the last ones end.
/// Inputs ascend by tensor.
std::vector<size_t> Begins(const ModelGraph& graph) {
  std::vector<size_t> begins(graph.tensors.name.size() + 1, 0);
  for (const int64_t tensor : graph.inputs.tensor) {
    ++begins[static_cast<size_t>(tensor) + 1];
  }
  std::partial_sum(begins.begin(), begins.end(), begins.begin());
  return begins;
}

std::string WrongInputs(const ModelGraph& graph) {
  const GraphInputs& inputs = graph.inputs;
  const std::vector<std::string>& kind = graph.tensors.kind;
  for (size_t i = 0; i < inputs.tensor.size(); ++i) {
    const int64_t tensor = inputs.tensor[i];
    const int64_t input = inputs.input[i];
    if (IsPlace(tensor, kind.size()) && IsPlace(input, kind.size()) &&
        (i == 0 || inputs.tensor[i - 1] <= tensor) &&
        kind[static_cast<size_t>(input)] != "parameter" &&
        (input < tensor || kind[static_cast<size_t>(tensor)] == "parameter")) {
      continue;
    }
    return fmt::format(
        "/graph_inputs has in row {} input {} of tensor {}, but both must be "
        "places in the {} rows of /graph, tensors must ascend, and only a "
        "parameter reads what comes later, its update; none reads a parameter",
        i, input, tensor, kind.size());
  }
  return "";
}

/// Requires that each tensor reads as many tensors as its kind does. A tensor
/// that nothing reads must be the end of a step: a choice of experts, a
/// parameter or the loss.
std::string WrongReaders(const ModelGraph& graph) {
  const GraphColumns& tensors = graph.tensors;
  const std::vector<size_t> begins = Begins(graph);
  std::vector<bool> forward(tensors.name.size());
  std::vector<bool> later(tensors.name.size());
  for (size_t i = 0; i < graph.inputs.tensor.size(); ++i) {
    const auto tensor = static_cast<size_t>(graph.inputs.tensor[i]);
    const auto input = static_cast<size_t>(graph.inputs.input[i]);
    (tensors.phase[tensor] == "forward" ? forward : later)[input] = true;
  }
  size_t losses = 0;
  for (size_t i = 0; i < tensors.name.size(); ++i) {
    const TensorKind& kind = *KindOf(tensors.kind[i]);
    const size_t found = begins[i + 1] - begins[i];
    if (found < kind.least_inputs || found > kind.most_inputs) {
      return fmt::format(
          "/graph_inputs has {} inputs of `{}`, but a weight has none, "
          "expert_ids, a parameter and its update have 1, all others some",
          found, tensors.name[i]);
    }
    const bool is_output = kind.name == "output";
    const bool ends = kind.name == "expert_ids" || kind.name == "parameter";
    const bool read = forward[i] || later[i];
    losses += is_output && !read ? 1 : 0;
    const bool of_experts = is_output && tensors.rows_of[i] == "expert_tokens";
    if (of_experts ? forward[i] && later[i] : read || ends || is_output) {
      continue;
    }
    return fmt::format(
        "/graph_inputs lacks a tensor that reads `{}`, but all that a step "
        "computes is read, in both passes if experts compute it",
        tensors.name[i]);
  }
  if (losses == 1) return "";
  return fmt::format(
      "/graph_inputs has {} outputs that nothing reads, but the loss is one",
      losses);
}

/// Requires that each owner, a GEMM site or a parameter, has each of its parts
/// once and that they read each other. `owners` names the owner of each tensor.
std::string WrongParts(const ModelGraph& graph, const char* column,
                       const std::vector<std::string>& owners,
                       std::span<const Part> parts) {
  const std::vector<std::string>& kinds = graph.tensors.kind;
  const auto index_of = [&parts](std::string_view kind) {
    return static_cast<size_t>(std::ranges::find(parts, kind, &Part::kind) -
                               parts.begin());
  };
  std::map<std::string_view, std::vector<std::optional<size_t>>> owned;
  for (size_t i = 0; i < owners.size(); ++i) {
    if (owners[i].empty()) continue;
    auto& places = owned.try_emplace(owners[i], parts.size()).first->second;
    const size_t part = index_of(kinds[i]);
    if (part < parts.size() && !places[part]) {
      places[part] = i;
      continue;
    }
    return fmt::format(
        "/graph has in row {} kind `{}` of {} `{}`, but it "
        "must be one of those that each has once",
        i, kinds[i], column, owners[i]);
  }
  const std::vector<size_t> begins = Begins(graph);
  for (const auto& [owner, places] : owned) {
    for (const Part& part : parts) {
      const std::optional<size_t> place = places[index_of(part.kind)];
      if (!place) {
        return fmt::format("/graph has no {} of {} `{}`, but each has one",
                           part.kind, column, owner);
      }
      const auto inputs =
          std::span(graph.inputs.input)
              .subspan(begins[*place], begins[*place + 1] - begins[*place]);
      for (const std::string_view read : part.reads) {
        if (read.empty()) continue;
        // Parts are listed after those that they read.
        const auto input = static_cast<int64_t>(*places[index_of(read)]);
        if (std::ranges::count(inputs, input) > 0) continue;
        return fmt::format(
            "/graph_inputs has no row by which the {} of {} `{}` reads its {}, "
            "but it is computed from that",
            part.kind, column, owner, read);
      }
    }
  }
  return "";
}

/// True if a row of /recipe that is no GEMM site is one of `modules`, as a norm
/// is, or one product of it, as attention has.
bool IsPartOf(const std::set<std::string_view>& modules, std::string_view row) {
  return modules.contains(row) ||
         modules.contains(row.substr(0, row.rfind('.')));
}

std::string WrongSites(const GraphColumns& tensors,
                       const RecipeColumns& recipe) {
  std::set<std::string_view> of_graph(tensors.site.begin(), tensors.site.end());
  of_graph.erase("");
  const std::set<std::string_view> modules(tensors.module.begin(),
                                           tensors.module.end());
  const std::set<std::string_view> sites(recipe.site.begin(),
                                         recipe.site.end());
  const bool all = std::ranges::includes(sites, of_graph);
  const bool known = std::ranges::all_of(sites, [&](std::string_view site) {
    return of_graph.contains(site) || IsPartOf(modules, site);
  });
  if (all && known && sites.size() == recipe.site.size()) return "";
  return fmt::format(
      "/recipe has {} sites, {} different ones, and /graph {}, but both must "
      "have the same, and /recipe each once; besides, it may have norms and "
      "products of attention",
      recipe.site.size(), sites.size(), of_graph.size());
}

/// Requires that phases ascend, and that each has all sites.
std::string WrongPhases(const ModelGraph& graph) {
  int64_t last = 1;
  for (const int64_t step : graph.phases.first_step) {
    if (step < 2 || step < last) {
      return fmt::format(
          "/recipe_phases has a phase from step {} on after one from step {}, "
          "but phases must ascend from step 2",
          step, last);
    }
    last = step;
  }
  for (const RecipePhase& phase : PhasesOf(graph)) {
    std::string wrong = WrongSites(graph.tensors, phase.recipe);
    if (!wrong.empty()) return wrong;
  }
  return "";
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
      if (IsQuantized((*one)[i]) || IsQuantized((*other)[i])) {
        counts.quantized = SaturatingAdd(counts.quantized, recipe.groups[i]);
      }
    }
  }
  return counts;
}

namespace {

void AppendSite(const RecipeColumns& from, size_t row, RecipeColumns& to) {
#define ISOLOSS_SITE(type, name, ...) to.name.push_back(from.name[row]);
#include "isoloss/runlog/provenance.def"
}

}  // namespace

std::vector<RecipePhase> PhasesOf(const ModelGraph& graph) {
  std::vector<RecipePhase> phases = {{.recipe = graph.recipe}};
  const PhaseColumns& later = graph.phases;
  for (size_t i = 0; i < later.first_step.size(); ++i) {
    if (later.first_step[i] != phases.back().first_step) {
      phases.push_back({.first_step = later.first_step[i]});
    }
    AppendSite(later, i, phases.back().recipe);
  }
  return phases;
}

ModelGraph GraphOfStep(const ModelGraph& graph, int64_t step) {
  ModelGraph one = graph;
  std::vector<RecipePhase> phases = PhasesOf(graph);
  one.recipe = std::move(phases[PhaseAt(phases, step)].recipe);
  one.phases = {};
  return one;
}

void AddPhase(const RecipePhase& phase, ModelGraph& graph) {
  for (size_t i = 0; i < phase.recipe.site.size(); ++i) {
    graph.phases.first_step.push_back(phase.first_step);
    AppendSite(phase.recipe, i, graph.phases);
  }
}

std::string_view PhaseOfKind(std::string_view kind) {
  const TensorKind* known = KindOf(kind);
  return known == nullptr ? "" : known->phase;
}

std::string WrongGraph(const ModelGraph& graph) {
  std::string wrong = WrongLengths(graph);
  if (!wrong.empty()) return wrong;
  const GraphColumns& tensors = graph.tensors;
  wrong = WrongTensors(tensors);
  if (wrong.empty()) wrong = WrongInputs(graph);
  if (wrong.empty()) wrong = WrongReaders(graph);
  if (wrong.empty()) {
    wrong = WrongParts(graph, "parameter", tensors.parameter, kParameterParts);
  }
  if (wrong.empty()) {
    wrong = WrongParts(graph, "site", tensors.site, kSiteParts);
  }
  return wrong.empty() ? WrongPhases(graph) : wrong;
}

GraphIndex::GraphIndex(const ModelGraph& graph) : graph_(graph) {
  const auto& names = graph.tensors.name;
  begins_.assign(names.size() + 1, 0);
  if (!WrongGraph(graph).empty()) return;
  begins_ = Begins(graph);
  for (size_t i = 0; i < names.size(); ++i) places_.emplace(names[i], i);
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
