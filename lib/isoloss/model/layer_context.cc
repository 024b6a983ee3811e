#include "isoloss/model/layer_context.h"

#include <algorithm>
#include <string>

#include "isoloss/base/error.h"
#include "isoloss/kernels/rowwise.h"

namespace isoloss::model {
namespace {

std::vector<precision::ResolvedRecipe> Resolved(
    const precision::Recipe& recipe,
    std::span<const precision::Recipe> other_phases, const Graph& graph) {
  std::vector<precision::ResolvedRecipe> all = {{recipe, graph.Sites()}};
  for (const precision::Recipe& other : other_phases) {
    all.emplace_back(other, graph.Sites());
  }
  return all;
}

}  // namespace

LayerContext::LayerContext(const ModelConfig& model_config,
                           const precision::Recipe& precision_recipe,
                           Executor& model_executor,
                           expert_parallel::Mesh& rank_mesh,
                           std::span<const precision::Recipe> other_phases)
    : config(model_config),
      graph(GraphOf(model_config)),
      recipe(precision_recipe, graph.Sites()),
      rounding(precision_recipe.activation),
      executor(model_executor),
      mesh(rank_mesh),
      rope(model_config, model_executor.memory()),
      gemms(model_executor),
      amax(graph, Resolved(precision_recipe, other_phases, graph)) {}

void LayerContext::LoadWeights(const ParameterSet& weights) {
  ISOLOSS_ASSERT(weights.parameters().size() == graph.parameters.size());
  master = &weights;
  gemm_weights.NoteAmax(weights, rounding, amax, executor);
}

void LayerContext::Begin(const TokenBatch& token_batch, TapSink* tap_sink,
                         ParameterSet* gradient_set) {
  batch = token_batch;
  tap = tap_sink;
  gradients = gradient_set;
  operand_states.clear();
  const size_t tokens = batch.tokens.size();
  first_token = mesh.part() * tokens;
  all_tokens_.assign({0, tokens});
  token_leaf_ends_.clear();
  for (size_t end = 0; end < tokens;) {
    end = std::min(tokens, end + kernels::kTokenLeaf);
    token_leaf_ends_.push_back(end);
  }
}

RowGroups LayerContext::SequenceLeaves() const {
  return {all_tokens_, batch.sequence_ends};
}

RowGroups LayerContext::TokenLeaves() const {
  return {all_tokens_, token_leaf_ends_};
}

TensorRows LayerContext::RowsInBatch(const RowGroups& groups) const {
  if (!groups.of_experts) {
    return {.segment_ends = groups.leaf_ends, .first_row = first_token};
  }
  return {.begins = groups.begins,
          .segment_ends = groups.leaf_ends,
          .segment_rows = groups.leaf_rows,
          .first_group = mesh.experts().first,
          .first_segment = mesh.first_unit()};
}

void LayerContext::TapOutput(std::string_view prefix, std::string_view name,
                             MatrixView<const float> values) const {
  if (tap != nullptr) Tap(TensorKind::kOutput, prefix, name, values);
}

void LayerContext::TapGradient(std::string_view prefix, std::string_view name,
                               MatrixView<const float> values) const {
  if (tap != nullptr) Tap(TensorKind::kGradient, prefix, name, values);
}

void LayerContext::Tap(TensorKind kind, std::string_view prefix,
                       std::string_view name,
                       MatrixView<const float> values) const {
  std::string module(prefix);
  if (!name.empty()) module.append(".").append(name);
  Announce({.module = module,
            .kind = kind,
            .values = values,
            .rows = RowsInBatch(SequenceLeaves())},
           memory(), *tap);
}

}  // namespace isoloss::model
