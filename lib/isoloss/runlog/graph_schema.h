// Every dataset of a model's graph and resolved recipe, as schema.h has those
// of a run log, which shares them with probe logs and tensor dumps.
#pragma once

#include "isoloss/runlog/field.h"
#include "isoloss/runlog/model_graph.h"

namespace isoloss::runlog {

/// The version of the run log's layout that brought the graph.
inline constexpr int64_t kGraphVersion = 5;

/// Walks /graph, /graph_inputs and /recipe; visitors as for VisitRunLog.
template <typename Visitor, typename GraphT>
void VisitGraph(Visitor& visitor, GraphT& graph) {
  const auto text = [&visitor](const char* name, const char* description,
                               auto& values) {
    visitor.RequiredColumn(Field{name, "", description, Domain::Text()},
                           values);
  };
  auto& tensors = graph.tensors;
  visitor.Group("graph",
                "The tensors of a training step, in the order of announcement",
                kGraphVersion);
  text("name", "<module>_<kind>", tensors.name);
  text("module", "torchtitan's name of the module", tensors.module);
  text("kind",
       "`weight`, `activation`, `output`, `gradient`, `dgrad`, `wgrad`, "
       "`parameter`, `update` or `expert_ids`",
       tensors.kind);
  text("phase", "`forward`, `backward` or `optimizer`", tensors.phase);
  text("parameter", "Parameter that it is of; empty: none", tensors.parameter);
  text("site", "GEMM site that reads or gives it; empty: none", tensors.site);
  text("moe",
       "MoE layer whose choice of experts decides on its rows or slots; empty: "
       "none",
       tensors.moe);
  text("rows_of",
       "What rows stand for: `tokens`, `expert_tokens` (pairs of token and "
       "slot) or `parameter`",
       tensors.rows_of);
  visitor.RequiredColumn(
      Field{"rows", "1", "Rows of a parameter's; 0: as the step has them",
            Domain::Count()},
      tensors.rows);
  visitor.RequiredColumn(
      Field{"columns", "1", "Values of a row", Domain::Count(1)},
      tensors.columns);
  visitor.RequiredColumn(
      Field{"initial_std", "1",
            "Standard deviation of a weight's initial values; 0: all are 1; "
            "NaN: no weight",
            Domain::Real(0).OrNan().Accusing(Fault::kFile)},
      tensors.initial_std);
  visitor.RequiredColumn(
      Field{"initial_cut", "1",
            "Magnitude above which they are drawn again; NaN: no weight",
            Domain::Real(0).OrNan().OrInfinity().Accusing(Fault::kFile)},
      tensors.initial_cut);
  visitor.Group("graph_inputs", "What the operation behind each tensor reads",
                kGraphVersion);
  visitor.RequiredColumn(
      Field{"tensor", "1", "Place in /graph, ascending", Domain::Count()},
      graph.inputs.tensor);
  visitor.RequiredColumn(Field{"input", "1",
                               "Place in /graph of a tensor "
                               "that is read",
                               Domain::Count()},
                         graph.inputs.input);

  auto& recipe = graph.recipe;
  visitor.Group(
      "recipe",
      "What each GEMM site got: element format and scale rule of "
      "each operand and what else is not usual; empty: not quantised. "
      "Behind a space, ` in ` before how sums are made",
      kGraphVersion);
  text("site", "Name of the site", recipe.site);
  visitor.RequiredColumn(
      Field{"groups", "call", "GEMM calls of each of the three products",
            Domain::Count(1)},
      recipe.groups);
  text("fprop_x", "x in y = x W^T", recipe.fprop_x);
  text("fprop_w", "W in y = x W^T", recipe.fprop_w);
  text("dgrad_dy", "dy in dx = dy W", recipe.dgrad_dy);
  text("dgrad_w", "W in dx = dy W", recipe.dgrad_w);
  text("wgrad_dy",
       "dy in dW = dy^T x; ` again` behind it: what dgrad made of dy is "
       "quantised once more; ` to bf16`: dW is rounded",
       recipe.wgrad_dy);
  text("wgrad_x", "x in dW = dy^T x; ` again` as for dy", recipe.wgrad_x);
}

}  // namespace isoloss::runlog
