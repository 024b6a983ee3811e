// A small model with random weights and batches, for tests that need no
// reference.
#pragma once

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "isoloss/base/digest.h"
#include "isoloss/base/executor.h"
#include "isoloss/base/rng.h"
#include "isoloss/expert_parallel/mesh.h"
#include "isoloss/model/transformer.h"

namespace isoloss::test_support {

/// Awkward sizes: no width is a multiple of 16 or 32.
inline model::ModelConfig SmallConfig() {
  model::ModelConfig config;
  config.vocab_size = 37;
  config.dim = 40;
  config.n_layers = 2;
  config.n_heads = 3;
  config.q_lora_rank = 20;
  config.kv_lora_rank = 18;
  config.qk_nope_head_dim = 10;
  config.qk_rope_head_dim = 6;
  config.v_head_dim = 12;
  config.dense_hidden_dim = 52;
  config.moe_hidden_dim = 22;
  config.num_experts = 6;
  config.top_k = 2;
  return config;
}

/// A batch that owns its tokens.
struct SmallBatch {
  /// Random tokens in documents of the given lengths; every fifth label is
  /// ignored. Sequences are the documents unless `sequence_ends` is set later.
  SmallBatch(const model::ModelConfig& config,
             const std::vector<size_t>& document_lengths, uint64_t seed = 5) {
    const CounterRng rng(seed, 0);
    for (const size_t length : document_lengths) {
      for (size_t position = 0; position < length; ++position) {
        const size_t t = tokens.size();
        tokens.push_back(
            static_cast<int32_t>(rng.Below(2 * t, config.vocab_size)));
        labels.push_back(t % 5 == 3 ? -100
                                    : static_cast<int32_t>(rng.Below(
                                          2 * t + 1, config.vocab_size)));
        positions.push_back(static_cast<int32_t>(position));
      }
      document_ends.push_back(tokens.size());
    }
    sequence_ends = document_ends;
  }

  model::TokenBatch view() const {
    return {tokens, labels, positions, document_ends, sequence_ends};
  }

  std::vector<int32_t> tokens;
  std::vector<int32_t> labels;
  std::vector<int32_t> positions;
  std::vector<size_t> document_ends;
  std::vector<size_t> sequence_ends;
};

/// A model with weights of unit-variance layers, so that every path
/// contributes; selection biases are 0.
class SmallModel {
 public:
  explicit SmallModel(const model::ModelConfig& config,
                      const std::string& recipe = "fp32", int threads = 1)
      : SmallModel(config,
                   {.topology = {.experts = config.num_experts}, .options = {}},
                   recipe, threads) {}
  /// On a mesh of ranks in this process.
  SmallModel(const model::ModelConfig& config,
             const expert_parallel::MeshConfig& mesh,
             const std::string& recipe = "fp32", int threads = 1)
      : SmallModel(config, mesh, precision::RecipeByName(recipe), threads) {}
  SmallModel(const model::ModelConfig& config,
             const expert_parallel::MeshConfig& mesh,
             const precision::Recipe& recipe, int threads = 1)
      : weights(config),
        gradients(config),
        executor_(threads),
        mesh_(mesh, LoopOf(mesh), executor_),
        transformer(config, recipe, executor_, mesh_) {
    model::InitializeParameters(3, weights);
    for (model::Parameter& parameter : weights.parameters()) {
      if (parameter.init.std >= 0.05) continue;
      if (parameter.shape.size() == 1) continue;
      Scale(parameter);
    }
    Load();
  }

  void Load() { transformer.LoadWeights(weights); }

  double Step(const SmallBatch& batch, model::TapSink* tap = nullptr) {
    const double loss = transformer.Forward(batch.view(), tap);
    transformer.Backward(batch.view(), gradients, tap);
    return loss;
  }

  model::ParameterSet weights;
  model::ParameterSet gradients;

 private:
  /// From torchtitan's small deviations to about 1 / sqrt(fan in).
  static void Scale(model::Parameter& parameter) {
    double squares = 0.0;
    float* values = parameter.values.data();
    const size_t count = parameter.values.size();
    for (size_t i = 0; i < count; ++i) {
      squares +=
          static_cast<double>(values[i]) * static_cast<double>(values[i]);
    }
    const double fan_in = static_cast<double>(parameter.shape.back());
    const double deviation = std::sqrt(squares / static_cast<double>(count));
    const auto factor =
        static_cast<float>(1.0 / (deviation * std::sqrt(fan_in)));
    for (size_t i = 0; i < count; ++i) values[i] *= factor;
  }

  std::unique_ptr<transport::Transport> LoopOf(
      const expert_parallel::MeshConfig& mesh) {
    if (expert_parallel::IsLocal(mesh)) return nullptr;
    return transport::MakeTransport(
        "loop", {.ranks = static_cast<int>(mesh.topology.ranks)}, executor_);
  }

  Executor executor_;
  expert_parallel::Mesh mesh_;

 public:
  model::Transformer transformer;
};

}  // namespace isoloss::test_support
