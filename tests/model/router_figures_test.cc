#include "isoloss/model/router_figures.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "isoloss/base/rng.h"
#include "isoloss/kernels/score_entropy.h"
#include "model/small_model.h"

namespace isoloss::model::router_figures_test {
namespace {

using test_support::SmallBatch;
using test_support::SmallConfig;
using test_support::SmallModel;

double Entropy(const std::vector<float>& scores) {
  return kernels::ScoreEntropy(scores);
}

TEST(ScoreEntropy, OfEqualScoresIsTheLogarithmOfTheirNumber) {
  for (const size_t experts : {1u, 2u, 3u, 7u, 8u, 64u, 255u}) {
    const std::vector<float> scores(experts, 0.3f);

    // A logarithm of the table is good to r^4 / 4 = 2^-42, sums of 256 terms to
    // 256 units of 2^-53.
    EXPECT_NEAR(Entropy(scores), std::log(static_cast<double>(experts)), 1e-12)
        << experts;
  }
}

TEST(ScoreEntropy, MatchesLibmAtAllMagnitudes) {
  const CounterRng rng(9, 9);
  for (size_t experts = 1; experts <= 70; ++experts) {
    std::vector<float> scores(experts);
    double sum = 0.0;
    for (size_t e = 0; e < experts; ++e) {
      scores[e] =
          static_cast<float>(std::exp(-60.0 * rng.Uniform(experts * 100 + e)));
      sum += static_cast<double>(scores[e]);
    }
    double expected = 0.0;
    for (const float score : scores) {
      const double p = static_cast<double>(score) / sum;
      expected -= p * std::log(p);
    }

    // As above; and ln S - sum(s ln s) / S cancels, both below 60.
    EXPECT_NEAR(Entropy(scores), expected, 2e-12) << experts;
  }
}

TEST(ScoreEntropy, TakesZerosForNothingAndNanForUnknown) {
  const float nan = std::numeric_limits<float>::quiet_NaN();

  EXPECT_NEAR(Entropy({0.0f, 0.5f, 0.0f, 0.5f, 0.0f}), std::log(2.0), 1e-12);
  EXPECT_TRUE(std::isnan(Entropy({0.5f, nan})));
  EXPECT_TRUE(std::isnan(Entropy({0.0f, 0.0f})));
}

RouterSums::Totals SumsOf(const std::vector<std::vector<int32_t>>& choices,
                          size_t first_token) {
  RouterSums sums;
  sums.Begin(choices.size());
  for (size_t t = 0; t < choices.size(); ++t) {
    sums.Add(t, first_token + t, /*entropy=*/0.5, choices[t], 1);
  }
  return sums.Sum();
}

TEST(RouterSums, DigestsOfPartsAddUp) {
  const auto whole = SumsOf({{0, 1}, {1, 2}, {0, 2}}, 0);
  const auto first = SumsOf({{0, 1}}, 0);
  const auto rest = SumsOf({{1, 2}, {0, 2}}, 1);

  EXPECT_EQ(whole.digest, first.digest + rest.digest);
  EXPECT_EQ(whole.flips, 3);
  EXPECT_EQ(whole.tokens, 3);
}

TEST(RouterSums, DigestSeesTokenSlotAndExpert) {
  const uint64_t digest = SumsOf({{0, 1}, {1, 2}}, 0).digest;

  EXPECT_NE(SumsOf({{1, 2}, {0, 1}}, 0).digest, digest) << "tokens swapped";
  EXPECT_NE(SumsOf({{1, 0}, {1, 2}}, 0).digest, digest) << "slots swapped";
  EXPECT_NE(SumsOf({{0, 2}, {1, 2}}, 0).digest, digest) << "another expert";
  EXPECT_NE(SumsOf({{0, 1}, {1, 2}}, 1).digest, digest) << "other tokens";
}

TEST(RouterFigures, DoNotDependOnThreads) {
  const SmallBatch batch(SmallConfig(), {70, 31, 64, 5});
  const auto figures = [&](int threads) {
    SmallModel model(SmallConfig(), "bf16", threads);
    model.transformer.Forward(batch.view());
    return model.transformer.MergeRouterFigures();
  };
  const auto expected = figures(1);
  ASSERT_EQ(expected.size(), 1u);
  EXPECT_GT(expected[0].entropy_nats, 0.5);
  EXPECT_LT(expected[0].entropy_nats, std::log(6.0));
  EXPECT_EQ(expected[0].flips, 0);

  for (const int threads : {2, 3}) {
    const auto other = figures(threads);
    EXPECT_EQ(other[0].entropy_nats, expected[0].entropy_nats);
    EXPECT_EQ(other[0].digest, expected[0].digest);
  }
}

/// The choice of an earlier Forward, with one expert exchanged for another.
class Replay : public RoutingSource {
 public:
  Replay(MatrixView<const int32_t> ids, bool exchange)
      : ids_(ids.data(), ids.data() + ids.rows() * ids.cols()),
        slots_(ids.cols()) {
    if (!exchange) return;
    for (ids_[0] = 0; ids_[0] == ids.data()[0] || ids_[0] == ids_[1];) {
      ++ids_[0];
    }
  }
  void Choose(size_t /*layer*/, size_t token,
              std::span<int32_t> expert_ids) const override {
    std::copy_n(ids_.begin() + static_cast<std::ptrdiff_t>(token * slots_),
                slots_, expert_ids.begin());
  }

 private:
  std::vector<int32_t> ids_;
  size_t slots_;
};

TEST(RouterFigures, CountWhatAReplayChoosesDifferently) {
  const SmallBatch batch(SmallConfig(), {70, 31});
  SmallModel model(SmallConfig(), "bf16");
  model.transformer.Forward(batch.view());
  const uint64_t digest = model.transformer.MergeRouterFigures()[0].digest;
  const HostRows<int32_t> ids = model.transformer.expert_ids(0);
  const Replay same(ids.view(), false);
  const Replay other(ids.view(), true);

  model.transformer.SetRouting(&same);
  model.transformer.Forward(batch.view());
  const RouterFigures replayed = model.transformer.MergeRouterFigures()[0];
  model.transformer.SetRouting(&other);
  model.transformer.Forward(batch.view());
  const RouterFigures exchanged = model.transformer.MergeRouterFigures()[0];

  EXPECT_EQ(replayed.flips, 0);
  EXPECT_EQ(replayed.digest, digest);
  EXPECT_EQ(exchanged.flips, 1);
  EXPECT_NE(exchanged.digest, digest);
}

TEST(RouterFigures, ForcedBalanceIsNotAReplay) {
  SmallModel model(SmallConfig(), "bf16");
  const ForcedBalance balance(SmallConfig().num_experts);
  model.transformer.SetRouting(&balance);

  model.transformer.Forward(SmallBatch(SmallConfig(), {70, 31}).view());

  EXPECT_EQ(model.transformer.MergeRouterFigures()[0].flips, 0);
}

}  // namespace
}  // namespace isoloss::model::router_figures_test
