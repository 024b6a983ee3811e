#include "isoloss/treatments/model_work.h"

#include <algorithm>

#include "isoloss/model/graph.h"
#include "isoloss/treatments/site_kinds.h"

namespace isoloss::treatments {
namespace {

/// A term takes a multiplication and an addition.
constexpr double kFlopsOfATerm = 2;
constexpr Batching kPublishedBatching = {.tokens = 8192, .expert_ranks = 32};

/// Adds one site, with the work of each of its products for a token.
void AddSite(const model::ParameterSpec& weight, size_t top_k,
             const Batching& batching, estimators::KindWork& kind) {
  const auto in = static_cast<double>(weight.cols());
  const auto out = static_cast<double>(weight.rows());
  const double rows = weight.of_experts ? static_cast<double>(top_k) : 1;
  const double matrices =
      weight.of_experts
          ? static_cast<double>(weight.groups()) / batching.expert_ranks
          : 1;
  const double weights = matrices * in * out / batching.tokens;
  const double flops = kFlopsOfATerm * rows * in * out;
  const auto add = [&](precision::GemmRole role, double times, double left,
                       double right) {
    estimators::ProductWork& work = kind.products.at(static_cast<size_t>(role));
    work.flops += times * flops;
    work.left_elements += times * left;
    work.right_elements += times * right;
  };
  add(precision::GemmRole::kFprop, 2, rows * in, weights);  // and recomputed
  add(precision::GemmRole::kDgrad, 1, rows * out, weights);
  add(precision::GemmRole::kWgrad, 1, rows * out, rows * in);
}

/// Returns the sizes that 16B and 671B have in common.
model::ModelConfig PublishedConfig() {
  model::ModelConfig config;
  config.kv_lora_rank = 512;
  config.qk_nope_head_dim = 128;
  config.qk_rope_head_dim = 64;
  config.v_head_dim = 128;
  return config;
}

}  // namespace

estimators::ModelWork WorkOf(const std::string& name,
                             const model::ModelConfig& model,
                             const Batching& batching) {
  estimators::ModelWork work{.name = name,
                             .moe_layers = model.n_moe_layers(),
                             .dim = model.dim,
                             .experts = model.num_experts,
                             .top_k = model.top_k};
  const model::Graph graph = model::GraphOf(model);
  for (const model::GemmSite& site : graph.sites) {
    const std::string kind = KindOf(site.name);
    auto found =
        std::ranges::find(work.kinds, kind, &estimators::KindWork::kind);
    if (found == work.kinds.end()) {
      found = work.kinds.insert(work.kinds.end(), {.kind = kind});
    }
    AddSite(graph.parameters[site.parameter], model.top_k, batching, *found);
  }
  return work;
}

estimators::ModelWork WorkOf16b() {
  model::ModelConfig config = PublishedConfig();
  config.vocab_size = 102400;
  config.dim = 2048;
  config.n_layers = 27;
  config.n_dense_layers = 1;
  config.n_heads = 16;
  config.q_lora_rank = 0;
  config.dense_hidden_dim = 10944;
  config.moe_hidden_dim = 1408;
  config.num_experts = 64;
  config.num_shared_experts = 2;
  config.top_k = 6;
  return WorkOf("16B", config, kPublishedBatching);
}

estimators::ModelWork WorkOf671b() {
  model::ModelConfig config = PublishedConfig();
  config.vocab_size = 129280;
  config.dim = 7168;
  config.n_layers = 61;
  config.n_dense_layers = 3;
  config.n_heads = 128;
  config.q_lora_rank = 1536;
  config.dense_hidden_dim = 18432;
  config.moe_hidden_dim = 2048;
  config.num_experts = 256;
  config.num_shared_experts = 1;
  config.top_k = 8;
  return WorkOf("671B", config, kPublishedBatching);
}

}  // namespace isoloss::treatments
