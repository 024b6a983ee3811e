// Holds the state that the layers of one model share.
#pragma once

#include <deque>
#include <span>
#include <string_view>
#include <vector>

#include "isoloss/base/executor.h"
#include "isoloss/base/matrix.h"
#include "isoloss/expert_parallel/mesh.h"
#include "isoloss/kernels/rounding.h"
#include "isoloss/model/amax_history.h"
#include "isoloss/model/config.h"
#include "isoloss/model/gemm_weights.h"
#include "isoloss/model/graph.h"
#include "isoloss/model/linear.h"
#include "isoloss/model/operand_states.h"
#include "isoloss/model/parameters.h"
#include "isoloss/model/rope.h"
#include "isoloss/model/routing_source.h"
#include "isoloss/model/tap.h"
#include "isoloss/model/tokens.h"
#include "isoloss/precision/recipe.h"

namespace isoloss::model {

struct LayerContext {
  /// See Transformer.
  LayerContext(const ModelConfig& config, const precision::Recipe& recipe,
               Executor& executor, expert_parallel::Mesh& mesh,
               std::span<const precision::Recipe> other_phases = {});

  /// See Transformer::LoadWeights.
  void LoadWeights(const ParameterSet& master);

  /// Makes the context refer to the batch of the running call.
  void Begin(const TokenBatch& batch, TapSink* tap, ParameterSet* gradients);

  /// Returns one group of all tokens, in which each sequence is a leaf of the
  /// weight gradients.
  RowGroups SequenceLeaves() const;
  /// Returns one group of all tokens, with leaves of kernels::kTokenLeaf
  /// tokens.
  RowGroups TokenLeaves() const;

  /// Returns the FP32 master weights. A caller that computes with them rounds
  /// them as `rounding` says.
  MatrixView<const float> Weight(size_t parameter) const {
    return master->parameters()[parameter].values.view();
  }
  MatrixView<float> Gradient(size_t parameter) const {
    return gradients->parameters()[parameter].values.view();
  }

  /// Weights, activations and gradients lie in this memory.
  Memory& memory() const { return executor.memory(); }

  /// Returns which rows of the whole batch the rows of `groups` are.
  TensorRows RowsInBatch(const RowGroups& groups) const;

  /// Announce a tensor of this process's tokens as module "prefix.name" (or
  /// "prefix" if name is empty). The tensor is the module's output, or the
  /// gradient of that.
  void TapOutput(std::string_view prefix, std::string_view name,
                 MatrixView<const float> values) const;
  void TapGradient(std::string_view prefix, std::string_view name,
                   MatrixView<const float> values) const;

  const ModelConfig config;
  const Graph graph;
  const precision::ResolvedRecipe recipe;
  /// Weights, activations and the gradients of activations are rounded to this
  /// format.
  const kernels::Rounding rounding;
  Executor& executor;
  expert_parallel::Mesh& mesh;
  const ParameterSet* master = nullptr;
  GemmWeights gemm_weights;
  RopeTable rope;
  GemmQueue gemms;
  /// One Forward + Backward adds these numbers to gemms. Layers count them as
  /// they are built.
  int64_t gemms_per_step = 0;
  int64_t quantized_gemms_per_step = 0;

  AmaxHistory amax;
  /// Random bits of the running step are drawn from this key.
  StepKey key;
  /// Products refer to these states of the running call's operands.
  std::deque<kernels::OperandState> operand_states;

  // The following members belong to the running call.
  TokenBatch batch;
  size_t first_token = 0;                  ///< of this call, in the whole batch
  const RoutingSource* routing = nullptr;  ///< null: the router's own choice
  RoutingEdit edit_routing;                ///< may be empty
  TapSink* tap = nullptr;
  ParameterSet* gradients = nullptr;

 private:
  void Tap(TensorKind kind, std::string_view prefix, std::string_view name,
           MatrixView<const float> values) const;

  std::vector<size_t> all_tokens_;       // {0, T}
  std::vector<size_t> token_leaf_ends_;  // 32, 64, …, T
};

}  // namespace isoloss::model
