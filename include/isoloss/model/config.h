// Holds and validates the sizes and switches of a DeepSeek-V3-style model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "isoloss/kernels/routing.h"

namespace isoloss::model {

/// How router logits become scores.
enum class ScoreFunction { kSigmoid, kSoftmax };

/// docs/model.md holds the formulas; names are torchtitan's.
struct ModelConfig {
  size_t vocab_size = 256;
  size_t dim = 64;
  size_t n_layers = 2;
  /// The first n_dense_layers have a dense feed-forward, the rest experts.
  size_t n_dense_layers = 1;
  size_t n_heads = 4;
  /// If this is 0, queries come from one projection wq.
  size_t q_lora_rank = 0;
  size_t kv_lora_rank = 32;
  size_t qk_nope_head_dim = 16;
  size_t qk_rope_head_dim = 8;  ///< even
  size_t v_head_dim = 16;
  size_t dense_hidden_dim = 128;
  size_t moe_hidden_dim = 48;
  size_t num_experts = 8;
  /// Shared experts are one feed-forward of width num_shared_experts *
  /// moe_hidden_dim. If this is 0, there are none.
  size_t num_shared_experts = 1;
  size_t top_k = 2;
  /// If this is 0, there is no group limit. Otherwise experts lie in
  /// num_expert_groups consecutive groups, of which num_limited_groups are kept
  /// per token.
  size_t num_expert_groups = 0;
  size_t num_limited_groups = 0;
  ScoreFunction score_function = ScoreFunction::kSigmoid;
  bool route_norm = true;
  double route_scale = 2.5;
  bool tied_embeddings = false;
  double norm_eps = 1e-5;
  double rope_theta = 10000.0;
  /// YaRN is active when yarn is set and rope_factor > 1.
  bool yarn = false;
  double rope_factor = 40.0;
  double beta_fast = 32.0;
  double beta_slow = 1.0;
  double original_seq_len = 4096.0;
  double mscale = 1.0;

  kernels::RouterRule router_rule() const {
    return {.groups = num_expert_groups,
            .limited_groups = num_limited_groups,
            .normalises = route_norm,
            .scale = static_cast<float>(route_scale),
            .softmax = score_function == ScoreFunction::kSoftmax};
  }
  size_t qk_head_dim() const { return qk_nope_head_dim + qk_rope_head_dim; }
  bool IsMoeLayer(size_t layer) const { return layer >= n_dense_layers; }
  size_t n_moe_layers() const {
    return n_layers > n_dense_layers ? n_layers - n_dense_layers : 0;
  }
  /// Returns the factor on q.k before the softmax, with YaRN's mscale folded
  /// in.
  double SoftmaxScale() const;
};

/// Throws ConfigError at the first broken rule; the message starts with
/// `where` and names key, value and rule.
void Validate(const ModelConfig& config, const char* where);

/// Does the same, but calls `fail`, which throws: it gets the key and "is 0,
/// but must be ...".
void Validate(const ModelConfig& config,
              const std::function<void(std::string_view key,
                                       const std::string& message)>& fail);

}  // namespace isoloss::model
