// The whole model: embedding, blocks, head, loss, and the backward pass in
// reverse order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "isoloss/base/executor.h"
#include "isoloss/base/matrix.h"
#include "isoloss/expert_parallel/exchange.h"
#include "isoloss/expert_parallel/mesh.h"
#include "isoloss/model/amax_history.h"
#include "isoloss/model/config.h"
#include "isoloss/model/gemm_engine.h"
#include "isoloss/model/graph.h"
#include "isoloss/model/operand_states.h"
#include "isoloss/model/parameters.h"
#include "isoloss/model/router_figures.h"
#include "isoloss/model/routing_source.h"
#include "isoloss/model/tap.h"
#include "isoloss/model/tokens.h"
#include "isoloss/precision/recipe.h"

namespace isoloss::model {

/// A model bound to one precision recipe. Keeps the activations of the last
/// Forward for Backward; memory is reused from step to step.
class Transformer {
 public:
  /// On one rank.
  Transformer(const ModelConfig& config, const precision::Recipe& recipe,
              Executor& executor);
  /// This process's share of a model on a mesh of ranks: batches are its share
  /// of the global batch, experts and their parameters those of
  /// mesh.experts(). All processes call every method at the same point.
  Transformer(const ModelConfig& config, const precision::Recipe& recipe,
              Executor& executor, expert_parallel::Mesh& mesh);
  ~Transformer();

  const precision::ResolvedRecipe& recipe() const;

  /// Which step's random bits quantisations draw from, from the next call on.
  void SetStep(const StepKey& key);
  /// Computes with these FP32 master weights, rounded to BF16 where it reads
  /// them unless the recipe is FP32. They must live, and not change between a
  /// Forward and its Backward. Call after every change of them.
  void LoadWeights(const ParameterSet& master);
  /// Tells `sink` the weights of all GEMM sites as GEMMs read them before
  /// quantisation (rounded), and all other parameters, in the order of
  /// parameters. A tied table is "tok_embeddings".
  /// `rounded` receives them.
  void AnnounceWeights(const ParameterSet& master, ParameterSet& rounded,
                       TapSink& sink) const;
  /// Selection biases, [MoE layers, experts], FP32.
  void LoadExpertBias(MatrixView<const float> expert_bias);

  /// Who chooses the experts from the next Forward on; null: the routers. Must
  /// outlive its use.
  void SetRouting(const RoutingSource* routing);
  /// Who changes what they decided; empty: nobody.
  void SetRoutingEdit(RoutingEdit edit);
  /// Who computes the products of linear layers; empty: kernels::GemmBatch.
  void SetGemmEngine(GemmEngine engine);

  /// Rounds the weight gradients of linear layers, sums over all processes, as
  /// the recipe asks for.
  void RoundWeightGradients(ParameterSet& gradients) const;
  /// What delayed scaling looks back to. EndStep after each update.
  AmaxHistory& amax_history();

  /// Mean cross-entropy in nats over the labels that count, in all processes:
  /// token losses in FP32, leaves of 32 tokens and their tree in FP64.
  /// Errors   ShapeError if spans disagree, a token is outside the vocabulary
  ///          or no label counts.
  double Forward(const TokenBatch& batch, TapSink* tap = nullptr);

  /// Gradients of that loss, FP32, overwritten: the part of this process's
  /// tokens, or of its experts' rows. Uses up the activations of the Forward of
  /// the same batch just before it.
  /// Errors   ShapeError if there was no such Forward.
  void Backward(const TokenBatch& batch, ParameterSet& gradients,
                TapSink* tap = nullptr);

  /// Of the last Forward: loss of each token (0 where ignored), [T].
  std::span<const float> token_losses() const;
  /// Of the last Forward, over all processes: [MoE layers, experts], each row
  /// sums to the global batch's tokens * top_k.
  MatrixView<const int64_t> tokens_per_expert() const;
  /// Of the last Forward, this process's tokens, [T, top_k].
  MatrixView<const int32_t> expert_ids(size_t moe_layer) const;
  const expert_parallel::DispatchCounts& dispatch_counts(
      size_t moe_layer) const;

  /// Of the last Forward, over all processes, one of each MoE layer. All
  /// processes call it at the same point; each gets the result.
  std::vector<RouterFigures> MergeRouterFigures() const;

  /// GEMM calls executed so far, in this process: those with a quantised
  /// operand, and all. Each expert counts for itself, also one without tokens;
  /// attention's inner products don't count.
  int64_t quantized_gemms() const;
  int64_t gemms() const;
  /// What one Forward + Backward must add to those two.
  int64_t quantized_gemms_per_step() const;
  int64_t gemms_per_step() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace isoloss::model
