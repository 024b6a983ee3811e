#include <gtest/gtest.h>

#include <algorithm>

#include "isoloss/base/error.h"
#include "isoloss/estimators/ladder_statement.h"
#include "synthetic_ladder.h"

namespace isoloss::estimators::state_ladder_test {
namespace {

LadderArm Arm(const std::string& name, double gap, double sd = 1e-4,
              uint64_t seed = 4) {
  return {.name = name,
          .recipe = "mxfp8_rceil",
          .cells = SyntheticLadder([gap](const Size&) { return gap; },
                                   UsualLoss, 8, sd, seed)};
}

/// Enough for verdicts that are far from their bounds.
constexpr PredictionOptions kFewDraws{.resamples = 199};

LadderQuestion Question() {
  return {
      .sizes = {{16e9, 50e9}}, .margin_percent = 0.25, .prediction = kFewDraws};
}

TEST(StateLadder, TakesTheMarginOfTheLargestCell) {
  const LadderStatement statement =
      StateLadder("name", "bf16", {Arm("a", 0)}, Question());

  // 3e6 tokens of 3e6 parameters are the most operations, 9e12 for N D. Losses
  // scatter by 1e-4, so that their mean lies within 5e-4 of the law's.
  EXPECT_NEAR(statement.margin_nats, 0.0025 * UsualLoss({3e6, 3e6}),
              0.0025 * 5e-4);
}

TEST(StateLadder, IsSafeWhereAllFormsStayBelowTheMargin) {
  // Gaps of 0 give or take 1e-6. The margin is some 5000 times as large, and
  // a hundred times the operations multiply a power law by 100 at most.
  const LadderStatement statement =
      StateLadder("name", "bf16", {Arm("a", 0, 1e-6)},
                  {.sizes = {{30e6, 30e6}},
                   .margin_percent = 0.25,
                   .prediction = kFewDraws});

  ASSERT_EQ(statement.arms.size(), 1u);
  ASSERT_EQ(statement.arms[0].sizes.size(), 1u);
  EXPECT_EQ(statement.arms[0].sizes[0].verdict, ScaleVerdict::kSafe);
  EXPECT_EQ(statement.arms[0].held_out.size(), 3u);
}

TEST(StateLadder, IsInconclusiveWhereNoiseMayGrow) {
  const LadderStatement statement =
      StateLadder("name", "bf16", {Arm("a", 0, 1e-2, /*seed=*/3)}, Question());

  EXPECT_EQ(statement.arms[0].sizes[0].verdict, ScaleVerdict::kInconclusive);
}

/// Safe but for what the test adds.
LadderStatement NearStatement(std::vector<LadderArm> arms) {
  return StateLadder("name", "bf16", std::move(arms),
                     {.sizes = {{30e6, 30e6}},
                      .margin_percent = 0.25,
                      .prediction = kFewDraws});
}

TEST(StateLadder, IsNotSafeIfSeedsDivergedOrAreMissing) {
  LadderArm arm = Arm("a", 0, 1e-6);
  arm.doubts = {"3 of 8 seeds diverged."};
  const LadderStatement statement = NearStatement({arm});
  EXPECT_EQ(statement.arms[0].sizes[0].verdict, ScaleVerdict::kInconclusive);
  EXPECT_EQ(statement.arms[0].doubts, arm.doubts);
}

TEST(StateLadder, IsNotSafeIfTheControlIsNotSeen) {
  LadderArm control = Arm("c", 0, 1e-3);
  control.role = ArmRole::kControl;
  EXPECT_EQ(
      NearStatement({Arm("a", 0, 1e-6), control}).arms[0].sizes[0].verdict,
      ScaleVerdict::kInconclusive);
  LadderArm seen = Arm("c", 0.1, 1e-3);
  seen.role = ArmRole::kControl;
  EXPECT_EQ(NearStatement({Arm("a", 0, 1e-6), seen}).arms[0].sizes[0].verdict,
            ScaleVerdict::kSafe);
}

TEST(StateLadder, IsNotSafeIfTheLargestSizeIsNotAsTheOthersPredict) {
  LadderArm arm = Arm("a", 0, 1e-6);
  for (double& gap : arm.cells.back().gaps) gap += 1e-4;
  const LadderStatement statement = NearStatement({arm});
  EXPECT_EQ(statement.arms[0].sizes[0].verdict, ScaleVerdict::kInconclusive);
  EXPECT_FALSE(statement.arms[0].doubts.empty());
}

TEST(StateLadder, IsNotSafeWhereAFormDoesNotFit) {
  // The smallest size alone has a gap, of 1e-4 nats: a fiftieth of the
  // margin, but a hundred times the noise.
  LadderArm arm = Arm("a", 0, 1e-6);
  for (double& gap : arm.cells.front().gaps) gap += 1e-4;
  const LadderStatement statement = NearStatement({arm});
  EXPECT_EQ(statement.arms[0].sizes[0].verdict, ScaleVerdict::kInconclusive);
  const std::vector<std::string>& doubts = statement.arms[0].doubts;
  EXPECT_TRUE(std::ranges::any_of(doubts, [](const std::string& doubt) {
    return doubt.find("effective size does not fit") != std::string::npos;
  }));
}

TEST(StateLadder, TakesTheMarginOfTheLossThatASizeMayExpect) {
  // UsualLoss falls to 1.25 nats at 16B; losses scatter by 1e-4, and the law
  // is extrapolated over four decades. A tenth of a nat is a wide bound.
  const LadderStatement statement =
      StateLadder("name", "bf16", {Arm("a", 0)}, Question());
  EXPECT_NEAR(statement.arms[0].sizes[0].margin_nats,
              0.0025 * UsualLoss({16e9, 50e9}), 0.0025 * 0.1);
  EXPECT_LT(statement.arms[0].sizes[0].margin_nats, statement.margin_nats);
}

TEST(StateLadder, HasOneMarginForAllArms) {
  // Of the second arm a cell is missing, so that it alone determines no law.
  LadderArm lacks = Arm("b", 0);
  lacks.cells.erase(lacks.cells.begin() + 1);
  const LadderStatement statement =
      StateLadder("name", "bf16", {lacks, Arm("a", 0)}, Question());
  EXPECT_EQ(statement.arms[0].sizes[0].margin_nats,
            statement.arms[1].sizes[0].margin_nats);
  EXPECT_LT(statement.arms[0].sizes[0].margin_nats, statement.margin_nats);
}

TEST(StateLadder, ACellOfEqualBitsDoesNotDecideAlone) {
  // All gaps are 0.35 nats but those of the smallest cell, which are 0 to the
  // bit: without a least error it would weigh 1e40 times the others.
  LadderArm arm = Arm("a", 0.35, 0.01);
  for (double& gap : arm.cells.front().gaps) gap = 0;
  const LadderStatement statement = NearStatement({arm});
  EXPECT_EQ(statement.arms[0].sizes[0].verdict, ScaleVerdict::kInconclusive);
  EXPECT_GT(statement.arms[0].sizes[0].fits[0].predicted.upper,
            statement.margin_nats);
}

TEST(StateLadder, SaysWhatItLacks) {
  LadderArm two = Arm("two", 0);
  two.cells.resize(2);
  two.doubts = {"One seed of two is missing."};
  LadderArm none = Arm("none", 0);
  none.cells.clear();

  const LadderStatement statement =
      StateLadder("name", "bf16", {none, two}, Question());

  ASSERT_EQ(statement.arms.size(), 2u);
  EXPECT_TRUE(statement.arms[0].sizes.empty());
  EXPECT_FALSE(statement.arms[0].slope);
  EXPECT_TRUE(statement.arms[1].sizes.empty());
  EXPECT_TRUE(statement.arms[1].slope);
  EXPECT_EQ(statement.arms[1].doubts, two.doubts);
  EXPECT_EQ(statement.notes.size(), 2u);
}

TEST(StateLadder, RefusesAMarginThatIsNone) {
  for (const double margin : {0.0, -1.0, 100.0}) {
    LadderQuestion question = Question();
    question.margin_percent = margin;
    EXPECT_THROW(StateLadder("name", "bf16", {Arm("a", 0)}, question), Error);
  }
}

}  // namespace
}  // namespace isoloss::estimators::state_ladder_test
