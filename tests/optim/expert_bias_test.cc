#include "isoloss/optim/expert_bias.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <vector>

#include "isoloss/base/error.h"
#include "isoloss/base/rng.h"

namespace isoloss::optim::expert_bias_test {
namespace {

using ::testing::ElementsAre;

/// Biases after one update from zero with rate 1: signs less their mean.
std::vector<float> UnitUpdate(const std::vector<int64_t>& counts) {
  std::vector<float> bias(counts.size(), 0.0f);
  UpdateExpertBias(counts, 1.0f, bias);
  return bias;
}

TEST(UpdateExpertBias, MovesAgainstTheLoadAndCentres) {
  EXPECT_THAT(UnitUpdate({10, 2, 4, 4}), ElementsAre(-1.5f, 0.5f, 0.5f, 0.5f));
  EXPECT_THAT(UnitUpdate({4, 4, 1, 7}), ElementsAre(0.0f, 0.0f, 1.0f, -1.0f));
  EXPECT_THAT(UnitUpdate({0, 0, 0, 3}), ElementsAre(0.5f, 0.5f, 0.5f, -1.5f));
}

TEST(UpdateExpertBias, LeavesABalancedLayerAlone) {
  std::vector<float> bias = {0.25f, -0.5f, 0.0f};

  UpdateExpertBias(std::vector<int64_t>{7, 7, 7}, 0.5f, bias);
  EXPECT_THAT(bias, ElementsAre(0.25f, -0.5f, 0.0f));
}

TEST(UpdateExpertBias, ComparesCountsThatFp32CannotTellApart) {
  constexpr int64_t kEven = int64_t{1} << 40;

  EXPECT_THAT(UnitUpdate({kEven + 1, kEven, kEven, kEven - 1}),
              ElementsAre(-1.0f, 0.0f, 0.0f, 1.0f));
}

TEST(UpdateExpertBias, KeepsTheSumOfTheBiases) {
  constexpr size_t kExperts = 12;
  constexpr int kUpdates = 500;
  constexpr float kRate = 1e-3f;
  std::vector<float> bias(kExperts, 0.0f);
  const CounterRng rng(1, StreamId("tests/expert_bias"));

  for (int update = 0; update < kUpdates; ++update) {
    std::vector<int64_t> counts(kExperts);
    for (size_t e = 0; e < kExperts; ++e) {
      const uint64_t index = static_cast<uint64_t>(update) * kExperts + e;
      // Expert 0 is always overloaded, so that signs alone would drift up.
      counts[e] =
          static_cast<int64_t>(rng.Below(index, 100)) + (e == 0 ? 1000 : 0);
    }
    UpdateExpertBias(counts, kRate, bias);
  }

  // Each update moves a bias by at most 2 rates, so none exceeds 2 * 500 rates
  // = 1. Rounding it errs by at most 2^-25 of that; the mean (two roundings,
  // the same for all) and the difference err by at most 2^-24 of 2 rates each.
  const double bound = kUpdates * kExperts *
                       (0x1p-25 + 3 * 0x1p-24 * 2 * static_cast<double>(kRate));
  EXPECT_NEAR(std::accumulate(bias.begin(), bias.end(), 0.0), 0.0, bound);
  EXPECT_LT(bias[0], -0.5f);
}

TEST(UpdateExpertBias, RejectsCountsOfAnotherLayer) {
  std::vector<float> bias(3);

  EXPECT_THROW(UpdateExpertBias(std::vector<int64_t>{1, 2}, 1e-3f, bias),
               Error);
}

}  // namespace
}  // namespace isoloss::optim::expert_bias_test
