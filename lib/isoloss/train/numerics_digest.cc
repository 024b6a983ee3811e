#include "isoloss/train/numerics_digest.h"

#include <cmath>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "isoloss/base/digest.h"
#include "isoloss/base/matrix.h"
#include "isoloss/base/rng.h"
#include "isoloss/expert_parallel/mesh.h"
#include "isoloss/model/parameters.h"
#include "isoloss/precision/recipe.h"
#include "isoloss/train/arm_recipes.h"
#include "isoloss/train/learner.h"
#include "isoloss/transport/process_transport.h"

namespace isoloss::train {
namespace {

constexpr size_t kSequences = 4;
constexpr size_t kSequenceLength = 40;  // ends inside a leaf of 32 tokens
constexpr size_t kRanks = 8;
constexpr uint64_t kSeed = 20;

/// No width is a multiple of the blocks' 32 and 128 values, so that the digest
/// covers blocks that end early.
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
  if (recipe.chooses_sites()) {
    recipe.include = {"layers"};
    recipe.exclude = {"router.gate", "lm_head"};
    // An override may be for sites that are not chosen here.
    for (precision::SiteOverride& item : recipe.overrides) {
      for (std::string& pattern : item.sites) {
        if (!pattern.ends_with('?')) pattern += '?';
      }
    }
  }
  return recipe;
}

/// Avoids MakeTransport, which would look for a launcher: each process that
/// trains along measures for itself.
std::unique_ptr<transport::Transport> Loop(Executor& executor) {
  transport::TransportOptions options;
  options.ranks = static_cast<int>(kRanks);
  return std::make_unique<transport::ProcessTransport>(
      "loop", options, executor, /*run_id=*/0, /*link=*/nullptr);
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

/// Tokens are not quite random: each depends on the token before it, plus
/// noise.
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

/// Returns the rules of the update: gradients are clipped, and all further
/// rules are the defaults.
TrainConfig Training() {
  TrainConfig train;
  train.steps = 3;
  train.lr = 1e-2;
  train.warmup_steps = 1;
  train.decay_type = optim::DecayShape::kCosine;
  train.clip_norm = 0.5;
  return train;
}

}  // namespace

namespace {

/// Returns NumericsDigest of an arm's first recipe.
uint64_t DigestOfRecipe(const Arm& arm, Executor& executor) {
  const model::ModelConfig model = TinyModel();
  const TrainConfig train = Training();
  const Tokens tokens;
  expert_parallel::Mesh mesh(MeshFor(arm), Loop(executor), executor);
  const Seams none;
  Learner learner(model, train, {{.recipe = RecipeFor(arm)}}, kSeed, executor,
                  none, mesh);
  learner.EditInitialWeights([&model](model::ParameterSet& parameters) {
    SpreadChannels(model, parameters);
  });
  Digest digest;
  const auto include = [&digest](auto number) {
    digest.Update(&number, sizeof(number));
  };
  for (int64_t step = 1; step <= train.steps; ++step) {
    const StepFigures figures = learner.Step(step, tokens.view(), nullptr);
    include(figures.loss_nats);
    include(figures.grad_norm);
    for (size_t layer = 0; layer < model.n_moe_layers(); ++layer) {
      const HostRows<int32_t> rows = learner.transformer().expert_ids(layer);
      const MatrixView<const int32_t> ids = rows.view();
      digest.Update(ids.data(), ids.rows() * ids.cols() * sizeof(int32_t));
    }
    const MatrixView<const float> bias = learner.expert_bias();
    digest.Update(bias.data(), bias.rows() * bias.cols() * sizeof(float));
  }
  include(learner.parameters().Digest());
  return digest.Value();
}

}  // namespace

uint64_t NumericsDigest(const Arm& arm, Executor& executor) {
  const uint64_t first = DigestOfRecipe(arm, executor);
  if (arm.then.empty()) return first;
  Digest digest;
  digest.Update(&first, sizeof(first));
  for (size_t phase = 1; phase <= arm.then.size(); ++phase) {
    const uint64_t later = DigestOfRecipe(ArmInPhase(arm, phase), executor);
    digest.Update(&later, sizeof(later));
  }
  return digest.Value();
}

}  // namespace isoloss::train
