// Computes the whole model: embedding, blocks, head, loss, and the backward
// pass in reverse order.
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

/// Computes a model under one precision recipe. Keeps the activations of the
/// last Forward for Backward; memory is reused from step to step.
class Transformer {
 public:
  /// Makes the model on one rank.
  Transformer(const ModelConfig& config, const precision::Recipe& recipe,
              Executor& executor);
  /// Makes this process's share of a model on a mesh of ranks. Batches are the
  /// process's part of the global batch, or mesh.share() of it; experts and
  /// their parameters are those of mesh.experts(). All processes call every
  /// method at the same point. The history of delayed scaling is kept for
  /// `other_phases`, too: a run with several recipes makes a model of each.
  Transformer(const ModelConfig& config, const precision::Recipe& recipe,
              Executor& executor, expert_parallel::Mesh& mesh,
              std::span<const precision::Recipe> other_phases = {});
  ~Transformer();

  const precision::ResolvedRecipe& recipe() const;

  /// Sets the step whose random bits quantisations draw from the next call on.
  void SetStep(const StepKey& key);
  /// Sets the FP32 master weights. The model rounds them to BF16 as it reads
  /// them, unless the recipe is FP32. They must stay alive, and must not change
  /// between a Forward and its Backward. Call this after every change of them.
  void LoadWeights(const ParameterSet& master);
  /// Announces the weights of all GEMM sites to `sink` as GEMMs read them
  /// before quantisation (rounded), and all remaining parameters, in the order
  /// of parameters. A tied table is "tok_embeddings". `rounded` receives the
  /// values.
  void AnnounceWeights(const ParameterSet& master, ParameterSet& rounded,
                       TapSink& sink) const;
  /// Sets the selection biases, [MoE layers, experts], FP32.
  void LoadExpertBias(MatrixView<const float> expert_bias);

  /// Sets the source that chooses the experts from the next Forward on; null:
  /// the routers choose. The source must outlive its use.
  void SetRouting(const RoutingSource* routing);
  /// Sets the function that changes decisions on experts and their weights;
  /// empty: nothing changes them.
  void SetRoutingEdit(RoutingEdit edit);
  /// Sets the engine that computes the products of linear layers; empty:
  /// kernels::GemmBatch.
  void SetGemmEngine(GemmEngine engine);

  /// Rounds the weight gradients of linear layers, which are sums over all
  /// processes, as the recipe asks for.
  void RoundWeightGradients(ParameterSet& gradients) const;
  /// Returns the history of delayed scaling. Call its EndStep after each
  /// update.
  AmaxHistory& amax_history();

  /// Returns the mean cross-entropy in nats over the labels that count, in all
  /// processes; of a share, the part of the mean that the batch has up to it.
  /// Each share goes forward and backward before the next. Token losses are
  /// FP32; leaves of 32 tokens and their tree are FP64.
  /// Errors   ShapeError if spans disagree, a token is outside the vocabulary
  ///          or no label counts.
  double Forward(const TokenBatch& batch, TapSink* tap = nullptr);

  /// Overwrites `gradients` with the gradients of that loss in FP32: the part
  /// of this process's tokens, or of its experts' rows. Uses up the activations
  /// of the Forward of the same batch just before it.
  /// Errors   ShapeError if there was no such Forward.
  void Backward(const TokenBatch& batch, ParameterSet& gradients,
                TapSink* tap = nullptr);

  // These functions tell of the batch: of its shares up to the last Forward.

  /// Returns the loss of each token (0 if it is ignored), [T].
  std::span<const float> token_losses() const;
  /// Returns the counts over all processes, [MoE layers, experts]. Each row
  /// sums to the global batch's tokens * top_k.
  MatrixView<const int64_t> tokens_per_expert() const;
  /// Returns the choice of this process's tokens, [T, top_k].
  HostRows<int32_t> expert_ids(size_t moe_layer) const;
  const expert_parallel::DispatchCounts& dispatch_counts(
      size_t moe_layer) const;

  /// Returns the figures over all processes, one for each MoE layer. All
  /// processes call this at the same point; each gets the result.
  std::vector<RouterFigures> MergeRouterFigures() const;

  /// Return the number of GEMM calls in this process so far: with a quantised
  /// operand, and in total. Each expert counts for itself, even without tokens;
  /// attention's inner products don't count.
  int64_t quantized_gemms() const;
  int64_t gemms() const;
  /// One Forward + Backward, of a batch or a share, must add these to the two
  /// numbers above.
  int64_t quantized_gemms_per_step() const;
  int64_t gemms_per_step() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace isoloss::model
