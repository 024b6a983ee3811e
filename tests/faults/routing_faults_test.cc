// Routings, buffers and orders of arrival that broke other programs and must
// not change a bit here (docs/distributed.md, "Faults").
#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "isoloss/base/rng.h"
#include "isoloss/expert_parallel/ranked_exchange.h"
#include "isoloss/model/router.h"
#include "stage.h"

namespace isoloss::faults::routing_faults_test {
namespace {

using expert_parallel::Conservation;
using expert_parallel::RankedExchange;

Scene Against(std::vector<std::string> overrides = {}, int processes = 1) {
  Scene scene;
  scene.overrides = std::move(overrides);
  scene.processes = processes;
  scene.parity = true;
  return scene;
}

// Case 7: what was never written holds NaN.
TEST(RoutingFaults, PoisonedMessagesAndPaddingChangeNoBit) {
  for (const char* padding :
       {"parallel.expert_padding=1", "parallel.expert_padding=32"}) {
    Injection injection;
    injection.Strike();
    Scene scene = Against({padding});
    scene.faults[0].poison = true;

    ExpectHarmless(scene, injection);
  }
}

TEST(RoutingFaults, PoisonedMemoryChangesNoBit) {
  Injection injection;
  injection.Strike();
  const Scene scene = Against({"parallel.expert_padding=32"}, 2);
  // glibc: 0x7F in what is allocated, 0x80 in what is freed.
  mallopt(M_PERTURB, 0x80);

  ExpectHarmless(scene, injection);

  mallopt(M_PERTURB, 0);
}

/// One layer's exchange between 4 ranks, padded.
struct Layer {
  static constexpr size_t kExperts = 8;
  static constexpr size_t kWidth = 24;

  Layer()
      : transport(transport::MakeTransport("loop", {.ranks = 4}, executor)),
        conservation(transport->local_ranks(), 4),
        exchange({.topology = {.experts = kExperts, .ranks = 4},
                  .options = {.padding = 32},
                  .dispatch_units = 1,
                  .rounding = kernels::Rounding::kBf16,
                  .transport = *transport,
                  .executor = executor},
                 0, conservation) {}

  static Matrix<float> Filled(size_t rows, size_t cols, float scale) {
    Matrix<float> values(rows, cols);
    for (size_t i = 0; i < values.size(); ++i) {
      values.data()[i] = scale * static_cast<float>(i % 13);
    }
    return values;
  }

  /// All operations of a step; what experts would compute is the identity.
  std::vector<float> Step(size_t tokens, int32_t first_expert, float scale) {
    Matrix<int32_t> ids(tokens, 2);
    for (size_t t = 0; t < tokens; ++t) {
      ids(t, 0) = static_cast<int32_t>(
          (static_cast<size_t>(first_expert) + t % 3) % kExperts);
      ids(t, 1) = static_cast<int32_t>(
          (static_cast<size_t>(first_expert) + 3 + t % 2) % kExperts);
    }
    const Matrix<float> x = Filled(tokens, kWidth, scale);
    const Matrix<float> weights = Filled(tokens, 2, scale);
    std::vector<float> trace;
    const auto keep = [&](MatrixView<const float> values) {
      trace.insert(trace.end(), values.data(),
                   values.data() + values.rows() * values.cols());
    };
    exchange.Dispatch(x.view(), ids.view(), weights.view());
    keep(exchange.expert_in());
    Matrix<float> rows(exchange.expert_in().rows(), kWidth);
    std::copy_n(exchange.expert_in().data(), rows.size(), rows.data());
    Matrix<float> out(tokens, kWidth);
    exchange.Combine(rows.view(), out.view());
    keep(out.view());
    exchange.CombineBackward(x.view(), rows.view());
    keep(rows.view());
    keep(exchange.ReturnGradients(rows.view()));
    exchange.DispatchBackward(x.view(), out.view());
    keep(out.view());
    return trace;
  }

