#include "isoloss/foreign/foreign_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "isoloss/foreign/findings.h"
#include "isoloss/foreign/smoothing.h"

namespace isoloss::foreign::foreign_run_test {
namespace {

using ::testing::ElementsAre;

TEST(Finish, KeepsTheLastValueOfAStepAndCountsTheOthers) {
  ForeignRun run;
  Series& loss = run.Of("loss");
  loss.Add(1, 5);
  loss.Add(2, 4);
  loss.Add(3, 3);
  loss.Add(2, 4);    // another rank
  loss.Add(3, 2.5);  // after a resume
  run.Of("empty");
  run.Finish();
  ASSERT_EQ(run.series.size(), 1u);
  EXPECT_THAT(run.series[0].step, ElementsAre(1, 2, 3));
  EXPECT_THAT(run.series[0].value, ElementsAre(5, 4, 2.5));
  EXPECT_EQ(run.series[0].copies, 1);
  EXPECT_EQ(run.series[0].repeated, 1);
  EXPECT_EQ(run.series[0].first_repeat, 3);
}

TEST(Digits, AreThoseOfTheFinestValue) {
  Digits digits;
  digits.Include("10.911");
  digits.Include("9.48213");
  digits.Include("nan");
  EXPECT_EQ(digits.decimals, 5);
  EXPECT_EQ(digits.significant, 6);
  EXPECT_DOUBLE_EQ(digits.HalfUnit(10.911), 0.5e-5);
  Digits scientific;
  scientific.Include("1.234567E+01");
  EXPECT_EQ(scientific.significant, 7);
  // Units of the seventh digit of 12.34567 are 1e-5.
  EXPECT_DOUBLE_EQ(scientific.HalfUnit(12.34567), 0.5e-5);
  Digits full;
  full.Include("3.8644182682037354");
  EXPECT_TRUE(full.exact());
  EXPECT_EQ(full.HalfUnit(3.86), 0);
}

TEST(Spacing, OfStepOneAndEveryTenth) {
  const Spacing spacing = SpacingOf({1, 10, 20, 30, 60, 70, 75});
  EXPECT_EQ(spacing.stride, 10);
  EXPECT_EQ(spacing.gaps, 1);
  EXPECT_EQ(spacing.first_gap, 30);
  EXPECT_EQ(spacing.missing, 2);
  // As they stand in a log that was resumed.
  EXPECT_EQ(SpacingOf({5, 5, 5, 7, 3}).stride, 2);
  EXPECT_EQ(SpacingOf({5, 5}).stride, 1);
}

// The correlation of n differences has a standard deviation of at most
// 1/sqrt(n): with the later 2,000 of 4,000, 0.1 is 4.5 of them.
/// Losses of independent batches around 2, and of an exponential mean with so
/// much weight on the past.
Series Losses(size_t count, uint64_t seed, double weight) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> noise(0, 0.03);
  Series series;
  double mean = 0;
  for (size_t i = 0; i < count; ++i) {
    const double batch = noise(random);
    mean = i == 0 ? batch : weight * mean + (1 - weight) * batch;
    const double share = static_cast<double>(i) / static_cast<double>(count);
    series.Add(static_cast<int64_t>(i) + 1,
               2 + 7.5 * std::exp(-2 * share) + mean);
  }
  return series;
}

size_t SmoothedOf(size_t draws, size_t count, double weight) {
  size_t found = 0;
  for (uint64_t seed = 1; seed <= draws; ++seed) {
    found += LooksSmoothed(Losses(count, seed, weight)) ? 1 : 0;
  }
  return found;
}

TEST(DifferenceCorrelation, TellsSmoothedFromIndependentValues) {
  const auto plain = CorrelationOfDifferences(Losses(4001, 1, 0).value);
  const auto smooth = CorrelationOfDifferences(Losses(4001, 1, 0.9).value);
  // 2000 differences: four standard errors of the plain one are 0.063, and
  // of an exponential mean, whose differences hardly correlate, 0.09.
  EXPECT_NEAR(plain.value, -0.5, 4 * plain.standard_error);
  EXPECT_NEAR(smooth.value, -0.05, 4 / std::sqrt(2000.0));
  EXPECT_TRUE(std::isnan(CorrelationOfDifferences({1, 2, 3}).value));
}

// A simulation of 20 000 draws accuses 5 in 10 000 at most; of 1000 that is
// 0.5, and 6 or more come once in 70 000 such tests.
TEST(LooksSmoothed, AccusesNoIndependentValues) {
  for (const size_t count : {51, 60, 80, 100, 200}) {
    EXPECT_LE(SmoothedOf(1000, count, 0), 5) << count;
  }
}

// The same simulation finds 0.50, 0.93 and 0.96 of 200 values; of 400 draws
// four standard deviations of those shares are 0.10, 0.05 and 0.04.
TEST(LooksSmoothed, FindsExponentialMeans) {
  EXPECT_GE(SmoothedOf(400, 200, 0.9), 250);
  EXPECT_GE(SmoothedOf(400, 200, 0.99), 345);
  EXPECT_GE(SmoothedOf(400, 1000, 0.9), 360);
}

// Batches of shards that were not shuffled resemble their neighbours, as an
// exponential mean of the same weight does.
TEST(LooksSmoothed, AccusesNoBatchesThatResembleTheirNeighbours) {
  for (const size_t count : {100, 200, 400}) {
    EXPECT_LE(SmoothedOf(400, count, 0.4), 8) << count;
    EXPECT_LE(SmoothedOf(400, count, 0.5), 12) << count;
  }
}

// Of 4000 draws of 200 values 3, 8 and 4 were accused; of 400 that is 0.8 at
// most, and 6 or more come once in 5000 such tests. By the correlation of all
// differences alone 380 and more are.
TEST(LooksSmoothed, AccusesNoSpikesHumpsAndSteps) {
  const auto accused = [](auto factor) {
    int found = 0;
    for (uint64_t seed = 1; seed <= 400; ++seed) {
      Series series = Losses(200, seed, 0);
      for (int i = 0; i < 200; ++i) {
        series.value[static_cast<size_t>(i)] *= factor(i);
      }
      found += LooksSmoothed(series) ? 1 : 0;
    }
    return found;
  };
  EXPECT_LE(accused([](int i) {
              return i >= 140 && i < 143 ? 1 + 0.1 * (143 - i) : 1;
            }),
            5);
  EXPECT_LE(accused([](int i) { return i > 110 && i < 140 ? 1.3 : 1; }), 5);
  EXPECT_LE(accused([](int i) { return i > 120 ? 1.44 : 1; }), 5);
  // Spikes of ten steps, and harder batches in four of eight.
  EXPECT_LE(accused([](int i) {
              return 1 + 0.3 * std::pow(0.7, i % 60 < 10 ? i % 60 : 100);
            }),
            5);
  EXPECT_LE(accused([](int i) { return i % 8 < 4 ? 1.03 : 1; }), 5);
}

TEST(LooksSmoothed, SaysWhenValuesAreTooFew) {
  EXPECT_FALSE(CanTellSmoothing(Losses(79, 1, 0)));
  EXPECT_TRUE(CanTellSmoothing(Losses(80, 1, 0)));
}

TEST(Findings, NameALossThatChangesItsName) {
  ForeignRun run;
  run.Of("loss").Add(1, 5);
  run.Of("moe_loss").Add(1, 1);
  run.Of("main_model_loss").Add(2, 4);
  run.Of("moe_loss").Add(2, 1);
  run.Finish();
  EXPECT_THAT(FindingsOf(run),
              testing::ElementsAre(testing::StartsWith(
                  "loss: its last value is of step 1, and main_model_loss "
                  "begins at step 2")));
}

TEST(ForeignRun, MissesTheLossesOfLostLines) {
  const auto missing = [](const std::vector<int64_t>& steps) {
    ForeignRun run;
    for (const int64_t step : steps) run.Of("loss").Add(step, 5);
    run.Finish();
    return run.without_loss;
  };
  EXPECT_THAT(missing({1, 2, 3, 4, 7, 8, 9, 10}), testing::ElementsAre(5, 6));
  EXPECT_THAT(missing({1, 10, 20, 30, 50, 60, 70, 80}),
              testing::ElementsAre(40));
  // Another distance from step 4 on, and points that were left out anywhere.
  EXPECT_THAT(missing({1, 2, 3, 4, 14, 24, 34, 44}), testing::IsEmpty());
  EXPECT_THAT(missing({1, 2, 5, 6, 8, 11, 12, 17}), testing::IsEmpty());
}

TEST(Names, OfRatesAndNormsAreKnownByTheirWords) {
  for (const char* name :
       {"optim/total_grad_norm", "actor/grad_norm", "total_norm", "gnorm",
        "learning/grad_norm", "GradNorm", "gradnorm", "l2_grad_norm",
        "grad_norm_clipped", "grads/norm", "g_norm", "grad_2.0_norm_total",
        "l2_norm/grad/global", "train_grad_norm", "train/gradientNorm"}) {
    EXPECT_EQ(FindName(name).quantity, Quantity::kGradNorm) << name;
  }
  for (const char* name :
       {"optim/learning_rate_group0", "actor/lr", "lr_0", "optimizer/lr", "LR",
        "Learning Rate", "learningRate", "train_lr", "pg0_lr", "lr_actor",
        "lr-AdamW/pg1", "lr_scheduler/lr", "Train/Samples/lr", "base_lr"}) {
    EXPECT_EQ(FindName(name).quantity, Quantity::kLearningRate) << name;
  }
  // Of a part that may be frozen, of no gradient, and of no rate.
  for (const char* name :
       {"embedding/grad_norm", "norm_0", "actor/loss", "grad_norm/layers.0.w",
        "weight_norm", "max_grad_norm", "grad-norm vs samples", "lr_warmup",
        "min_lr", "lr_decay_ratio", "learning-rate vs samples", "clrs",
        "error rate"}) {
    EXPECT_EQ(FindName(name).quantity, Quantity::kOther) << name;
  }
}

// A frozen part has a rate of 0 beside others that train; and a rate that was
// asked for is none that was used.
TEST(Names, OfSeveralRatesGiveTheOneThatTrains) {
  ForeignRun run;
  for (int64_t step = 1; step <= 3; ++step) {
    run.Of("base_lr").Add(step, 1);
    run.Of("lr-AdamW/pg1").Add(step, 0);
    run.Of("lr-AdamW/pg2").Add(step, 1e-4);
  }
  EXPECT_EQ(run.Main(Quantity::kLearningRate)->name, "lr-AdamW/pg2");
}

}  // namespace
}  // namespace isoloss::foreign::foreign_run_test
