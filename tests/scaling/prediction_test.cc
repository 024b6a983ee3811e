#include "isoloss/scaling/prediction.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "isoloss/base/error.h"
#include "synthetic_ladder.h"

namespace isoloss::scaling {
namespace {

constexpr Size k16B = {16e9, 50e9};

std::vector<GapCell> LadderOf(const Law& law, double sd) {
  return SyntheticLadder(law, UsualLoss, 8, sd, 1);
}

TEST(StateSize, CallsALossThatFadesSafe) {
  const Law fades = [](const Size& size) {
    return 1.5 * std::pow(size.parameters, -0.34) +
           3 * std::pow(size.tokens, -0.3);
  };

  const SizeStatement found =
      StateSize(LadderOf(fades, 1e-4), "16B", k16B, 0.005, {});

  EXPECT_EQ(found.verdict, ScaleVerdict::kSafe);
  EXPECT_FALSE(found.seeds_factor);
}

TEST(StateSize, CallsALossThatStaysUnsafe) {
  const Law stays = [](const Size& size) {
    return 20 * std::pow(size.parameters, -0.1) +
           40 * std::pow(size.tokens, -0.1);
  };

  const SizeStatement found =
      StateSize(LadderOf(stays, 1e-4), "16B", k16B, 0.005, {});

  EXPECT_EQ(found.verdict, ScaleVerdict::kUnsafe);
}

TEST(StateSize, SaysOfNoiseThatItIsInconclusive) {
  const SizeStatement found = StateSize(
      LadderOf([](const Size&) { return 0.0; }, 0.01), "16B", k16B, 0.005, {});

  EXPECT_EQ(found.verdict, ScaleVerdict::kInconclusive);
}

// A margin between the means and the upper ends: wider data would settle it.
TEST(StateSize, SaysHowManySeedsWouldDo) {
  const Law fades = [](const Size& size) {
    return 3 * std::pow(size.parameters, -0.34) +
           5 * std::pow(size.tokens, -0.3);
  };
  const std::vector<GapCell> cells = LadderOf(fades, 0.003);
  double mean = 0;
  double upper = 0;
  for (const Form form : {Form::kPowerLaw, Form::kEffectiveSize}) {
    const GapInterval found = PredictGap(cells, k16B, form, {}).predicted;
    mean = std::max(mean, found.estimate);
    upper = std::max(upper, found.upper);
  }
  ASSERT_LT(mean, upper);

  const SizeStatement found =
      StateSize(cells, "16B", k16B, mean + 0.5 * (upper - mean), {});

  EXPECT_EQ(found.verdict, ScaleVerdict::kInconclusive);
  ASSERT_TRUE(found.seeds_factor);
  EXPECT_GE(*found.seeds_factor, 2);
}

TEST(StateSize, RefusesTooLittle) {
  std::vector<GapCell> cells = LadderOf(UsualLoss, 0.01);

  EXPECT_THROW(StateSize(cells, "16B", k16B, 0, {}), Error);
  EXPECT_THROW(StateSize(cells, "16B", k16B, 0.005, {.resamples = 10}), Error);
  cells[0].gaps.resize(1);
  EXPECT_THROW(StateSize(cells, "16B", k16B, 0.005, {}), Error);
  cells.resize(2);
  EXPECT_THROW(StateSize(cells, "16B", k16B, 0.005, {}), Error);
}

TEST(PredictTopRung, TakesTheCellOfMostOperationsAndSeesABreak) {
  std::vector<GapCell> cells = LadderOf([](const Size&) { return 0.01; }, 1e-4);
  cells[4].name = "top";  // 1.3 M parameters, 5.2 M tokens

  EXPECT_EQ(PredictTopRung(cells, Form::kPowerLaw, {})->cell, "cell");

  cells[5].size.tokens = 2e6;
  EXPECT_EQ(PredictTopRung(cells, Form::kPowerLaw, {})->cell, "top");
  for (double& gap : cells[4].gaps) gap += 1;
  EXPECT_FALSE(PredictTopRung(cells, Form::kPowerLaw, {})->inside);
}

TEST(GapSlope, IsInNatsATenfold) {
  const Law line = [](const Size& size) {
    return 0.02 * std::log10(size.Flops() / 1e13);
  };

  const GapInterval slope = GapSlope(LadderOf(line, 1e-5), {});

  // Eight values of 1e-5 in each of six cells over two decades: the error of
  // the slope is below 1e-5.
  EXPECT_NEAR(slope.estimate, 0.02, 1e-5);
  EXPECT_LT(slope.lower, slope.estimate);
  EXPECT_LT(slope.estimate, slope.upper);
}

TEST(MeanOfCell, RefusesWhatIsNotFinite) {
  EXPECT_THROW(MeanOfCell(std::vector<double>{
                   1, std::numeric_limits<double>::infinity()}),
               Error);
}

TEST(PredictGap, DependsOnItsArgumentsOnly) {
  const std::vector<GapCell> cells =
      LadderOf([](const Size&) { return 0.01; }, 0.003);

  const GapFit a = PredictGap(cells, k16B, Form::kEffectiveSize, {});
  const GapFit b = PredictGap(cells, k16B, Form::kEffectiveSize, {});

  EXPECT_EQ(a.predicted.lower, b.predicted.lower);
  EXPECT_EQ(a.predicted.upper, b.predicted.upper);
}

}  // namespace
}  // namespace isoloss::scaling
