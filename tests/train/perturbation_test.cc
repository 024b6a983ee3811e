// What a perturbation does to initial weights, bit by bit.
#include "isoloss/train/perturbation.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <span>
#include <vector>

#include "isoloss/train/presets.h"

namespace isoloss::train::perturbation_test {
namespace {

constexpr uint64_t kSeed = 7;

Arm Perturbed(int64_t draw = 1) {
  return {.name = "null",
          .recipe = "bf16",
          .perturb = Perturb::kOneUlp,
          .perturb_draw = draw};
}

const model::ModelConfig& Nano() { return PresetByName("dsv3-nano").model; }

/// The bits of all weights of a run of `arm`, by parameter.
std::vector<std::vector<uint32_t>> BitsOf(const Arm& arm, uint64_t seed) {
  model::ParameterSet weights(Nano());
  model::InitializeParameters(seed, weights);
  PerturbWeights(arm, seed, weights);
  std::vector<std::vector<uint32_t>> bits;
  for (const model::Parameter& parameter : weights.parameters()) {
    auto& of = bits.emplace_back();
    for (size_t i = 0; i < parameter.values.size(); ++i) {
      of.push_back(std::bit_cast<uint32_t>(parameter.values.data()[i]));
    }
  }
  return bits;
}

TEST(PerturbWeights, MovesEveryWeightByExactlyOneUlpUpOrDown) {
  const auto before = BitsOf({}, kSeed);
  const auto after = BitsOf(Perturbed(), kSeed);

  ASSERT_EQ(after.size(), before.size());
  size_t up = 0;
  size_t all = 0;
  for (size_t p = 0; p < before.size(); ++p) {
    for (size_t i = 0; i < before[p].size(); ++i, ++all) {
      const uint32_t change = after[p][i] - before[p][i];
      ASSERT_TRUE(change == 1u || change == ~0u) << p << " " << i;
      up += change == 1u ? 1 : 0;
    }
  }
  // A fair coin of `all` = 3.4e5 throws: 6 sd are 3 / sqrt(all) = 0.0052.
  EXPECT_GT(all, 300'000u);
  EXPECT_NEAR(static_cast<double>(up) / static_cast<double>(all), 0.5, 0.0052);
}

TEST(PerturbWeights, IsAFunctionOfSeedDrawAndPlace) {
  const auto first = BitsOf(Perturbed(1), kSeed);

  EXPECT_EQ(BitsOf(Perturbed(1), kSeed), first);
  EXPECT_NE(BitsOf(Perturbed(2), kSeed), first);
  // Which way a weight moves depends on the seed too, not only where it began.
  const auto before = BitsOf({}, kSeed);
  const auto other_before = BitsOf({}, kSeed + 1);
  const auto other = BitsOf(Perturbed(1), kSeed + 1);
  size_t same_way = 0;
  for (size_t i = 0; i < 1000; ++i) {
    same_way +=
        first[0][i] - before[0][i] == other[0][i] - other_before[0][i] ? 1 : 0;
  }
  // Of 1000 fair coins some 500 agree; 6 sd are 95.
  EXPECT_NEAR(static_cast<double>(same_way), 500, 95);
}

/// A process that holds some of the experts moves them as one that holds all.
TEST(PerturbWeights, IsTheSameForAProcessesExperts) {
  constexpr size_t kFirst = 2;
  model::ParameterSet whole(Nano());
  model::ParameterSet part(Nano(), {.first = kFirst, .count = 3});
  for (model::ParameterSet* weights : {&whole, &part}) {
    model::InitializeParameters(kSeed, *weights);
    PerturbWeights(Perturbed(), kSeed, *weights);
  }

  size_t of_experts = 0;
  for (size_t p = 0; p < part.parameters().size(); ++p) {
    const model::Parameter& mine = part.parameters()[p];
    const float* all = whole.parameters()[p].values.data();
    of_experts += mine.of_experts ? 1 : 0;
    for (size_t i = 0; i < mine.values.size(); ++i) {
      ASSERT_EQ(mine.values.data()[i], all[mine.first_element + i])
          << mine.name << " " << i;
    }
  }
  EXPECT_GT(of_experts, 0u);
}

TEST(PerturbWeights, LeavesZerosAndUnperturbedArmsAlone) {
  model::ParameterSet weights(Nano());
  PerturbWeights(Perturbed(), kSeed, weights);
  for (const model::Parameter& parameter : weights.parameters()) {
    ASSERT_EQ(parameter.values.data()[0], 0.0f);
  }

  model::ParameterSet drawn(Nano());
  model::InitializeParameters(kSeed, drawn);
  const float before = drawn.parameters()[0].values.data()[0];
  PerturbWeights({}, kSeed, drawn);
  EXPECT_EQ(drawn.parameters()[0].values.data()[0], before);
}

TEST(DescribePerturbation, SaysWhatAndWhich) {
  EXPECT_EQ(DescribePerturbation({}), "");
  EXPECT_EQ(DescribePerturbation(Perturbed()), "one_ulp, draw 1");
  EXPECT_EQ(DescribePerturbation(Perturbed(12)), "one_ulp, draw 12");
}

}  // namespace
}  // namespace isoloss::train::perturbation_test
