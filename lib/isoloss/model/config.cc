#include "isoloss/model/config.h"

#include <cmath>
#include <functional>
#include <string>
#include <string_view>

#include "isoloss/base/error.h"
#include "isoloss/kernels/elementary.h"

namespace isoloss::model {
namespace {

using Fail = std::function<void(std::string_view key, const std::string&)>;

class Checker {
 public:
  explicit Checker(const Fail& fail) : fail_(fail) {}

  void Require(bool holds, std::string_view key, auto value,
               std::string_view rule, std::string_view remedy) const {
    if (holds) return;
    fail_(key, fmt::format("is {}, but {}. {}.", value, rule, remedy));
  }
  void NotZero(std::string_view key, size_t value) const {
    Require(value > 0, key, value, "must be at least 1", "Give a size");
  }
  void Positive(std::string_view key, double value) const {
    Require(std::isfinite(value) && value > 0, key, value,
            "must be finite and above 0", "Give such a number");
  }

 private:
  const Fail& fail_;
};

void CheckAttention(const ModelConfig& c, const Checker& check) {
  check.NotZero("n_heads", c.n_heads);
  check.NotZero("kv_lora_rank", c.kv_lora_rank);
  check.NotZero("qk_nope_head_dim", c.qk_nope_head_dim);
  check.NotZero("qk_rope_head_dim", c.qk_rope_head_dim);
  check.Require(c.qk_rope_head_dim % 2 == 0, "qk_rope_head_dim",
                c.qk_rope_head_dim,
                "must be even, since RoPE rotates pairs of elements",
                "Give an even width");
  check.NotZero("v_head_dim", c.v_head_dim);
  check.Require(std::isfinite(c.rope_theta) && c.rope_theta > 1, "rope_theta",
                c.rope_theta, "must be finite and above 1",
                "The usual value is 10000");
  if (!c.yarn) return;
  check.Require(std::isfinite(c.rope_factor) && c.rope_factor >= 1,
                "rope_factor", c.rope_factor, "must be finite and at least 1",
                "1 switches YaRN off");
  check.Positive("beta_slow", c.beta_slow);
  check.Require(std::isfinite(c.beta_fast) && c.beta_fast > c.beta_slow,
                "beta_fast", c.beta_fast, "must be finite and above beta_slow",
                "The usual pair is 32 and 1");
  check.Positive("original_seq_len", c.original_seq_len);
  check.Require(std::isfinite(c.mscale) && c.mscale >= 0, "mscale", c.mscale,
                "must be finite and at least 0", "The usual value is 1");
}

void CheckExpertGroups(const ModelConfig& c, const Checker& check) {
  if (c.num_expert_groups == 0) {
    check.Require(c.num_limited_groups == 0, "num_limited_groups",
                  c.num_limited_groups, "num_expert_groups is 0",
                  "Set both or neither");
    return;
  }
  check.Require(c.num_experts % c.num_expert_groups == 0, "num_expert_groups",
                c.num_expert_groups,
                fmt::format("it must divide num_experts = {}", c.num_experts),
                "Choose a divisor");
  const size_t group_size = c.num_experts / c.num_expert_groups;
  check.Require(group_size >= 2, "num_expert_groups", c.num_expert_groups,
                fmt::format("that leaves {} of {} experts per group and a "
                            "group's score is the sum of its two best",
                            group_size, c.num_experts),
                "Use fewer groups");
  check.Require(
      c.num_limited_groups >= 1 && c.num_limited_groups <= c.num_expert_groups,
      "num_limited_groups", c.num_limited_groups,
      fmt::format("must be from 1 to num_expert_groups = {}",
                  c.num_expert_groups),
      "Correct either");
  check.Require(
      c.top_k <= c.num_limited_groups * group_size, "top_k", c.top_k,
      fmt::format("num_limited_groups = {} of {} experts offer only {}",
                  c.num_limited_groups, group_size,
                  c.num_limited_groups * group_size),
      "Lower top_k or raise num_limited_groups");
}

void CheckExperts(const ModelConfig& c, const Checker& check) {
  check.NotZero("num_experts", c.num_experts);
  check.NotZero("moe_hidden_dim", c.moe_hidden_dim);
  check.NotZero("top_k", c.top_k);
  check.Require(c.top_k <= c.num_experts, "top_k", c.top_k,
                fmt::format("must be at most num_experts = {}", c.num_experts),
                "Lower top_k or add experts");
  check.Positive("route_scale", c.route_scale);
  CheckExpertGroups(c, check);
}

}  // namespace

double ModelConfig::SoftmaxScale() const {
  const double scale = 1.0 / std::sqrt(static_cast<double>(qk_head_dim()));
  if (!yarn || rope_factor <= 1) return scale;
  const double m = 0.1 * mscale * kernels::Log(rope_factor) + 1.0;
  return scale * m * m;
}

void Validate(const ModelConfig& config, const char* where) {
  Validate(config, [where](std::string_view key, const std::string& message) {
    ThrowError(ErrorKind::kConfig, "{} {} {}", where, key, message);
  });
}

void Validate(const ModelConfig& config, const Fail& fail) {
  const Checker check(fail);
  check.NotZero("vocab_size", config.vocab_size);
  check.NotZero("dim", config.dim);
  check.NotZero("n_layers", config.n_layers);
  check.Require(config.n_dense_layers <= config.n_layers, "n_dense_layers",
                config.n_dense_layers,
                fmt::format("must be at most n_layers = {}", config.n_layers),
                "The rest are expert layers");
  check.Positive("norm_eps", config.norm_eps);
  CheckAttention(config, check);
  if (config.n_dense_layers > 0) {
    check.NotZero("dense_hidden_dim", config.dense_hidden_dim);
  }
  if (config.n_moe_layers() > 0) CheckExperts(config, check);
}

}  // namespace isoloss::model
