// Graphs of models that never were, for tests of what reads logs.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "isoloss/runlog/model_graph.h"

namespace isoloss::test_support {

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
  to.phase.emplace_back(runlog::PhaseOfKind(tensor.kind));
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

/// One tensor of a parameter's rows, at a GEMM site of the same name.
inline void AddOfParameter(const std::string& module, const std::string& kind,
                           const std::string& parameter,
                           std::vector<std::string> inputs,
                           runlog::ModelGraph& graph) {
  const bool of_optimizer = runlog::PhaseOfKind(kind) == "optimizer";
  AddTensor({.module = module,
             .kind = kind,
             .inputs = std::move(inputs),
             .rows_of = "parameter",
             .parameter = parameter,
             .rows = 10,
             .columns = 100,
             .site = of_optimizer ? "" : module},
            graph);
}

/// What changes a weight; `also` is read by its gradient beside the operands.
inline void AddStep(const std::string& module, const std::string& parameter,
                    const std::vector<std::string>& also,
                    runlog::ModelGraph& graph) {
  std::vector<std::string> read = {module + "_gradient",
                                   module + "_activation"};
  read.insert(read.end(), also.begin(), also.end());
  AddOfParameter(module, "wgrad", parameter, read, graph);
  AddOfParameter(module, "update", parameter, {module + "_wgrad"}, graph);
  AddOfParameter(module, "parameter", parameter, {module + "_update"}, graph);
}

/// A model of one GEMM, whose output is the loss.
inline runlog::ModelGraph GemmGraph(const std::string& module) {
  runlog::ModelGraph graph;
  AddOfParameter(module, "weight", module, {}, graph);
  const auto add = [&](const char* kind, std::vector<std::string> inputs) {
    for (std::string& input : inputs) input = module + "_" + input;
    AddTensor({.module = module,
               .kind = kind,
               .inputs = std::move(inputs),
               .site = module},
              graph);
  };
  add("activation", {"weight"});
  add("output", {"activation", "weight"});
  add("gradient", {"activation"});
  add("dgrad", {"gradient", "weight"});
  AddStep(module, module, {module + "_dgrad"}, graph);
  AddSite(module, 1, "", graph);
  return graph;
}

/// A matrix "wq" of 26 experts and a router of weight "router", of 1000 values
/// each: 96 GEMMs in all. `format` is that of the 78 at "wq"; "": none.
inline runlog::ModelGraph SampleGraph(const std::string& format,
                                      const std::string& wq = "layers.0.wq",
                                      const std::string& moe = "layers.0.moe") {
  const std::string router = moe + ".router";
  const std::string gate = router + ".gate";
  const std::string scores = router + ".scores_output";
  const std::string experts = moe + ".routed_experts_output";
  runlog::ModelGraph graph;
  const auto of_tokens = [&](const std::string& module, const char* kind,
                             std::vector<std::string> inputs,
                             const std::string& choice = "") {
    AddTensor({.module = module,
               .kind = kind,
               .inputs = std::move(inputs),
               .moe = choice,
               .site = module == gate ? gate : ""},
              graph);
  };
  const auto of_experts = [&](const char* kind,
                              std::vector<std::string> inputs) {
    AddTensor({.module = wq,
               .kind = kind,
               .inputs = std::move(inputs),
               .rows_of = "expert_tokens",
               .moe = moe,
               .site = wq},
              graph);
  };
  AddOfParameter(wq, "weight", "wq", {}, graph);
  AddOfParameter(gate, "weight", "router", {}, graph);
  of_tokens(gate, "activation", {gate + "_weight"});  // an embedding
  of_tokens(gate, "output", {gate + "_activation", gate + "_weight"});
  of_tokens(router + ".scores", "output", {gate + "_output"});
  of_tokens(router, "expert_ids", {scores}, moe);
  of_tokens(router + ".topk_weights", "output", {scores}, moe);
  of_experts("activation", {gate + "_activation"});
  of_experts("output", {wq + "_activation", wq + "_weight"});
  of_tokens(moe + ".routed_experts", "output",
            {wq + "_output", router + ".topk_weights_output"});
  of_tokens("loss", "output", {experts});
  of_experts("gradient", {experts});
  of_experts("dgrad", {wq + "_gradient", wq + "_weight"});
  of_tokens(router + ".topk_weights", "gradient", {experts, wq + "_output"},
            moe);
  of_tokens(gate, "gradient",
            {router + ".topk_weights_gradient", wq + "_dgrad"});
  of_tokens(gate, "dgrad", {gate + "_gradient", gate + "_weight"});
  AddStep(wq, "wq", {}, graph);
  AddStep(gate, "router", {gate + "_dgrad"}, graph);
  AddSite(wq, 26, format, graph);
  AddSite(gate, 6, "", graph);
  return graph;
}

}  // namespace isoloss::test_support
