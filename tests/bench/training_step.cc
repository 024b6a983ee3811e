#include "training_step.h"

#include <memory>

#include "isoloss/base/rng.h"
#include "isoloss/model/config.h"
#include "isoloss/model/tokens.h"
#include "isoloss/optim/clip.h"
#include "isoloss/optim/expert_bias.h"
#include "isoloss/optim/tensor.h"
#include "isoloss/precision/recipe.h"
#include "isoloss/transport/transport.h"

namespace isoloss::bench {
namespace {

/// Parameters of the matrices that one token meets.
size_t ActiveMatrixParameters(const model::ModelConfig& c) {
  const size_t query = c.n_heads * c.qk_head_dim();
  const size_t attention =
      c.dim * c.q_lora_rank + c.q_lora_rank * query +
      c.dim * (c.kv_lora_rank + c.qk_rope_head_dim) +
      c.kv_lora_rank * c.n_heads * (c.qk_nope_head_dim + c.v_head_dim) +
      c.n_heads * c.v_head_dim * c.dim;
  const size_t dense = 3 * c.dim * c.dense_hidden_dim;
  const size_t moe =
      3 * c.dim * c.moe_hidden_dim * (c.top_k + c.num_shared_experts) +
      c.dim * c.num_experts;
  return c.n_layers * attention + c.n_dense_layers * dense +
         c.n_moe_layers() * moe + c.dim * c.vocab_size;
}

/// 3 passes x 2 operations x (query + value width) x mean keys of a query.
double AttentionFlopsPerToken(const model::ModelConfig& c,
                              size_t sequence_length) {
  return 6.0 *
         static_cast<double>(c.n_layers * c.n_heads *
                             (c.qk_head_dim() + c.v_head_dim)) *
         static_cast<double>(sequence_length) / 2.0;
}

std::vector<optim::Tensor> TensorsOf(model::ParameterSet& parameters,
                                     model::ParameterSet& gradients) {
  std::vector<optim::Tensor> tensors;
  for (size_t i = 0; i < parameters.parameters().size(); ++i) {
    auto& values = parameters.parameters()[i].values;
    auto& gradient = gradients.parameters()[i].values;
    tensors.push_back(
        {{values.data(), values.size()}, {gradient.data(), gradient.size()}});
  }
  return tensors;
}

train::Preset PresetOf(const StepSetup& setup) {
  train::Preset preset = train::PresetByName(setup.preset);
  if (setup.layers > 0) preset.model.n_layers = setup.layers;
  if (setup.experts > 0) preset.model.num_experts = setup.experts;
  return preset;
}

expert_parallel::MeshConfig MeshOf(const StepSetup& setup,
                                   const model::ModelConfig& model) {
  return {.topology = {.experts = model.num_experts, .ranks = setup.ranks},
          .options = setup.exchange};
}

/// Null where nothing has to travel.
std::unique_ptr<transport::Transport> TransportOf(
    const expert_parallel::MeshConfig& mesh, Executor& executor) {
  if (IsLocal(mesh)) return nullptr;
  return transport::MakeTransport(
      "loop", {.ranks = static_cast<int>(mesh.topology.ranks)}, executor);
}

}  // namespace

TrainingStep::TrainingStep(const StepSetup& setup)
    : preset_(PresetOf(setup)),
      executor_(setup.threads),
      mesh_(MeshOf(setup, preset_.model),
            TransportOf(MeshOf(setup, preset_.model), executor_), executor_),
      parameters_(preset_.model),
      gradients_(preset_.model),
      transformer_(preset_.model, precision::RecipeByName(setup.recipe),
                   executor_, mesh_),
      adamw_(optim::AdamWConfig{}, TensorsOf(parameters_, gradients_)),
      expert_bias_(preset_.model.n_moe_layers(), preset_.model.num_experts) {
  const CounterRng bytes(7, 0);
  const size_t length = preset_.sequence_length;
  for (size_t t = 0; t < setup.sequences * length; ++t) {
    ids_.push_back(static_cast<int32_t>(bytes.Below(t, 256)));
    labels_.push_back(static_cast<int32_t>(bytes.Below(t + 1, 256)));
    positions_.push_back(static_cast<int32_t>(t % length));
    if ((t + 1) % length == 0) sequence_ends_.push_back(t + 1);
  }
  model::InitializeParameters(1, parameters_);
  transformer_.LoadWeights(parameters_);
  transformer_.LoadExpertBias(expert_bias_.view());
}

double TrainingStep::Run() {
  const model::TokenBatch batch = {ids_, labels_, positions_, sequence_ends_,
                                   sequence_ends_};
  const double loss = transformer_.Forward(batch);
  transformer_.Backward(batch, gradients_);
  mesh_.exchanges().CheckConservation();
  const double norm = optim::GlobalNorm(adamw_.tensors(), executor_);
  const MatrixView<const int64_t> counts = transformer_.tokens_per_expert();
  for (size_t layer = 0; layer < counts.rows(); ++layer) {
    optim::UpdateExpertBias({counts.Row(layer), counts.cols()}, 0.01f,
                            {expert_bias_.Row(layer), expert_bias_.cols()});
  }
  adamw_.Step(1e-4, optim::ClipCoefficient(norm, 1.0), executor_);
  transformer_.LoadWeights(parameters_);
  transformer_.LoadExpertBias(expert_bias_.view());
  return loss;
}

double TrainingStep::flops() const {
  const model::ModelConfig& c = preset_.model;
  return static_cast<double>(ids_.size()) *
         (6.0 * static_cast<double>(ActiveMatrixParameters(c)) +
          AttentionFlopsPerToken(c, preset_.sequence_length));
}

}  // namespace isoloss::bench
