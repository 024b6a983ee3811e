#include "isoloss/estimators/prediction.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "isoloss/base/error.h"
#include "synthetic_ladder.h"

namespace isoloss::estimators::prediction_test {
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
  // A power law, and a data penalty with the exponents of UsualLoss. No
  // effective size grows with data, so that this form does not fit.
  const Law stays = [](const Size& size) {
    return 0.02 * std::pow(size.parameters, -0.34) * std::pow(size.tokens, 0.3);
  };

  const SizeStatement found =
      StateSize(LadderOf(stays, 1e-4), "16B", k16B, 0.005, {});

  EXPECT_EQ(found.verdict, ScaleVerdict::kUnsafe);
  ASSERT_EQ(found.fits.size(), 3u);
  EXPECT_FALSE(found.fits[0].Misfits());
  EXPECT_TRUE(found.fits[1].Misfits());
  EXPECT_LT(found.fits[1].predicted.upper, 0.005);
  EXPECT_FALSE(found.fits[2].Misfits());
}

TEST(StateSize, CallsNothingUnsafeByFormsThatWereNotTried) {
  // Three cells, which a power law meets exactly. The two-term laws are tried;
  // neither can fall with parameters and stay with tokens as this one.
  const Law law = [](const Size& size) {
    return 3 * size.parameters / 1e6 / std::pow(size.tokens / 1e6, 0.5);
  };
  std::vector<GapCell> cells = LadderOf(law, 1e-4);
  cells = {cells[0], cells[1], cells[3]};

  const SizeStatement found = StateSize(cells, "16B", k16B, 0.005, {});

  EXPECT_FALSE(found.fits[0].fit_p);
  EXPECT_GT(found.fits[0].predicted.lower, 0.005);
  EXPECT_TRUE(found.fits[1].Misfits());
  EXPECT_TRUE(found.fits[2].Misfits());
  EXPECT_EQ(found.verdict, ScaleVerdict::kInconclusive);
}

TEST(StateSize, SaysOfNoiseThatItIsInconclusive) {
  const SizeStatement found = StateSize(
      LadderOf([](const Size&) { return 0.0; }, 0.01), "16B", k16B, 0.005, {});

  EXPECT_EQ(found.verdict, ScaleVerdict::kInconclusive);
}

TEST(StateSize, IsInconclusiveWhereOneFormReachesTheMargin) {
  // 5e-4 nats that grow by each token, and a noise in which an effective size
  // fits as well.
  const Law grows = [](const Size& size) {
    return 5e-4 * std::pow(size.parameters / 1e6, -0.34) *
           std::pow(size.tokens / 1e6, 0.3);
  };

  const SizeStatement found =
      StateSize(LadderOf(grows, 1e-3), "16B", k16B, 0.002, {});

  ASSERT_FALSE(found.fits[1].Misfits());
  EXPECT_LT(found.fits[1].predicted.upper, 0.002);
  EXPECT_EQ(found.verdict, ScaleVerdict::kInconclusive);
}

/// The cells as so many times the seeds would make them, if means stay.
std::vector<GapCell> WithMoreSeeds(std::vector<GapCell> cells, double factor) {
  for (GapCell& cell : cells) {
    for (std::vector<double>* values : {&cell.gaps, &cell.baseline}) {
      double mean = 0;
      for (const double value : *values) {
        mean += value / static_cast<double>(values->size());
      }
      for (double& value : *values) {
        value = mean + (value - mean) / std::sqrt(factor);
      }
    }
  }
  return cells;
}

// A margin between the means and the upper ends: more seeds settle it, and half
// as many do not.
TEST(StateSize, SaysHowManySeedsWouldDo) {
  const Law fades = [](const Size& size) {
    return 3 * std::pow(size.parameters, -0.34) +
           5 * std::pow(size.tokens, -0.3);
  };
  const std::vector<GapCell> cells = LadderOf(fades, 0.003);
  double mean = 0;
  double upper = 0;
  for (const Form form : kForms) {
    const GapInterval found = PredictGap(cells, k16B, form, {}).predicted;
    mean = std::max(mean, found.estimate);
    upper = std::max(upper, found.upper);
  }
  ASSERT_LT(mean, upper);
  const double margin = mean + 0.5 * (upper - mean);

  const SizeStatement found = StateSize(cells, "16B", k16B, margin, {});

  EXPECT_EQ(found.verdict, ScaleVerdict::kInconclusive);
  ASSERT_TRUE(found.seeds_factor);
  const double factor = *found.seeds_factor;
  EXPECT_EQ(
      StateSize(WithMoreSeeds(cells, factor), "16B", k16B, margin, {}).verdict,
      ScaleVerdict::kSafe);
  EXPECT_EQ(StateSize(WithMoreSeeds(cells, factor / 2), "16B", k16B, margin, {})
                .verdict,
            ScaleVerdict::kInconclusive);
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

  EXPECT_EQ(PredictTopRung(cells, Form::kPowerLaw, {})->cell, "cell5");

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
}  // namespace isoloss::estimators::prediction_test
