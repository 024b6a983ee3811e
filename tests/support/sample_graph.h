// Graphs of models that never were, for tests of what reads logs.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "isoloss/runlog/model_graph.h"

namespace isoloss::testing {

/// One tensor, of tokens if nothing else is said.
struct SampleTensor {
  std::string module;
  std::string kind;
  std::vector<std::string> inputs = {};  ///< names of tensors before it
  std::string rows_of = "tokens";
  std::string parameter = {};
  int64_t rows = 0;
  int64_t columns = 2;
  std::string moe = {};
  std::string site = {};
};

inline std::string SamplePhase(const std::string& kind) {
  if (kind == "parameter" || kind == "update") return "optimizer";
  return kind == "gradient" || kind == "dgrad" || kind == "wgrad" ? "backward"
                                                                  : "forward";
}

inline void AddTensor(const SampleTensor& tensor, runlog::ModelGraph& graph) {
  runlog::GraphColumns& to = graph.tensors;
  const bool is_weight = tensor.kind == "weight";
  for (const std::string& input : tensor.inputs) {
    graph.inputs.tensor.push_back(static_cast<int64_t>(to.name.size()));
    graph.inputs.input.push_back(std::ranges::find(to.name, input) -
                                 to.name.begin());
  }
  to.name.push_back(tensor.module + "_" + tensor.kind);
  to.module.push_back(tensor.module);
  to.kind.push_back(tensor.kind);
  to.phase.push_back(SamplePhase(tensor.kind));
  to.parameter.push_back(tensor.parameter);
  to.site.push_back(tensor.site);
  to.moe.push_back(tensor.moe);
  to.rows_of.push_back(tensor.rows_of);
  to.rows.push_back(tensor.rows);
  to.columns.push_back(tensor.columns);
  to.initial_std.push_back(is_weight ? 0.02 : std::nan(""));
  to.initial_cut.push_back(is_weight ? 2 : std::nan(""));
}

/// A GEMM site with `groups` calls of each product, whose operands all get
/// `format`.
inline void AddSite(const std::string& site, int64_t groups,
                    const std::string& format, runlog::ModelGraph& graph) {
  runlog::RecipeColumns& recipe = graph.recipe;
  recipe.site.push_back(site);
  recipe.groups.push_back(groups);
  for (auto* column : {&recipe.fprop_x, &recipe.fprop_w, &recipe.dgrad_dy,
                       &recipe.dgrad_w, &recipe.wgrad_dy, &recipe.wgrad_x}) {
    column->push_back(format);
  }
}

/// A matrix "wq" of 26 experts and a router of weight "router", of 1000 values
/// each: 96 GEMMs in all. `format` is that of the 78 at "wq"; "": none.
inline runlog::ModelGraph SampleGraph(const std::string& format) {
  const std::string wq = "layers.0.wq";
  const std::string moe = "layers.0.moe";
  const std::string router = moe + ".router";
  const std::string gate = router + ".gate";
  runlog::ModelGraph graph;
  const auto of_parameter = [&](const std::string& module, const char* kind,
                                const char* parameter,
                                std::vector<std::string> inputs = {}) {
    AddTensor({.module = module,
               .kind = kind,
               .inputs = std::move(inputs),
               .rows_of = "parameter",
               .parameter = parameter,
               .rows = 10,
               .columns = 100,
               .site = module},
              graph);
  };
  of_parameter(wq, "weight", "wq");
  of_parameter(gate, "weight", "router");
  AddTensor({.module = gate, .kind = "output", .inputs = {gate + "_weight"}},
            graph);
  AddTensor({.module = router + ".scores",
             .kind = "output",
             .inputs = {gate + "_output"}},
            graph);
  AddTensor({.module = router,
             .kind = "expert_ids",
             .inputs = {router + ".scores_output"},
             .moe = moe},
            graph);
  AddTensor({.module = router + ".topk_weights",
             .kind = "output",
             .inputs = {router + ".scores_output"},
             .moe = moe},
            graph);
  AddTensor({.module = wq,
             .kind = "output",
             .inputs = {wq + "_weight"},
             .rows_of = "expert_tokens",
             .moe = moe},
            graph);
  AddTensor({.module = moe + ".routed_experts",
             .kind = "output",
             .inputs = {wq + "_output", router + ".topk_weights_output"}},
            graph);
  AddTensor({.module = "loss", .kind = "output"}, graph);
  AddTensor({.module = wq, .kind = "dgrad", .inputs = {wq + "_weight"}}, graph);
  of_parameter(wq, "wgrad", "wq");
  of_parameter(wq, "parameter", "wq");
  of_parameter(wq, "update", "wq", {wq + "_wgrad"});
  AddSite(wq, 26, format, graph);
  AddSite(gate, 6, "", graph);
  return graph;
}

}  // namespace isoloss::testing
