// How often 90 % intervals hold the truth of ladders whose law is known.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "isoloss/scaling/prediction.h"
#include "synthetic_ladder.h"

namespace isoloss::scaling {
namespace {

constexpr int kTrials = 500;
// The share that is asked for is 0.86 to 0.94. Of 500 trials of probability
// 0.90 the share lies within 4 standard errors, 4 sqrt(0.9 0.1 / 500) = 0.054,
// of it.
constexpr double kLeast = 0.86;
constexpr double kMost = 0.94;

const PredictionOptions kOptions{.confidence = 0.9, .resamples = 199};
constexpr Size kNear = {6.7e6, 6.7e6};
constexpr Size kFar = {16e9, 50e9};

double CoverageOf(Form form, const Law& gap, const Size& size, double sd) {
  int covered = 0;
  for (int trial = 0; trial < kTrials; ++trial) {
    const auto seed = static_cast<uint64_t>(trial);
    PredictionOptions options = kOptions;
    options.seed = seed;
    const GapInterval found =
        PredictGap(SyntheticLadder(gap, UsualLoss, 8, sd, seed), size, form,
                   options)
            .predicted;
    const double truth = gap(size);
    covered += found.lower <= truth && truth <= found.upper ? 1 : 0;
  }
  return static_cast<double>(covered) / kTrials;
}

struct Truth {
  std::string name;
  double coefficient;
  double of_parameters;
  double of_tokens;
};

class PowerLaws : public testing::TestWithParam<Truth> {};

TEST_P(PowerLaws, AreCoveredNearAndFar) {
  const Truth truth = GetParam();
  const Law law = [&](const Size& size) {
    return truth.coefficient *
           std::pow(size.parameters / 1e6, truth.of_parameters) *
           std::pow(size.tokens / 2e6, truth.of_tokens);
  };

  for (const Size& size : {kNear, kFar}) {
    const double share = CoverageOf(Form::kPowerLaw, law, size, 0.01);
    EXPECT_GE(share, kLeast) << size.parameters;
    EXPECT_LE(share, kMost) << size.parameters;
  }
}

INSTANTIATE_TEST_SUITE_P(Prediction, PowerLaws,
                         testing::Values(Truth{"shrinks", 0.03, -0.2, -0.1},
                                         Truth{"grows", 0.03, -0.2, 0.3},
                                         Truth{"better", -0.03, -0.2, -0.1},
                                         Truth{"small", 0.005, -0.2, -0.1},
                                         Truth{"none", 0, 0, 0}),
                         [](const auto& law) { return law.param.name; });

TEST(Prediction, CoversLostParametersAndData) {
  const Law law = [](const Size& size) {
    return 1.5 * std::pow(size.parameters, -0.34) +
           3 * std::pow(size.tokens, -0.3);
  };

  for (const Size& size : {kNear, kFar}) {
    const double share = CoverageOf(Form::kEffectiveSize, law, size, 0.005);
    EXPECT_GE(share, kLeast) << size.parameters;
    EXPECT_LE(share, kMost) << size.parameters;
  }
}

// A held-out rung that is of the law lies inside as often.
TEST(Prediction, CoversAHeldOutRung) {
  const Law law = [](const Size& size) {
    return 0.03 * std::pow(size.parameters / 1e6, -0.2);
  };
  int inside = 0;
  for (int trial = 0; trial < kTrials; ++trial) {
    const auto seed = static_cast<uint64_t>(trial);
    inside += PredictTopRung(SyntheticLadder(law, UsualLoss, 8, 0.01, seed),
                             Form::kPowerLaw, kOptions)
                      ->inside
                  ? 1
                  : 0;
  }
  const double share = static_cast<double>(inside) / kTrials;
  EXPECT_GE(share, kLeast);
  EXPECT_LE(share, 0.97);
}

// Runs of one recipe have no gap that could grow.
TEST(GapSlope, HoldsZeroOfEqualArms) {
  int holds = 0;
  for (int trial = 0; trial < kTrials; ++trial) {
    const GapInterval slope =
        GapSlope(SyntheticLadder([](const Size&) { return 0.0; }, UsualLoss, 8,
                                 0.01, static_cast<uint64_t>(trial)),
                 kOptions);
    holds += slope.lower <= 0 && 0 <= slope.upper ? 1 : 0;
  }
  const double share = static_cast<double>(holds) / kTrials;
  EXPECT_GE(share, kLeast);
  EXPECT_LE(share, kMost);
}

}  // namespace
}  // namespace isoloss::scaling
