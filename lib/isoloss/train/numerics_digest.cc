#include "isoloss/train/numerics_digest.h"

#include <cmath>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "isoloss/base/digest.h"
#include "isoloss/base/matrix.h"
#include "isoloss/base/rng.h"
#include "isoloss/expert_parallel/mesh.h"
#include "isoloss/model/parameters.h"
#include "isoloss/model/transformer.h"
#include "isoloss/optim/adamw.h"
#include "isoloss/optim/clip.h"
#include "isoloss/optim/expert_bias.h"
#include "isoloss/optim/schedule.h"
#include "isoloss/precision/recipe.h"
#include "isoloss/transport/process_transport.h"

namespace isoloss::train {
namespace {

constexpr int64_t kSteps = 3;
constexpr size_t kSequences = 4;
constexpr size_t kSequenceLength = 40;  // ends inside a leaf of 32 tokens
constexpr size_t kRanks = 8;
constexpr uint64_t kSeed = 20;

/// No width is a multiple of the blocks' 32 and 128 values, so that blocks that
/// end early are part of it.
model::ModelConfig TinyModel() {
  model::ModelConfig config;
  config.vocab_size = 40;
  config.dim = 144;
  config.n_layers = 2;
  config.n_dense_layers = 1;
  config.n_heads = 2;
  config.q_lora_rank = 40;
  config.kv_lora_rank = 36;
  config.qk_nope_head_dim = 12;
  config.qk_rope_head_dim = 8;
  config.v_head_dim = 20;
  config.dense_hidden_dim = 40;
  config.moe_hidden_dim = 12;
  config.num_experts = 16;
  config.num_shared_experts = 1;
  config.top_k = 4;
  return config;
}

/// Makes channels of the residual stream, and their gradients, ever smaller:
/// elements at the end of a row vanish beside those at its beginning unless
/// blocks of a format are short. Equal scales would hide where blocks end.
void SpreadChannels(const model::ModelConfig& config,
                    model::ParameterSet& parameters) {
  const auto scale = [&](size_t channel) {
    return std::ldexp(1.0F, -static_cast<int>(20 * channel / config.dim));
  };
  for (model::Parameter& parameter : parameters.parameters()) {
    const std::string_view name = parameter.name;
    const bool reads =
        name.ends_with("norm.weight") || name.starts_with("tok_embeddings");
    const bool writes = name.find(".w2") != std::string_view::npos ||
                        name.find(".wo.") != std::string_view::npos;
    Matrix<float>& values = parameter.values;
    for (size_t row = 0; row < values.rows(); ++row) {
      for (size_t col = 0; col < values.cols(); ++col) {
        if (reads && values.cols() == config.dim)
          values(row, col) *= scale(col);
        if (writes) values(row, col) *= scale(row % config.dim);
      }
    }
  }
}

precision::Recipe RecipeFor(const Arm& arm) {
  precision::Recipe recipe = arm.BaseRecipe();
  if (recipe.quantizes()) {
    recipe.include = {"layers"};
    recipe.exclude = {"router.gate", "lm_head"};
  }
  return recipe;
}

/// Not MakeTransport's, which would look for a launcher: other processes that
/// train along measure for themselves.
std::unique_ptr<transport::Transport> Loop(ThreadTeam& team) {
  transport::TransportOptions options;
  options.ranks = static_cast<int>(kRanks);
  return std::make_unique<transport::ProcessTransport>(
      "loop", options, team, /*run_id=*/0, /*link=*/nullptr);
}

expert_parallel::MeshConfig MeshFor(const Arm& arm) {
  expert_parallel::MeshConfig config;
  config.topology.experts = TinyModel().num_experts;
  config.topology.ranks = kRanks;
  config.topology.ranks_per_node = 2;
  config.options = arm.exchange.Resolved();
  config.dispatch_units = 2;
  return config;
}

/// Tokens with some order in them: sums of the neighbours before and noise.
struct Tokens {
  Tokens() {
    const auto vocab = static_cast<int32_t>(TinyModel().vocab_size);
    const CounterRng rng(kSeed, StreamId("numerics"));
    for (size_t sequence = 0; sequence < kSequences; ++sequence) {
      int32_t token = 0;
      for (size_t i = 0; i < kSequenceLength; ++i) {
        ids.push_back(token);
        positions.push_back(static_cast<int32_t>(i));
        const auto noise = static_cast<int32_t>(rng.Below(ids.size(), 8));
        token = (3 * token + noise) % vocab;
        labels.push_back(i % 7 == 6 ? -100 : token);
      }
      ends.push_back(ids.size());
    }
  }
  model::TokenBatch view() const {
    return {ids, labels, positions, ends, ends};
  }

