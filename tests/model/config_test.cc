#include "isoloss/model/config.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>

#include "isoloss/base/error.h"

namespace isoloss::model::config_test {
namespace {

/// What Validate says about the default config after `change`.
std::string ErrorAfter(const std::function<void(ModelConfig&)>& change) {
  ModelConfig config;
  change(config);
  try {
    Validate(config, "experiment.toml: [model]");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    return error.what();
  }
  return "no error";
}

TEST(ModelConfig, AcceptsTheDefaultAndEveryLimit) {
  EXPECT_EQ(ErrorAfter([](ModelConfig&) {}), "no error");
  // The largest top_k that two groups of two allow; all layers dense or MoE.
  EXPECT_EQ(ErrorAfter([](ModelConfig& c) {
              c.num_expert_groups = 4;
              c.num_limited_groups = 2;
              c.top_k = 4;
            }),
            "no error");
  EXPECT_EQ(ErrorAfter([](ModelConfig& c) { c.top_k = 8; }), "no error");
  EXPECT_EQ(ErrorAfter([](ModelConfig& c) {
              c.n_dense_layers = 2;
              c.num_experts = c.top_k = c.moe_hidden_dim = 0;
            }),
            "no error");
  EXPECT_EQ(ErrorAfter([](ModelConfig& c) {
              c.n_dense_layers = c.dense_hidden_dim = 0;
              c.num_shared_experts = 0;
            }),
            "no error");
}

TEST(ModelConfig, NamesKeyValueAndRuleOfABrokenSize) {
  EXPECT_EQ(ErrorAfter([](ModelConfig& c) { c.n_heads = 0; }),
            "experiment.toml: [model] n_heads is 0, but must be at least 1. "
            "Give a size.");
  EXPECT_EQ(ErrorAfter([](ModelConfig& c) { c.qk_rope_head_dim = 7; }),
            "experiment.toml: [model] qk_rope_head_dim is 7, but must be even, "
            "since RoPE rotates pairs of elements. Give an even width.");
  EXPECT_EQ(ErrorAfter([](ModelConfig& c) { c.n_dense_layers = 3; }),
            "experiment.toml: [model] n_dense_layers is 3, but must be at most "
            "n_layers = 2. The rest are expert layers.");
  EXPECT_EQ(ErrorAfter([](ModelConfig& c) { c.top_k = 9; }),
            "experiment.toml: [model] top_k is 9, but must be at most "
            "num_experts = 8. Lower top_k or add experts.");
  EXPECT_EQ(ErrorAfter([](ModelConfig& c) { c.num_experts = 0; }),
            "experiment.toml: [model] num_experts is 0, but must be at least "
            "1. Give a size.");
}

TEST(ModelConfig, RefusesZeroForEverySizeThatIsUsed) {
  for (size_t ModelConfig::*size :
       {&ModelConfig::vocab_size, &ModelConfig::dim, &ModelConfig::n_layers,
        &ModelConfig::kv_lora_rank, &ModelConfig::qk_nope_head_dim,
        &ModelConfig::qk_rope_head_dim, &ModelConfig::v_head_dim,
        &ModelConfig::dense_hidden_dim, &ModelConfig::moe_hidden_dim,
        &ModelConfig::top_k}) {
    EXPECT_NE(ErrorAfter([&](ModelConfig& c) { c.*size = 0; }), "no error");
  }
}

TEST(ModelConfig, NamesTheRuleOfExpertGroups) {
  const auto error_of = [](size_t groups, size_t limited, size_t top_k) {
    return ErrorAfter([&](ModelConfig& c) {
      c.num_expert_groups = groups;
      c.num_limited_groups = limited;
      c.top_k = top_k;
    });
  };
  EXPECT_EQ(error_of(3, 1, 2),
            "experiment.toml: [model] num_expert_groups is 3, but it must "
            "divide num_experts = 8. Choose a divisor.");
  EXPECT_EQ(error_of(8, 1, 1),
            "experiment.toml: [model] num_expert_groups is 8, but that leaves "
            "1 of 8 experts per group and a group's score is the sum of its "
            "two best. Use fewer groups.");
  EXPECT_EQ(error_of(2, 3, 2),
            "experiment.toml: [model] num_limited_groups is 3, but must be "
            "from 1 to num_expert_groups = 2. Correct either.");
  EXPECT_EQ(error_of(2, 0, 2),
            "experiment.toml: [model] num_limited_groups is 0, but must be "
            "from 1 to num_expert_groups = 2. Correct either.");
  EXPECT_EQ(
      error_of(4, 1, 3),
      "experiment.toml: [model] top_k is 3, but num_limited_groups = "
      "1 of 2 experts offer only 2. Lower top_k or raise num_limited_groups.");
  EXPECT_EQ(error_of(0, 1, 2),
            "experiment.toml: [model] num_limited_groups is 1, but "
            "num_expert_groups is 0. Set both or neither.");
}

TEST(ModelConfig, RefusesRealsThatAreNotFiniteOrOutOfRange) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (double ModelConfig::*real :
       {&ModelConfig::route_scale, &ModelConfig::norm_eps,
        &ModelConfig::rope_theta, &ModelConfig::rope_factor,
        &ModelConfig::beta_fast, &ModelConfig::beta_slow,
        &ModelConfig::original_seq_len, &ModelConfig::mscale}) {
    for (const double bad : {kNan, kInfinity, -1.0}) {
      EXPECT_NE(ErrorAfter([&](ModelConfig& c) {
                  c.yarn = true;
                  c.*real = bad;
                }),
                "no error")
          << bad;
    }
  }
}

TEST(ModelConfig, SoftmaxScaleFoldsYarnsMscaleInTwice) {
  ModelConfig config;
  config.qk_nope_head_dim = 128;
  config.qk_rope_head_dim = 64;
  EXPECT_EQ(config.SoftmaxScale(), 1.0 / std::sqrt(192.0));

  // DeepSeek-V3 671B, from docs/model.md, section 3, given with six digits.
  config.yarn = true;
  config.rope_factor = 40;
  config.mscale = 1;
  EXPECT_NEAR(config.SoftmaxScale(), 0.135234, 0.5e-6);

  config.rope_factor = 1;
  EXPECT_EQ(config.SoftmaxScale(), 1.0 / std::sqrt(192.0));
}

}  // namespace
}  // namespace isoloss::model::config_test
