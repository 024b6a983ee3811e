// Describes the model of a run as a table: its tensors, from what each is
// computed, and the formats that the recipe gives each GEMM. Judges know of the
// model by this table alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace isoloss::runlog {

/// Lists the tensors of one training step in the order of announcement, which
/// is that of /tensors.
struct GraphColumns {
#define ISOLOSS_GRAPH(type, name, ...) std::vector<type> name = {};
#include "isoloss/runlog/provenance.def"

  bool operator==(const GraphColumns& other) const;
};

/// Each tensor that an operation reads has one row, `tensor` ascending.
struct GraphInputs {
#define ISOLOSS_INPUT(type, name, ...) std::vector<type> name = {};
#include "isoloss/runlog/provenance.def"

  bool operator==(const GraphInputs&) const = default;
};

/// Ends the text of dy of wgrad if the weight gradient is rounded to BF16.
inline constexpr std::string_view kRoundedGradient = " to bf16";

/// True if the text of an operand says that it is quantised. Otherwise the text
/// is empty, or says only how the product is summed and rounded, after a space.
inline bool IsQuantized(std::string_view operand) {
  return !operand.empty() && operand.front() != ' ';
}

/// Each GEMM site has one row. If a recipe quantises them, attention's two
/// products of each layer ("layers.0.attention.inner_attention.scores",
/// ".values") have rows as well. So do norms ("layers.0.attention_norm"), whose
/// gains are W.
struct RecipeColumns {
#define ISOLOSS_SITE(type, name, ...) std::vector<type> name = {};
#include "isoloss/runlog/provenance.def"

  bool operator==(const RecipeColumns&) const = default;
};

/// Counts the GEMM calls of a step for which a recipe asks. An expert without
/// tokens counts, too.
struct GemmCounts {
  int64_t all = 0;
  int64_t quantized = 0;  ///< with a quantised operand
};
GemmCounts CountGemms(const RecipeColumns& recipe);

/// Has the rows of RecipeColumns for each later phase of a recipe that changes
/// in mid-run, phase by phase.
struct PhaseColumns : RecipeColumns {
  std::vector<int64_t> first_step = {};  ///< of the row's phase

  bool operator==(const PhaseColumns&) const = default;
};

struct ModelGraph {
  GraphColumns tensors = {};
  GraphInputs inputs = {};
  RecipeColumns recipe = {};  ///< of the first phase
  PhaseColumns phases = {};   ///< of the phases that follow

  /// A log of a layout before version 5 has no graph.
  bool empty() const { return tensors.name.empty(); }
  bool operator==(const ModelGraph&) const = default;
};

/// Holds from `first_step` on, until the next phase begins.
struct RecipePhase {
  int64_t first_step = 1;
  RecipeColumns recipe = {};
};
/// Returns all phases of a graph's recipe, the first one included.
std::vector<RecipePhase> PhasesOf(const ModelGraph& graph);
/// Adds the recipe of the next phase.
void AddPhase(const RecipePhase& phase, ModelGraph& graph);

/// Returns the graph with the recipe of a step's phase alone.
ModelGraph GraphOfStep(const ModelGraph& graph, int64_t step);

/// Returns the place of the phase to which a step belongs. `phases` have a
/// first_step, ascending; a step before the first phase belongs to that one.
template <typename Phases>
size_t PhaseAt(const Phases& phases, int64_t step) {
  size_t place = 0;
  while (place + 1 < phases.size() && phases[place + 1].first_step <= step) {
    ++place;
  }
  return place;
}

/// Returns "forward", "backward" or "optimizer"; "" if the kind is unknown.
std::string_view PhaseOfKind(std::string_view kind);

/// Tells a file's reader what is wrong with a table of tensors; "" if nothing
/// is. These rules hold for every model of model/graph.h:
/// - Columns are equally long, names <module>_<kind> and unique. The kind
///   decides on the phase, and on whether rows are a parameter's.
/// - A weight reads nothing. expert_ids, a parameter and its update read one
///   tensor, any other tensor at least one. A tensor reads tensors before it,
///   but a parameter reads its update.
/// - All are read but expert_ids, parameters and one output, the loss. Both
///   passes read what experts compute (an output of expert_tokens).
/// - A GEMM site has a weight, an activation, an output of both, a gradient, a
///   dgrad of gradient and weight, and a wgrad of gradient and activation, each
///   once. /recipe and each phase of /recipe_phases have each site once, and
///   besides only modules of the graph and products of theirs. Phases ascend
///   from step 2.
/// - A parameter has a weight, a wgrad, an update of that, and a parameter of
///   that, each once, of one module and extent.
/// - A MoE layer has, of tokens, once expert_ids, an output (the weights of
///   the slots) and a gradient of that.
std::string WrongGraph(const ModelGraph& graph);

/// Finds tensors by name, and the tensors from which they are computed. Finds
/// none in a table to which WrongGraph objects. The table must outlive it.
class GraphIndex {
 public:
  explicit GraphIndex(const ModelGraph& graph);

  const GraphColumns& tensors() const { return graph_.tensors; }
  std::optional<size_t> Find(std::string_view name) const;
  /// Returns the places of the tensors that are read by the operation that
  /// computes the tensor at `place`.
  std::span<const int64_t> InputsOf(size_t place) const;

 private:
  const ModelGraph& graph_;
  std::unordered_map<std::string_view, size_t> places_;
  std::vector<size_t> begins_;  ///< of a tensor's rows in the inputs
};

}  // namespace isoloss::runlog
