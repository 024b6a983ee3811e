#include "isoloss/probes/nonfinite.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "probes/probe_runs.h"

namespace isoloss::probes::nonfinite_test {
namespace {

using test_support::Process;
using test_support::RunProcesses;
using test_support::Setting;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

struct Planted {
  const char* parameter;
  const char* producer;
};

/// A NaN in a weight first shows in what is computed with it.
class NonFiniteTest : public ::testing::TestWithParam<Planted> {};

std::vector<NonFinite> FoundIn(const Setting& setting, const char* parameter) {
  std::vector<NonFinite> found;
  RunProcesses(setting, "bf16", [&](Process& process) {
    if (parameter != nullptr) {
      Matrix<float>& values = process.weights.ByName(parameter).values;
      for (size_t row = 0; row < values.rows(); ++row) values(row, 5) = kNan;
    }
    NonFiniteCounter counter(process.executor);
    process.Step(counter);
    auto mine = counter.Finish(process.mesh);
    if (process.mesh.process() == 0) found = std::move(mine);
  });
  return found;
}

TEST_P(NonFiniteTest, NamesTheFirstProducer) {
  for (const Setting& setting :
       {Setting{}, Setting{.ranks = 2, .processes = 2, .threads = 2}}) {
    const auto found = FoundIn(setting, GetParam().parameter);

    ASSERT_FALSE(found.empty());
    EXPECT_EQ(found.front().name, GetParam().producer);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Places, NonFiniteTest,
    ::testing::Values(
        Planted{"tok_embeddings.weight", "tok_embeddings_output"},
        Planted{"layers.0.attention_norm.weight",
                "layers.0.attention_norm_output"},
        Planted{"layers.0.attention.wkv_a.weight",
                "layers.0.attention.wkv_a_output"},
        Planted{"layers.0.attention.q_norm.weight",
                "layers.0.attention.q_norm_output"},
        Planted{"layers.1.attention.wkv_b.weight",
                "layers.1.attention.wkv_b_output"},
        Planted{"layers.1.attention.wo.weight", "layers.1.attention.wo_output"},
        Planted{"layers.0.feed_forward.w3.weight",
                "layers.0.feed_forward.w3_output"},
        Planted{"layers.1.moe.router.gate.weight",
                "layers.1.moe.router.gate_output"},
        Planted{"layers.1.moe.routed_experts.inner_experts.w1_EFD",
                "layers.1.moe.routed_experts.w1_output"},
        Planted{"layers.1.moe.routed_experts.inner_experts.w2_EDF",
                "layers.1.moe.routed_experts.w2_output"},
        Planted{"layers.1.moe.shared_experts.w2.weight",
                "layers.1.moe.shared_experts.w2_output"},
        Planted{"norm.weight", "norm_output"},
        Planted{"lm_head.weight", "lm_head_output"}),
    [](const ::testing::TestParamInfo<Planted>& planted) {
      std::string name = planted.param.parameter;
      for (char& c : name) {
        if (c == '.') c = '_';
      }
      return name;
    });

TEST(NonFiniteCounter, FindsNothingInAFiniteStep) {
  EXPECT_TRUE(FoundIn({}, nullptr).empty());
}

TEST(NonFiniteCounter, CountsNanAndInfinityAndGivesTheFirstPlace) {
  Executor executor(3);
  expert_parallel::Mesh mesh(8, executor);
  NonFiniteCounter counter(executor);
  Matrix<float> values(50, 7);
  values(49, 6) = kNan;
  values(31, 2) = -kInf;
  values(31, 4) = kInf;
  values(3, 3) = std::numeric_limits<float>::max();

  counter.OnTensor({.module = "fine", .values = Matrix<float>(2, 2).view()});
  counter.OnTensor({.module = "norm", .values = values.view()});

  const auto found = counter.Finish(mesh);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].Describe(1),
            "norm_output: 3 of 350 elements are NaN or infinite, the first in "
            "row 31, column 2");
}

TEST(NonFiniteCounter, NamesTheProcess) {
  const auto found =
      FoundIn({.ranks = 2, .processes = 2}, "tok_embeddings.weight");

  // Every token reads one NaN.
  EXPECT_EQ(found.at(0).Describe(2),
            "tok_embeddings_output: 256 of 10240 elements are NaN or infinite, "
            "the first in row 0, column 5 of process 0's part");
}

}  // namespace
}  // namespace isoloss::probes::nonfinite_test
