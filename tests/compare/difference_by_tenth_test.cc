#include "isoloss/compare/difference_by_tenth.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <vector>

#include "isoloss/compare/rate_plateau.h"
#include "support/synthetic_runs.h"

namespace isoloss::compare::difference_by_tenth_test {
namespace {

/// Baselines of loss 1; the candidates' differences in percent by seed and
/// step.
class Runs {
 public:
  Runs(std::vector<std::vector<double>> percent, std::vector<double> rates) {
    for (const auto& of_seed : percent) {
      runs_.push_back({});
      runs_.push_back({});
      for (size_t i = 0; i < of_seed.size(); ++i) {
        for (const size_t back : {size_t{2}, size_t{1}}) {
          auto& s = runs_[runs_.size() - back].log.steps;
          s.step.push_back(static_cast<int64_t>(i) + 1);
          s.tokens_seen.push_back(512 * (static_cast<int64_t>(i) + 1));
          s.lr = rates;
          s.loss_nats.push_back(back == 2 ? 1 : 1 + of_seed[i] / 100);
        }
      }
    }
    for (size_t i = 0; i < runs_.size(); i += 2) {
      pairing_.pairs.push_back(
          {static_cast<int64_t>(i / 2), &runs_[i], &runs_[i + 1]});
    }
  }
  const Pairing& pairing() const { return pairing_; }

 private:
  std::vector<Run> runs_;
  Pairing pairing_;
};

std::vector<double> Filled(size_t count, const auto& value) {
  std::vector<double> values;
  for (size_t i = 1; i <= count; ++i) {
    values.push_back(value(static_cast<double>(i)));
  }
  return values;
}

// 1 + percent / 100 rounds once, and 100 times its rest is off by 100 times
// that: 1e-14. t(0.95, 1) = tan(0.45 pi), the two seeds are 1 apart around the
// mean, sd / sqrt(2) = 0.5.
TEST(CompareByTenth, AveragesEachTenthOverStepsAndThenSeeds) {
  const Runs runs({Filled(25, [](double step) { return step; }),
                   Filled(25, [](double step) { return step + 1; })},
                  {});

  const DifferenceByTenth along = CompareByTenth(runs.pairing(), 0.05);

  ASSERT_EQ(along.tenths.size(), 10);
  EXPECT_EQ(along.tenths[0].first_step, 1);
  EXPECT_EQ(along.tenths[0].last_step, 2);
  EXPECT_EQ(along.tenths[1].first_step, 3);
  EXPECT_EQ(along.tenths[1].last_step, 5);
  EXPECT_EQ(along.tenths[9].last_step, 25);
  const stats::MeanInterval& second = along.tenths[1].percent;
  EXPECT_NEAR(second.mean, 4.5, 1e-12);
  const double half = 0.5 * std::tan(0.45 * std::numbers::pi);
  EXPECT_NEAR(second.lower, 4.5 - half, 1e-12);
  EXPECT_NEAR(second.upper, 4.5 + half, 1e-12);
  EXPECT_FALSE(along.decay.has_value());
}

// The first tenth is far off the line, and left out.
TEST(CompareByTenth, FindsTheSlopePerDoublingFromTheSecondTenthOn) {
  const auto on_line = [](double slope) {
    return Filled(40, [slope](double step) {
      return step <= 4 ? 50 : 0.2 + slope * std::log2(step);
    });
  };
  const Runs runs({on_line(0.5), on_line(0.75), on_line(1.0)}, {});

  const auto slope = CompareByTenth(runs.pairing(), 0.05).per_doubling;

  ASSERT_TRUE(slope.has_value());
  // Differences of 1e-14 over a doubling or so.
  EXPECT_NEAR(slope->mean, 0.75, 1e-12);
  // t(0.95, 2) = 2.919985580355516, sd 0.25.
  EXPECT_NEAR(slope->upper - slope->mean,
              2.919985580355516 * 0.25 / std::sqrt(3.0), 1e-12);
}

TEST(CompareByTenth, ComparesBeforeAndAfterTheRateFalls) {
  const std::vector<double> rates = {0.5, 1, 1, 1, 0.75, 0.5};
  const Runs runs({{1, 1, 1, 1, 3, 4}, {2, 2, 2, 2, 5, 6}}, rates);

  const auto decay = CompareByTenth(runs.pairing(), 0.05).decay;

  ASSERT_TRUE(decay.has_value());
  EXPECT_EQ(decay->before.last_step, 4);
  EXPECT_EQ(decay->after.first_step, 5);
  EXPECT_EQ(decay->after.last_step, 6);
  EXPECT_NEAR(decay->before.percent.mean, 1.5, 1e-12);
  EXPECT_NEAR(decay->after.percent.mean, 4.5, 1e-12);
  EXPECT_NEAR(decay->change.mean, 3, 1e-12);
  // Changes 2.5 and 3.5, whose spread is less than that of either part.
  EXPECT_NEAR(decay->change.upper - 3, 0.5 * std::tan(0.45 * std::numbers::pi),
              1e-11);
}

TEST(CompareByTenth, OfOneSeedOrAFewStepsHasWhatThereIs) {
  const Runs runs({{1, 2, 3}}, {1, 1, 1});

  const DifferenceByTenth along = CompareByTenth(runs.pairing(), 0.05);

  EXPECT_EQ(along.tenths.size(), 3);
  EXPECT_TRUE(std::isinf(along.tenths[0].percent.upper));
  EXPECT_FALSE(along.per_doubling.has_value());
  EXPECT_FALSE(along.decay.has_value());
}

TEST(PlateauOf, FindsTheLargestRates) {
  const auto plateau = [](std::vector<double> rates) {
    return PlateauOf(rates);
  };

  EXPECT_EQ(plateau({0.1, 1, 1, 1, 0.5})->first, 1);
  EXPECT_EQ(plateau({0.1, 1, 1, 1, 0.5})->last, 3);
  // The rounding of a schedule is no fall.
  EXPECT_EQ(plateau({1, 1 - 1e-15, 0.5})->last, 1);
  EXPECT_EQ(plateau({1, 1 - 1e-6})->last, 0);
  EXPECT_FALSE(plateau({}).has_value());
  EXPECT_FALSE(plateau({0, 0}).has_value());
  EXPECT_FALSE(plateau({1, std::nan("")}).has_value());
}

}  // namespace
}  // namespace isoloss::compare::difference_by_tenth_test
