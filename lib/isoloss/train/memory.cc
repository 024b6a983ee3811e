// Implements EstimatedBytes of experiment.h, and what a token
// takes by cost.h.
#include <algorithm>
#include <bit>
#include <string>
#include <vector>

#include "isoloss/runlog/run_log.h"
#include "isoloss/train/batch_shares.h"
#include "isoloss/train/cost.h"
#include "isoloss/train/experiment.h"

namespace isoloss::train {
namespace {

/// Holds the sizes of a model as doubles, because this file must find products
/// that overflow an integer.
struct Sizes {
  explicit Sizes(const model::ModelConfig& c)
      : vocab(Real(c.vocab_size)),
        dim(Real(c.dim)),
        dense_layers(Real(c.n_layers - c.n_moe_layers())),
        moe_layers(Real(c.n_moe_layers())),
        heads(Real(c.n_heads)),
        q_lora(Real(c.q_lora_rank)),
        kv_lora(Real(c.kv_lora_rank)),
        nope(Real(c.qk_nope_head_dim)),
        rope(Real(c.qk_rope_head_dim)),
        value(Real(c.v_head_dim)),
        dense_hidden(Real(c.dense_hidden_dim)),
        moe_hidden(Real(c.moe_hidden_dim)),
        experts(Real(c.num_experts)),
        shared(Real(c.num_shared_experts)),
        top_k(Real(c.top_k)),
        embeddings(c.tied_embeddings ? 1.0 : 2.0) {}

  static double Real(size_t size) { return static_cast<double>(size); }

