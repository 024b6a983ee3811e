#include <gtest/gtest.h>

#include <cmath>

#include "isoloss/base/error.h"
#include "isoloss/estimators/ladder_statement.h"
#include "isoloss/estimators/size_text.h"
#include "simulated_ladder.h"

namespace isoloss::estimators::state_ladder_test {
namespace {

const Size k16B = ParseSize("16B@50B");

/// An arm with a gap of so many percent everywhere. The default spread of 1e-6
/// nats decides every verdict.
LadderArm Arm(const std::string& name, double percent, double spread = 1e-6) {
  std::mt19937_64 random(4);
  return {.name = name,
          .recipe = "mxfp8_rceil",
          .cells = DrawCells({.sizes = DefaultSizes(), .spread_nats = spread},
                             EverywhereLaw(percent), random)};
}

LadderStatement State(const std::vector<LadderArm>& arms) {
  return StateLadder("name", "bf16", arms, {.sizes = {k16B}});
}

ScaleVerdict VerdictOf(const std::vector<LadderArm>& arms) {
  return State(arms).arms[0].sizes[0].verdict;
}

TEST(StateLadder, JudgesTheLineAtTheSizeByTheMargin) {
  EXPECT_EQ(VerdictOf({Arm("a", 0)}), ScaleVerdict::kSafe);
  EXPECT_EQ(VerdictOf({Arm("a", -0.2)}), ScaleVerdict::kSafe);
  EXPECT_EQ(VerdictOf({Arm("a", 0.3)}), ScaleVerdict::kUnsafe);
  EXPECT_EQ(VerdictOf({Arm("a", -0.3)}), ScaleVerdict::kUnsafe);
  // The error of 8 seeds of 0.03 nats is some 1 % there.
  EXPECT_EQ(VerdictOf({Arm("a", 0, 0.03)}), ScaleVerdict::kInconclusive);
}

TEST(StateLadder, IsUnsafeWhereTheLineLeavesTheMarginBeyondTheLadder) {
  LadderArm arm = Arm("a", 0);
  std::mt19937_64 random(1);
  arm.cells = DrawCells({.sizes = DefaultSizes(), .spread_nats = 1e-6},
                        LineLaw(DefaultSizes(), 0, k16B, 0.5), random);

  EXPECT_EQ(VerdictOf({arm}), ScaleVerdict::kUnsafe);
}

// The largest default size takes 6 * 4.47e6 * 134e6 operations, and 16B takes
// 6 * 2.4e9 * 50e9: log10 of the quotient is 5.302. Its gap is 0.1 %, the
// margin 0.25 %. A mean of seeds is off by 1e-4 % at most.
TEST(StateLadder, SaysWhatMustBeTrue) {
  const SizeStatement size = State({Arm("a", 0.1)}).arms[0].sizes[0];

  EXPECT_NEAR(size.decades_beyond, 5.302, 5e-4);
  EXPECT_NEAR(size.must_grow.value(), 0.15 / 5.302, 1e-4);
  EXPECT_FALSE(State({Arm("a", 0.3)}).arms[0].sizes[0].must_grow);
  const LadderStatement near =
      StateLadder("name", "bf16", {Arm("a", 0.1)}, {.sizes = {{1e6, 1e6}}});
  EXPECT_LT(near.arms[0].sizes[0].decades_beyond, 0);
  EXPECT_FALSE(near.arms[0].sizes[0].must_grow);
}

TEST(StateLadder, ShowsOtherLawsThatDecideNothing) {
  LadderArm arm = Arm("a", 0);
  std::mt19937_64 random(1);
  // No gap in the smaller half, and one that leaves the margin above it.
  arm.cells = DrawCells(
      {.sizes = DefaultSizes(), .spread_nats = 1e-6},
      [](const Size& size, std::mt19937_64&) {
        return 0.1 * std::max(0.0, std::log10(size.Flops()) - 13.5);
      },
      random);

  const SizeStatement size = State({arm}).arms[0].sizes[0];

  ASSERT_EQ(size.others.size(), 2u);
  EXPECT_LT(size.others[0].gap_percent.upper, size.gap_percent.estimate);
  EXPECT_GT(size.others[1].gap_percent.lower, size.gap_percent.estimate);
  EXPECT_GT(State({arm}).arms[0].scatter.value(), 5);
}

TEST(StateLadder, HoldsALargeBatchAgainstItsTwin) {
  LadderArm arm = Arm("a", 0);
  const ArmStatement none = State({arm}).arms[0];
  EXPECT_FALSE(none.of_batch);
  arm.large_batch = {arm.cells[1], arm.cells[1].name};
  for (double& gap : arm.large_batch->cell.gaps) gap += 0.1;

  const ArmStatement found = State({arm}).arms[0];

  // 0.1 nats are 100 / UsualLoss times 0.1 %, up to the spread of losses.
  EXPECT_NEAR(found.of_batch.value().estimate,
              10 / UsualLoss(arm.cells[1].size), 1e-4);
  EXPECT_FALSE(found.of_batch->Holds(0));
  EXPECT_EQ(found.sizes[0].gap_percent.estimate,
            none.sizes[0].gap_percent.estimate);
  arm.large_batch->twin = "not trained";
  EXPECT_FALSE(State({arm}).arms[0].of_batch);
}

TEST(StateLadder, IsNotSafeIfSeedsDivergedOrAreMissing) {
  LadderArm arm = Arm("a", 0);
  arm.doubts = {"3 of 8 seeds diverged."};
  EXPECT_EQ(VerdictOf({arm}), ScaleVerdict::kInconclusive);
  EXPECT_EQ(State({arm}).arms[0].doubts, arm.doubts);
}

TEST(StateLadder, IsNotSafeIfTheControlIsNotSeen) {
  LadderArm control = Arm("c", 0);
  control.role = ArmRole::kControl;
  for (double& gap : control.cells.back().gaps) gap = -std::fabs(gap);
  EXPECT_EQ(VerdictOf({Arm("a", 0), control}), ScaleVerdict::kInconclusive);
  LadderArm seen = Arm("c", 1);
  seen.role = ArmRole::kControl;
  EXPECT_EQ(VerdictOf({Arm("a", 0), seen}), ScaleVerdict::kSafe);
}

// A gap that fades from 0.5 to 0.3 % over the ladder, and to 0 at 16B.
TEST(StateLadder, IsNotSafeIfTheLargestSizeLiesOutsideTheMargin) {
  LadderArm arm = Arm("a", 0);
  std::mt19937_64 random(1);
  arm.cells = DrawCells({.sizes = DefaultSizes(), .spread_nats = 1e-6},
                        LineLaw(DefaultSizes(), 0.55, k16B, 0), random);

  const ArmStatement found = State({arm}).arms[0];

  EXPECT_LT(found.sizes[0].gap_percent.upper, 0.25);
  EXPECT_EQ(found.sizes[0].verdict, ScaleVerdict::kInconclusive);
  ASSERT_EQ(found.doubts.size(), 1u);
  EXPECT_NE(found.doubts[0].find("outside the margin"), std::string::npos);
}

TEST(StateLadder, SaysWhatItLacks) {
  LadderArm two = Arm("two", 0);
  two.cells.resize(2);
  two.doubts = {"One seed of two is missing."};
  LadderArm none = Arm("none", 0);
  none.cells.clear();

  const LadderStatement statement = State({none, two});

  ASSERT_EQ(statement.arms.size(), 2u);
  for (const ArmStatement& arm : statement.arms) {
    EXPECT_TRUE(arm.sizes.empty());
    EXPECT_FALSE(arm.slope);
  }
  EXPECT_EQ(statement.arms[1].doubts, two.doubts);
  EXPECT_EQ(statement.notes.size(), 2u);
}

TEST(StateLadder, RefusesAMarginThatIsNone) {
  for (const double margin : {0.0, -1.0, 100.0}) {
    EXPECT_THROW(StateLadder("name", "bf16", {Arm("a", 0)},
                             {.sizes = {k16B}, .margin_percent = margin}),
                 Error);
  }
}

}  // namespace
}  // namespace isoloss::estimators::state_ladder_test
