#include "isoloss/estimators/additive_model.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "isoloss/base/error.h"
#include "planted_losses.h"

namespace isoloss::estimators::additive_model_test {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

TEST(AdditiveModel, FindsPlantedHarmsOfNoiselessRuns) {
  const std::vector<double> harms = {0.01, -0.002, 0.2, 0};
  const std::vector<ArmLosses> arms = PlantedDesign(harms, 0, 3);

  const AdditiveModel model(harms.size(), arms);

  // Losses near 3 hold 4e-16 each; a QR of a 10 x 5 design of condition below
  // 20 loses two digits of it at most.
  constexpr double kRounding = 1e-13;
  for (size_t product = 0; product < harms.size(); ++product) {
    for (const double harm : model.HarmBySeed(std::vector{product})) {
      EXPECT_NEAR(harm, harms[product], kRounding);
    }
  }
  for (const double sum : model.HarmBySeed(std::vector<size_t>{0, 2, 3})) {
    EXPECT_NEAR(sum, 0.21, kRounding);
  }
  EXPECT_TRUE(model.left_out().empty());
}

// A sum of differences to the baseline has the baseline's chance in each of its
// terms, the additive model in none.
TEST(AdditiveModel, PredictsSumsBetterThanDifferencesToOneRunDo) {
  const std::vector<double> harms(20, 0.0);
  constexpr double kNoise = 0.01;
  constexpr size_t kSeeds = 40;
  const std::vector<ArmLosses> arms = PlantedDesign(harms, kNoise, kSeeds);
  const AdditiveModel model(harms.size(), arms);
  std::vector<size_t> half;
  for (size_t product = 0; product < 10; ++product) half.push_back(product);

  const std::vector<double> sums = model.HarmBySeed(half);
  double of_model = 0;
  double of_differences = 0;
  for (size_t seed = 0; seed < kSeeds; ++seed) {
    double naive = 0;
    for (const size_t product : half) {
      naive += arms[2 + product].losses[seed] - arms[0].losses[seed];
    }
    of_model += sums[seed] * sums[seed];
    of_differences += naive * naive;
  }

  // By hand: about sqrt(10 (1 - 10 / 20) / 2) against sqrt(10 + 100) spreads of
  // a run, a ratio of variances of 44; 40 seeds know it to a factor below 2.
  EXPECT_GT(of_differences, 20 * of_model);
}

// Of uniform noise in +-0.01, whose standard deviation is 0.01 / sqrt(3).
TEST(AdditiveModel, KnowsTheErrorOfASum) {
  const std::vector<double> harms(10, 0.0);
  constexpr size_t kSeeds = 50;
  const AdditiveModel model(harms.size(), PlantedDesign(harms, 0.01, kSeeds));
  const double run = 0.01 / std::sqrt(3.0);

  // 22 arms and 11 unknowns.
  EXPECT_EQ(model.freedom(), 11.0 * kSeeds);
  // All: of the design's symmetry, the sum is 10 / 8 of the difference of the
  // means of 10 runs with 9 products and 10 with 1, up to what baseline and all
  // add to it: sqrt(2 / 10) * 10 / 8 = 0.56, or less. 550 degrees of freedom
  // know a standard deviation to 3 %, of which 3 are 9 %.
  std::vector<size_t> all;
  for (size_t product = 0; product < 10; ++product) all.push_back(product);
  const double error = model.ErrorOf(all) * std::sqrt(double{kSeeds}) / run;
  EXPECT_LT(error, 0.56 * 1.09);
  EXPECT_GT(error, 0.40);
  double squares = 0;
  for (const double sum : model.HarmBySeed(all)) squares += sum * sum;
  // 50 seeds know it to 10 %, of which 3.5.
  EXPECT_NEAR(std::sqrt(squares / kSeeds) / run / error, 1, 0.35);
  EXPECT_EQ(model.ErrorOf({}), 0);
}

TEST(AdditiveModel, LeavesOutProductsThatHaveNoFiniteLossAlone) {
  std::vector<ArmLosses> arms = PlantedDesign({0.01, 0.02, 0.03}, 0, 2);
  arms[2 + 1].losses[0] = kNone;

  const AdditiveModel model(3, arms);

  EXPECT_TRUE(model.IsUnstable(1));
  EXPECT_FALSE(model.IsUnstable(0));
  EXPECT_TRUE(std::isinf(model.HarmBySeed(std::vector<size_t>{0, 1})[0]));
  EXPECT_NEAR(model.HarmBySeed(std::vector<size_t>{0, 2})[1], 0.04, 1e-13);
  EXPECT_EQ(model.left_out(), (std::vector<std::string>{
                                  "all", "only-1", "all_but-0", "all_but-2"}));
}

TEST(AdditiveModel, RefusesWhatDoesNotDetermineAProduct) {
  std::vector<ArmLosses> arms = PlantedDesign({0.01, 0.02}, 0, 2);
  arms[0].losses[1] = kNone;  // without the baseline ...
  arms[1].losses[1] = kNone;  // ... and the whole, only differences are known

  EXPECT_THROW(AdditiveModel(2, arms), Error);
  EXPECT_THROW(AdditiveModel(2, PlantedDesign({0.01, 0.02}, 0, 1)), Error);
}

}  // namespace
}  // namespace isoloss::estimators::additive_model_test