  double vocab, dim, dense_layers, moe_layers, heads, q_lora, kv_lora, nope,
      rope, value, dense_hidden, moe_hidden, experts, shared, top_k, embeddings;
};

double AttentionParameters(const Sizes& s) {
  const double q_width = s.heads * (s.nope + s.rope);
  const double query =
      s.q_lora > 0 ? s.q_lora * (s.dim + 1 + q_width) : s.dim * q_width;
  const double latent = s.dim * (s.kv_lora + s.rope) +
                        s.kv_lora * (1 + s.heads * (s.nope + s.value));
  return query + latent + s.dim * s.heads * s.value;
}

double Parameters(const Sizes& s) {
  const double norms = 2 * s.dim;
  const double dense = 3 * s.dim * s.dense_hidden;
  const double moe =
      s.experts * s.dim + 3 * s.dim * s.moe_hidden * (s.experts + s.shared);
  return s.embeddings * s.vocab * s.dim + s.dim +
         (s.dense_layers + s.moe_layers) * (AttentionParameters(s) + norms) +
         s.dense_layers * dense + s.moe_layers * moe;
}

/// Returns the values per token that Forward keeps for Backward: what each
/// layer reads, the insides of its branches, and the logits, which become their
/// own gradient.
double ActivationsPerToken(const Sizes& s) {
  const double residual = 4 * s.dim;
  const double attention = 2 * s.q_lora + 2 * s.heads * (s.nope + s.rope) +
                           2 * s.kv_lora + s.rope +
                           s.heads * (s.nope + 2 * s.value);
  const double moe = s.top_k * (2 * s.dim + 3 * s.moe_hidden) +
                     3 * s.shared * s.moe_hidden + 2 * s.experts;
  return s.vocab + (s.dense_layers + s.moe_layers) * (residual + attention) +
         s.dense_layers * 3 * s.dense_hidden + s.moe_layers * moe;
}

/// Returns the values per token of gradients that all layers share: of the
/// residual stream and its branches, of the experts' inputs and of their
/// insides.
double GradientsPerToken(const Sizes& s) {
  const double moe = s.moe_layers > 0
                         ? 2 * s.dim + s.top_k * (s.dim + s.moe_hidden)
                         : s.dense_hidden;
  return 2 * s.dim + moe;
}

/// Returns the bytes of rows between ranks in one direction of one layer, at
/// the busiest moment: all rows that were sent and all that came back, as BF16.
double ExchangeBytes(const Sizes& s, double tokens) {
  constexpr double kDirections = 2;
  constexpr double kBytesPerWord = 2;
  if (s.moe_layers == 0) return 0;
  return kDirections * kBytesPerWord * tokens * s.top_k * s.dim;
}

/// Returns the largest number of steps of 1 … `steps` that StepChoice{first,
/// every} includes.
double StepsChosen(int64_t first, int64_t every, int64_t steps) {
  const int64_t later = every > 0 ? steps / every : 0;
  return Sizes::Real(std::min(steps, first + later));
}

/// Returns the bytes of a log's widest columns, which stay in memory to the end
/// of the run: counts and biases per expert, bytes and waiting per rank, expert
/// ids, statistics of tensors.
double LogBytes(const Sizes& s, const Experiment& experiment, double tokens) {
  const double per_expert = s.moe_layers * s.experts * 2 * sizeof(int64_t);
  const double per_rank =
      Sizes::Real(experiment.parallel.mesh.ranks) * 3 * sizeof(int64_t);
  const double ids = experiment.log.routing
                         ? s.moe_layers * tokens * s.top_k * sizeof(int32_t)
                         : 0;
  constexpr double kHistograms = 2;
  constexpr double kBytesPerTensor =
      sizeof(int64_t) + runlog::kTensorStatisticCount * sizeof(double) +
      kHistograms * runlog::kScaleBytes * sizeof(int32_t);
  return static_cast<double>(experiment.train.steps) *
             (per_expert + per_rank + ids) +
         EstimatedTensorRows(experiment) * kBytesPerTensor;
}

/// Returns the sequences of the largest share of a batch, also of the last
/// batch of an evaluation.
double SequencesAtOnce(const Experiment& experiment) {
  const size_t sequences = experiment.train.sequences_per_batch;
  const auto share = [&](size_t batch) {
    return batch == 0 ? 0
                      : batch / SharesOf(experiment.parallel.shares(), batch);
  };
  return Sizes::Real(std::max(
      share(sequences), share(experiment.log.eval_sequences % sequences)));
}

}  // namespace

double EstimatedTensorRows(const Experiment& experiment) {
  const LogConfig& log = experiment.log;
  // Nobody knows how many tensors a pattern chooses; a layer announces some
  // 120.
  if (log.statistics_tensors != std::vector<std::string>{"*"}) return 0;
  const double tensors = 40 + 120.0 * Sizes::Real(experiment.model.n_layers);
  return tensors * StepsChosen(log.statistics_first, log.statistics_every,
                               experiment.train.steps);
}

double EstimatedParameters(const model::ModelConfig& config) {
  return Parameters(Sizes(config));
}

double ActiveParameters(const model::ModelConfig& config) {
  const Sizes s(config);
  return Parameters(s) -
         s.moe_layers * 3 * s.dim * s.moe_hidden * (s.experts - s.top_k);
}

double FlopsPerToken(const Experiment& experiment) {
  const Sizes s(experiment.model);
  const double layers = s.dense_layers + s.moe_layers;
  // A token meets top_k of a layer's experts and the shared experts; it only
  // copies a row of the embedding.
  const double weights =
      s.vocab * s.dim + layers * AttentionParameters(s) +
      s.dense_layers * 3 * s.dim * s.dense_hidden +
      s.moe_layers *
          (s.experts * s.dim + 3 * s.dim * s.moe_hidden * (s.top_k + s.shared));
  // Attention reads scores and values of the earlier tokens, which are half of
  // the sequence on average.
  const double attention = layers * s.heads * (s.nope + s.rope + s.value) *
                           Sizes::Real(experiment.data.sequence_length) / 2;
  constexpr double kForwardAndBackward = 3;
  constexpr double kMultiplyAndAdd = 2;
  return kForwardAndBackward * kMultiplyAndAdd * (weights + attention);
}

double EstimatedBytes(const Experiment& experiment) {
  const Sizes s(experiment.model);
  // The values are weights, gradients and two moments, and the gradients of
  // earlier shares of the batch (GradientFold). Products round and quantise
  // weights as they read them.
  const size_t shares = experiment.parallel.shares();
  const double values_per_parameter =
      Sizes::Real(4 + std::bit_width(shares - 1));
  const double tokens = Sizes::Real(experiment.train.sequences_per_batch) *
                        Sizes::Real(experiment.data.sequence_length);
  const double at_once = SequencesAtOnce(experiment) *
                         Sizes::Real(experiment.data.sequence_length);
  const double values =
      Parameters(s) * values_per_parameter +
      at_once * (ActivationsPerToken(s) + GradientsPerToken(s));
  return values * sizeof(float) + ExchangeBytes(s, at_once) +
         LogBytes(s, experiment, tokens);
}

}  // namespace isoloss::train
