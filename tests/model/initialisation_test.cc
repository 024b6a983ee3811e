#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <string>

#include "isoloss/model/parameters.h"

namespace isoloss::model::initialisation_test {
namespace {

ModelConfig Config() {
  ModelConfig config;
  config.vocab_size = 512;
  config.dim = 128;
  config.n_layers = 3;
  return config;
}

struct Moments {
  double mean;
  double std;
  double largest;
};

Moments MomentsOf(const Matrix<float>& values) {
  double sum = 0.0;
  double squares = 0.0;
  double largest = 0.0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double v = static_cast<double>(values.data()[i]);
    sum += v;
    squares += v * v;
    largest = std::max(largest, std::fabs(v));
  }
  const auto n = static_cast<double>(values.size());
  const double mean = sum / n;
  return {mean, std::sqrt(squares / n - mean * mean), largest};
}

TEST(InitializeParameters, DrawsEveryTensorWithItsOwnDeviation) {
  const ModelConfig config = Config();
  ParameterSet parameters(config);

  InitializeParameters(1, parameters);

  for (const Parameter& parameter : parameters.parameters()) {
    SCOPED_TRACE(parameter.name);
    const Moments moments = MomentsOf(parameter.values);
    const InitRule& rule = parameter.init;
    if (rule.std == 0.0) {
      EXPECT_EQ(moments.mean, 1.0) << "norm weights start at 1";
      EXPECT_EQ(moments.largest, 1.0);
      continue;
    }
    // A cut at 3 std leaves sqrt(1 - 6 phi(3) / (2 Phi(3) - 1)) of it.
    const double std = rule.cut < 4 * rule.std ? 0.98658 * rule.std : rule.std;
    // Five standard errors: std / sqrt(n) of the mean, std / sqrt(2 n) of the
    // deviation.
    const auto n = static_cast<double>(parameter.values.size());
    EXPECT_NEAR(moments.mean, 0.0, 5 * std / std::sqrt(n));
    EXPECT_NEAR(moments.std, std, 5 * std / std::sqrt(2 * n));
    EXPECT_LE(moments.largest, rule.cut);
    // Of 1000 values or more, one lies beyond 2.5 std (fails once in 2e5).
    EXPECT_GE(moments.largest, 2.5 * rule.std);
  }
}

TEST(InitRule, FollowsTorchtitansTable) {
  ModelConfig config = Config();
  const double head = 1.0 / std::sqrt(128.0);
  const double depth3 = 0.02 / std::sqrt(2.0 * 3);
  const auto expect = [&](const char* name, double std, double cut) {
    const InitRule rule = ParameterSet(config).ByName(name).init;
    EXPECT_DOUBLE_EQ(rule.std, std) << name;
    EXPECT_DOUBLE_EQ(rule.cut, cut) << name;
  };
  const double never = std::numeric_limits<double>::infinity();

  expect("tok_embeddings.weight", 1.0, never);
  expect("lm_head.weight", head, 3 * head);
  expect("layers.2.attention.wq.weight", 0.02, 2.0);
  expect("layers.2.attention.wkv_b.weight", 0.02, 2.0);
  expect("layers.2.attention.wo.weight", depth3, 2.0);
  expect("layers.2.moe.router.gate.weight", depth3, 2.0);
  expect("layers.2.moe.shared_experts.w1.weight", 0.02, 2.0);
  expect("layers.2.moe.shared_experts.w3.weight", depth3, 2.0);
  expect("layers.2.moe.routed_experts.inner_experts.w1_EFD", 0.02, 2.0);
  expect("layers.2.moe.routed_experts.inner_experts.w2_EDF", depth3, 2.0);
  expect("layers.0.feed_forward.w2.weight", 0.02 / std::sqrt(2.0), 2.0);
  config.tied_embeddings = true;
  expect("tok_embeddings.weight", head, 3 * head);
}

TEST(InitializeParameters, DependsOnSeedAndNameOnly) {
  // Layers 0 and 1 of a deeper model are those of a shallower one.
  ModelConfig deep = Config();
  deep.n_layers = 4;
  ParameterSet first(Config());
  ParameterSet again(Config());
  ParameterSet other_seed(Config());
  ParameterSet deeper(deep);

  InitializeParameters(7, first);
  InitializeParameters(7, again);
  InitializeParameters(8, other_seed);
  InitializeParameters(7, deeper);

  EXPECT_EQ(first.Digest(), again.Digest());
  EXPECT_NE(first.Digest(), other_seed.Digest());
  const char* name = "layers.1.attention.wq.weight";
  const Matrix<float>& a = first.ByName(name).values;
  const Matrix<float>& b = deeper.ByName(name).values;
  EXPECT_TRUE(std::equal(a.data(), a.data() + a.size(), b.data()));
  const Matrix<float>& below =
      first.ByName("layers.0.attention.wq.weight").values;
  EXPECT_FALSE(std::equal(a.data(), a.data() + a.size(), below.data()));
}

}  // namespace
}  // namespace isoloss::model::initialisation_test
