#include "isoloss/estimators/gap_law.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "synthetic_ladder.h"

namespace isoloss::estimators::gap_law_test {
namespace {

const std::vector<double> kErrors(6, 1e-3);

std::vector<double> ValuesOf(const Law& law) {
  std::vector<double> values;
  for (const Size& size : SmallSizes()) values.push_back(law(size));
  return values;
}

// The grid's last step is 0.05 / 2^6 = 8e-4, so an exponent lies within 8e-4 of
// the best one. Over the ladder's range of 1.3 (log 0.34e6 to 3e6 from the
// centre) and 2 the law is then off by (1.3 + 2) 8e-4 = 0.3 %.
TEST(PowerLawFit, FindsALawWithoutNoise) {
  const auto law = [](const Size& size) {
    return 0.03 * std::pow(size.parameters / 1e6, -0.213) *
           std::pow(size.tokens / 2e6, 0.117);
  };

  const PowerLaw found = PowerLawFit(SmallSizes(), kErrors).Fit(ValuesOf(law));

  EXPECT_NEAR(found.of_parameters, -0.213, 8e-4);
  EXPECT_NEAR(found.of_tokens, 0.117, 8e-4);
  for (const Size& size : SmallSizes()) {
    EXPECT_NEAR(found.At(size) / law(size), 1, 3e-3);
  }
}

TEST(PowerLawFit, TakesGapsBelowZero) {
  const auto law = [](const Size& size) {
    return -0.01 * std::pow(size.parameters / 1e6, 0.3);
  };

  const PowerLaw found = PowerLawFit(SmallSizes(), kErrors).Fit(ValuesOf(law));

  EXPECT_LT(found.coefficient, 0);
  EXPECT_NEAR(found.of_parameters, 0.3, 8e-4);
}

TEST(PowerLawFit, KeepsExponentsWithinTheirBounds) {
  const auto law = [](const Size& size) {
    return std::pow(size.parameters / 1e6, 3);
  };

  const PowerLaw found = PowerLawFit(SmallSizes(), kErrors).Fit(ValuesOf(law));

  EXPECT_EQ(found.of_parameters, kLargestExponent);
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
  const auto grows = [](const Size& size) { return std::log(size.Flops()); };

  EXPECT_FALSE(LossLawFit(SmallSizes(), kErrors).Fit(ValuesOf(grows)));
}

// The design is as in FindsALawWithoutNoise, of two terms.
TEST(FitTwoTerms, FindsLostParametersAndData) {
  const auto law = [](const Size& size) {
    return 0.5 * std::pow(size.parameters, -0.3) +
           2 * std::pow(size.tokens, -0.28);
  };

  const TwoTermLaw found = FitTwoTerms(Form::kEffectiveSize, SmallSizes(),
                                       kErrors, ValuesOf(law), 0.3, 0.28);

  EXPECT_NEAR(found.u, 0.5, 1e-9);
  EXPECT_NEAR(found.v, 2, 1e-9);
  EXPECT_NEAR(found.At({1e9, 1e9}), law({1e9, 1e9}), 1e-9);
}

TEST(FitTwoTerms, FindsAPenaltyOfEachToken) {
  const auto law = [](const Size& size) {
    return std::pow(size.parameters, -0.3) *
           (0.5 + 0.02 * std::pow(size.tokens, 0.28));
  };

  const TwoTermLaw found = FitTwoTerms(Form::kDataPenalty, SmallSizes(),
                                       kErrors, ValuesOf(law), 0.3, 0.28);

  EXPECT_NEAR(found.u, 0.5, 1e-9);
  EXPECT_NEAR(found.v, 0.02, 1e-9);
  EXPECT_NEAR(found.At({1e9, 1e12}), law({1e9, 1e12}), 1e-9);
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

}  // namespace
}  // namespace isoloss::estimators::gap_law_test
