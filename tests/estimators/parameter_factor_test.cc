#include "isoloss/estimators/parameter_factor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "isoloss/base/error.h"
#include "simulated_ladder.h"

namespace isoloss::estimators::parameter_factor_test {
namespace {

using Law = double (*)(const Size&);

/// Sizes of the default ladder that two cores can train.
std::vector<Size> SmallSizes() {
  return {{0.34e6, 0.34e6}, {0.34e6, 1.36e6}, {0.34e6, 6.8e6},
          {1.3e6, 1.3e6},   {1.3e6, 5.2e6},   {3e6, 3e6}};
}

const std::vector<double> kErrors(6, 1e-3);

std::vector<double> ValuesOf(Law law) {
  std::vector<double> values;
  for (const Size& size : SmallSizes()) values.push_back(law(size));
  return values;
}

// The exponents lie on the grid (0.34 and 0.3), so that nothing but rounding is
// left: the condition of six cells and three terms is below 1e4, times 2^-53
// and the size of A, 20 and 80.
TEST(LossLawFit, FindsALawWithoutNoise) {
  const std::optional<LossLaw> found =
      LossLawFit(SmallSizes(), kErrors).Fit(ValuesOf(UsualLoss));

  ASSERT_TRUE(found);
  EXPECT_NEAR(found->alpha, 0.34, 1e-12);
  EXPECT_NEAR(found->beta, 0.3, 1e-12);
  EXPECT_NEAR(found->floor, 1.2, 1e-9);
  EXPECT_NEAR(found->of_parameters, 20, 1e-7);
  EXPECT_NEAR(found->of_tokens, 80, 1e-7);
}

TEST(LossLawFit, FindsNothingWhereLossesGrow) {
  const Law grows = [](const Size& size) { return std::log(size.Flops()); };

  EXPECT_FALSE(LossLawFit(SmallSizes(), kErrors).Fit(ValuesOf(grows)));
}

// The design is as in FindsALawWithoutNoise, of two terms.
TEST(FitLostParameters, FindsTheTermOfParameters) {
  const Law law = [](const Size& size) {
    return 0.5 * std::pow(size.parameters, -0.3) +
           2 * std::pow(size.tokens, -0.28);
  };

  EXPECT_NEAR(FitLostParameters(SmallSizes(), kErrors, ValuesOf(law),
                                {.alpha = 0.3, .beta = 0.28}),
              0.5, 1e-9);
}

TEST(DeterminesLossLaw, TakesSixCellsWithThreeSizesOfEachKind) {
  std::vector<Size> sizes = SmallSizes();
  EXPECT_TRUE(DeterminesLossLaw(sizes));

  sizes.back().parameters = sizes.front().parameters;
  EXPECT_FALSE(DeterminesLossLaw(sizes));
  sizes = SmallSizes();
  sizes.pop_back();
  EXPECT_FALSE(DeterminesLossLaw(sizes));
}

TEST(ParameterFactor, RefusesTooLittle) {
  std::mt19937_64 random(1);
  std::vector<GapCell> cells =
      DrawCells({.sizes = SmallSizes()}, EverywhereLaw(0.1), random);

  EXPECT_THROW(ParameterFactor(cells, {.resamples = 10}), Error);
  cells[0].gaps.resize(1);
  EXPECT_THROW(ParameterFactor(cells, {}), Error);
  cells[0].gaps = {0, std::numeric_limits<double>::infinity()};
  EXPECT_THROW(ParameterFactor(cells, {}), Error);
  cells.erase(cells.begin());
  EXPECT_FALSE(ParameterFactor(cells, {}));
}

}  // namespace
}  // namespace isoloss::estimators::parameter_factor_test
