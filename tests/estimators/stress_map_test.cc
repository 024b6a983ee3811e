#include "isoloss/estimators/stress_map.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "isoloss/base/error.h"

namespace isoloss::estimators::stress_map_test {
namespace {

/// Eight runs around `loss`, of which the first `diverged` did not end.
ArmRuns Arm(const std::string& name, double loss, int diverged = 0) {
  ArmRuns arm{.arm = name, .runs = {}};
  for (int seed = 1; seed <= 8; ++seed) {
    const bool lost = seed <= diverged;
    StressRun run{.seed = seed, .diverged = lost};
    if (!lost) run.loss = loss + 0.001 * seed + 1e-5 * (seed % 3);
    arm.runs.push_back(run);
  }
  return arm;
}

TEST(StressMap, TellsRecipesByDivergence) {
  const StressMap map = MakeStressMap(
      {{"lr_10",
        {Arm("bf16", 2), Arm("good", 2), Arm("bad", 2, 8), Arm("same", 2)}}},
      "bf16", "good", {"bad", "same"});

  // All 8 against none of 8: 1 / binomial(16, 8) = 1 / 12870, of two tests of
  // each of two arms.
  ASSERT_EQ(map.separations.size(), 2u);
  EXPECT_TRUE(map.separations[0].separated);
  EXPECT_EQ(map.separations[0].by, "divergence");
  EXPECT_NEAR(map.separations[0].p, 4.0 / 12870, 1e-12);
  EXPECT_FALSE(map.separations[1].separated);
  EXPECT_TRUE(map.SeparatesAny());
  EXPECT_EQ(map.At(0, 2).diverged, 8);
  EXPECT_FALSE(map.At(0, 2).gap);
}

TEST(StressMap, TellsRecipesByTheirLosses) {
  ArmRuns bad = Arm("bad", 2.1);
  bad.runs[0].loss = *bad.runs[0].loss + 0.01;  // differences have a spread

  const StressMap map =
      MakeStressMap({{"plain", {Arm("bf16", 2), Arm("good", 2), bad}}}, "bf16",
                    "good", {"bad"});

  EXPECT_TRUE(map.separations[0].separated);
  EXPECT_EQ(map.separations[0].by, "loss");
  EXPECT_NEAR(*map.At(0, 2).gap, 0.1 + 0.01 / 8, 1e-12);
  EXPECT_LT(map.At(0, 2).gap_lower, *map.At(0, 2).gap);
}

TEST(StressMap, CountsTheTestsThatItMakes) {
  const std::vector<ArmRuns> arms = {Arm("bf16", 2), Arm("good", 2),
                                     Arm("bad", 2, 8)};

  const StressMap map = MakeStressMap({{"a", arms}, {"b", arms}, {"c", arms}},
                                      "bf16", "good", {"bad"});

  EXPECT_NEAR(map.separations[0].p, 6.0 / 12870, 1e-12);
  EXPECT_EQ(map.separations[0].mode, "a");
}

TEST(StressMap, SaysWhereTheBaselineDiverges) {
  const StressMap map =
      MakeStressMap({{"plain", {Arm("bf16", 2, 4), Arm("good", 2)}},
                     {"hard", {Arm("bf16", 2, 5), Arm("good", 2)}}},
                    "bf16", "good", {});

  EXPECT_EQ(map.At(1, map.ArmIndex("bf16")).diverged, 5);
  EXPECT_FALSE(map.At(0, map.ArmIndex("bf16")).gap);
  ASSERT_EQ(map.notes.size(), 1u);
  EXPECT_EQ(map.notes[0].rfind("In mode hard", 0), 0u);
}

TEST(StressMap, RefusesModesWithOtherArms) {
  EXPECT_THROW(MakeStressMap({{"a", {Arm("bf16", 2), Arm("good", 2)}},
                              {"b", {Arm("bf16", 2)}}},
                             "bf16", "good", {}),
               Error);
  EXPECT_THROW(MakeStressMap({}, "bf16", "good", {}), Error);
}

}  // namespace
}  // namespace isoloss::estimators::stress_map_test