  Executor executor{1};
  std::unique_ptr<transport::Transport> transport;
  Conservation conservation;
  RankedExchange exchange;
};

TEST(RoutingFaults, BuffersFullOfNanChangeNoBitOfTheNextStep) {
  Layer fresh;
  const std::vector<float> expected = fresh.Step(40, 5, 0.5F);
  Layer used;
  const std::vector<float> poison =
      used.Step(160, 0, std::numeric_limits<float>::quiet_NaN());
  ASSERT_TRUE(std::isnan(poison[1]));

  const std::vector<float> actual = used.Step(40, 5, 0.5F);

  EXPECT_EQ(actual, expected);
  EXPECT_EQ(std::count_if(actual.begin(), actual.end(),
                          [](float v) { return std::isnan(v); }),
            0);
}

// Case 14: ranks and experts without a row.
TEST(RoutingFaults, EmptyRanksAndExpertsHaveZeroGradients) {
  for (const int processes : {1, 2, 4}) {
    Injection injection;
    Scene scene = Against({"train.load_balance_coeff=0"}, processes);
    for (int process = 0; process < processes; ++process) {
      // Exact ties in every step: all tokens go to experts 0 and 1.
      const auto tie = [](model::ParameterSet& tensors) {
        tensors.ByName("layers.1.moe.router.gate.weight").values.SetZero();
        tensors.ByName("layers.2.moe.router.gate.weight").values.SetZero();
      };
      scene.hooks[process].edit_initial_weights = tie;
      scene.hooks[process].before_update = [&](int64_t step,
                                               model::ParameterSet& gradients) {
        for (const model::Parameter& gradient : gradients.parameters()) {
          if (!gradient.of_experts || step != 1) continue;
          const size_t of_one = gradient.shape[1] * gradient.shape[2];
          ASSERT_EQ(gradient.values.size(), gradient.shape[0] * of_one);
          for (size_t i = 0; i < gradient.values.size(); ++i) {
            if (gradient.first_element + i < 2 * of_one) continue;
            ASSERT_EQ(gradient.values.data()[i], 0.0F) << gradient.name;
            injection.Strike();
          }
        }
      };
    }

    ExpectHarmless(scene, injection);
  }
}

/// Group-limited choice, written down from the rule: sort everything.
std::vector<int32_t> Oracle(const model::ModelConfig& config,
                            const std::vector<float>& scores,
                            size_t counted_per_group) {
  const size_t size = config.num_experts / config.num_expert_groups;
  std::vector<int32_t> groups(config.num_expert_groups);
  std::iota(groups.begin(), groups.end(), 0);
  const auto group_score = [&](int32_t group) {
    const auto begin = scores.begin() + static_cast<std::ptrdiff_t>(
                                            static_cast<size_t>(group) * size);
    std::vector<float> members(begin,
                               begin + static_cast<std::ptrdiff_t>(size));
    std::sort(members.rbegin(), members.rend());
    float sum = members[0];
    for (size_t i = 1; i < counted_per_group; ++i) sum += members[i];
    return sum;
  };
  std::stable_sort(groups.begin(), groups.end(), [&](int32_t a, int32_t b) {
    return group_score(a) > group_score(b);
  });
  groups.resize(config.num_limited_groups);
  std::vector<int32_t> experts;
  for (size_t e = 0; e < config.num_experts; ++e) {
    if (std::count(groups.begin(), groups.end(),
                   static_cast<int32_t>(e / size)) > 0) {
      experts.push_back(static_cast<int32_t>(e));
    }
  }
  std::stable_sort(experts.begin(), experts.end(), [&](int32_t a, int32_t b) {
    return scores[static_cast<size_t>(a)] > scores[static_cast<size_t>(b)];
  });
  experts.resize(config.top_k);
  return experts;
}

// Case 27: a formula that is right for one configuration only. Here top_k /
// limited groups is 3 and groups / limited groups is 4, but 2 are counted.
TEST(RoutingFaults, GroupScoresCountTwoExpertsWhateverTheConfiguration) {
  model::ModelConfig config;
  config.num_experts = 32;
  config.num_expert_groups = 8;
  config.num_limited_groups = 2;
  config.top_k = 6;
  const std::vector<float> no_bias(config.num_experts, 0.0F);
  const CounterRng rng(3, 1);
  size_t differ_at_3 = 0;
  size_t differ_at_4 = 0;

  for (uint64_t trial = 0; trial < 300; ++trial) {
    std::vector<float> scores(config.num_experts);
    for (size_t e = 0; e < scores.size(); ++e) {
      // 16 values among 32 experts: ties are frequent.
      scores[e] = static_cast<float>(rng.Below(trial * 32 + e, 16)) / 16;
    }
    std::vector<int32_t> ids(config.top_k);
    kernels::scalar::SelectExperts(config.router_rule(), scores, no_bias, ids);

    EXPECT_EQ(ids, Oracle(config, scores, 2)) << trial;
    differ_at_3 += ids != Oracle(config, scores, 3) ? 1 : 0;
    differ_at_4 += ids != Oracle(config, scores, 4) ? 1 : 0;
  }

  EXPECT_GT(differ_at_3, 0u) << "the scores do not tell the formulas apart";
  EXPECT_GT(differ_at_4, 0u) << "the scores do not tell the formulas apart";
}

// Case 31: the order of arrival.
TEST(RoutingFaults, OrdersOfArrivalChangeNoBit) {
  const auto trace = [](const char* seed) {
    Scene scene;
    scene.overrides = {"parallel.transport=shuffled", "log.eval_every=1",
                       std::string("parallel.shuffle_seed=") + seed};
    const Ending ending = Play(scene);
    EXPECT_TRUE(ending.healthy());
    return TraceOf(ending.logs.front());
  };
  const std::vector<std::string> expected = trace("1");

  for (const char* seed : {"1", "2", "3"}) EXPECT_EQ(trace(seed), expected);
}

// Case 30: numbers of ranks that are no power of two.
TEST(RoutingFaults, OddNumbersOfRanksChangeNoBit) {
  for (const char* transport : {"loop", "threads", "shuffled"}) {
    Injection injection;
    injection.Strike();

    ExpectHarmless(Against({"model.num_experts=9", "parallel.ranks=3",
                            std::string("parallel.transport=") + transport}),
                   injection);
  }
}

}  // namespace
}  // namespace isoloss::faults::routing_faults_test