  std::vector<int32_t> ids;
  std::vector<int32_t> labels;
  std::vector<int32_t> positions;
  std::vector<size_t> ends;
};

std::vector<optim::Tensor> Pair(model::ParameterSet& parameters,
                                const model::ParameterSet& gradients) {
  std::vector<optim::Tensor> tensors;
  for (size_t i = 0; i < parameters.parameters().size(); ++i) {
    Matrix<float>& values = parameters.parameters()[i].values;
    const Matrix<float>& gradient = gradients.parameters()[i].values;
    tensors.push_back(
        {{values.data(), values.size()}, {gradient.data(), gradient.size()}});
  }
  return tensors;
}

/// The trainer's step, without what it logs.
class TinyRun {
 public:
  TinyRun(const Arm& arm, ThreadTeam& team)
      : config_(TinyModel()),
        team_(team),
        mesh_(MeshFor(arm), Loop(team), team),
        parameters_(config_),
        gradients_(config_),
        bias_(config_.n_moe_layers(), config_.num_experts),
        transformer_(config_, RecipeFor(arm), team, mesh_),
        adamw_({}, Pair(parameters_, gradients_)),
        schedule_({.base_lr = 1e-2,
                   .total_steps = kSteps,
                   .warmup_steps = 1,
                   .decay = optim::DecayShape::kCosine,
                   .min_lr_factor = 0.1}) {
    model::InitializeParameters(config_, kSeed, parameters_);
    SpreadChannels(config_, parameters_);
  }

  uint64_t Run() {
    const Tokens tokens;
    for (int64_t step = 0; step < kSteps; ++step) Step(step, tokens.view());
    Include(parameters_.Digest());
    return digest_.Value();
  }

 private:
  template <typename Number>
  void Include(Number number) {
    digest_.Update(&number, sizeof(number));
  }

  void Step(int64_t step, const model::TokenBatch& batch) {
    transformer_.LoadWeights(parameters_);
    transformer_.LoadExpertBias(bias_.view());
    mesh_.BeginStep(step + 1);
    Include(transformer_.Forward(batch));
    transformer_.Backward(batch, gradients_);
    const double norm = optim::GlobalNorm(adamw_.tensors(), team_);
    Include(norm);
    const MatrixView<const int64_t> counts = transformer_.tokens_per_expert();
    for (size_t layer = 0; layer < counts.rows(); ++layer) {
      const MatrixView<const int32_t> ids = transformer_.expert_ids(layer);
      digest_.Update(ids.data(), ids.rows() * ids.cols() * sizeof(int32_t));
      optim::UpdateExpertBias({counts.Row(layer), counts.cols()}, 0.01F,
                              {bias_.Row(layer), bias_.cols()});
    }
    digest_.Update(bias_.data(), bias_.size() * sizeof(float));
    constexpr double kMaxNorm = 0.5;  // is exceeded, so gradients are clipped
    adamw_.Step(schedule_.LearningRate(step),
                optim::ClipCoefficient(norm, kMaxNorm), team_);
  }

  model::ModelConfig config_;
  ThreadTeam& team_;
  expert_parallel::Mesh mesh_;
  model::ParameterSet parameters_;
  model::ParameterSet gradients_;
  Matrix<float> bias_;  // [MoE layers, experts]
  model::Transformer transformer_;
  optim::AdamW adamw_;
  optim::Schedule schedule_;
  Digest digest_;
};

}  // namespace

uint64_t NumericsDigest(const Arm& arm, ThreadTeam& team) {
  return TinyRun(arm, team).Run();
}

}  // namespace isoloss::train
