#include "isoloss/compare/final_window.h"

#include <gtest/gtest.h>

#include <cmath>

#include "support/synthetic_runs.h"

namespace isoloss::compare::final_window_test {
namespace {

TEST(WindowLength, RoundsUpAndIsNeverEmpty) {
  EXPECT_EQ(WindowLength(300, 0.2), 60);
  EXPECT_EQ(WindowLength(301, 0.2), 61);
  EXPECT_EQ(WindowLength(1, 0.2), 1);
  EXPECT_EQ(WindowLength(10, 1.0), 10);
  EXPECT_EQ(WindowLength(0, 0.2), 0);
}

TEST(RowsOfWindow, CountsTheStepsThatRowsStandFor) {
  const auto every = [](int64_t step, int64_t from, int64_t to,
                        std::vector<int64_t> steps = {}) {
    for (int64_t at = from; at <= to; at += step) steps.push_back(at);
    return steps;
  };
  EXPECT_EQ(RowsOfWindow(every(1, 1, 301), 0.2), 61);
  EXPECT_EQ(RowsOfWindow(every(10, 10, 1000), 0.2), 20);
  EXPECT_EQ(RowsOfWindow(every(10, 1001, 1991), 0.2), 20);
  EXPECT_EQ(RowsOfWindow({{7}}, 0.2), 1);
  // Steps 1, 2, …, 900, 910, …, 1000: the last fifth are 10 rows of 10 steps
  // and 100 of one.
  const auto thinned = every(10, 910, 1000, every(1, 1, 900));
  EXPECT_EQ(RowsOfWindow(thinned, 0.2), 110);
  EXPECT_EQ(RowsOfWindow(thinned, 0.03), 3);
}

Run ShortRun(const char* arm, std::vector<double> loss) {
  compare::Run run;
  run.log.provenance.arm = arm;
  run.log.provenance.seed = 9;
  for (size_t i = 0; i < loss.size(); ++i) {
    run.log.steps.step.push_back(static_cast<int64_t>(i) + 1);
  }
  run.log.steps.loss_nats = std::move(loss);
  return run;
}

// Powers of two throughout, so that every result is exact. Gaps 0, -1, 0, 0.5;
// the window of 2 steps has relative differences 0 and 0.5 / 2.
TEST(CompareFinalWindow, MatchesHandComputedNumbers) {
  compare::Run baseline = ShortRun("a", {8, 4, 4, 2});
  compare::Run candidate = ShortRun("b", {8, 3, 4, 2.5});
  baseline.log.eval = {{0, 4}, {8, 4}, {}, 0};
  candidate.log.eval = {{0, 4}, {8, 5}, {}, 0};
  const Pairing pairing = PairBySeed("a", {&baseline}, "b", {&candidate});

  const FinalWindow window = CompareFinalWindow(pairing, 0.5);

  ASSERT_EQ(window.seeds.size(), 1);
  const SeedDifference& seed = window.seeds[0];
  EXPECT_EQ(window.first_step, 3);
  EXPECT_EQ(window.last_step, 4);
  EXPECT_EQ(window.held_out_step, 4);
  EXPECT_EQ(seed.seed, 9);
  EXPECT_EQ(seed.final_window, 0.125);
  EXPECT_EQ(seed.held_out, 0.25);
  EXPECT_EQ(seed.final_window_nats, 0.25);
  EXPECT_EQ(seed.last_100_nats, -0.125);
  EXPECT_EQ(seed.trajectory_rmse_nats, std::sqrt(1.25 / 4));
  EXPECT_EQ(seed.max_gap_nats, 1.0);
  EXPECT_EQ(seed.max_gap_step, 2);
}

// The window of half of the 8 steps are the rows of steps 4 and 8, which stand
// for 2 and 4 steps: (2 * 0.5 + 4 * 0.125) / 6 = 0.25.
TEST(CompareFinalWindow, WeighsRowsByTheStepsThatTheyStandFor) {
  compare::Run baseline = ShortRun("a", {8, 4, 4, 2});
  compare::Run candidate = ShortRun("b", {8, 4, 6, 2.25});
  for (compare::Run* run : {&baseline, &candidate}) {
    run->log.steps.step = {1, 2, 4, 8};
  }

  const FinalWindow window =
      CompareFinalWindow(PairBySeed("a", {&baseline}, "b", {&candidate}), 0.6);

  EXPECT_EQ(window.first_step, 4);
  EXPECT_EQ(window.seeds[0].final_window, 0.25);
  EXPECT_EQ(window.seeds[0].last_steps, 0.125);
}

TEST(CompareFinalWindow, HalvesTheLastSteps) {
  std::vector<double> losses(200, 1.0);
  const compare::Run baseline = ShortRun("a", losses);
  losses.back() = 2;
  const compare::Run candidate = ShortRun("b", losses);

  const FinalWindow window =
      CompareFinalWindow(PairBySeed("a", {&baseline}, "b", {&candidate}), 0.2);

  EXPECT_EQ(window.first_of_last_steps, 195);  // 3 % are 6 steps
  EXPECT_EQ(window.ends, (std::vector<int64_t>{198, 200}));
  EXPECT_EQ(window.seeds[0].ends, (std::vector<double>{1.0 / 3, 1}));
}

TEST(CompareFinalWindow, HasNoHeldOutDifferenceWithoutEvaluations) {
  const compare::Run baseline = ShortRun("a", {4, 2});
  const compare::Run candidate = ShortRun("b", {4, 2.5});

  const FinalWindow window =
      CompareFinalWindow(PairBySeed("a", {&baseline}, "b", {&candidate}), 0.5);

  EXPECT_FALSE(window.held_out_step.has_value());
  EXPECT_FALSE(window.seeds[0].held_out.has_value());
}

TEST(PairBySeed, PairsBySeedWhateverTheOrder) {
  const auto runs = test_support::SyntheticExperiment({0.1, 0.2, 0.3});
  const Pairing pairing = PairBySeed("bf16", {&runs[2], &runs[0], &runs[1]},
                                     "mxfp8", {&runs[4], &runs[5], &runs[3]});

  ASSERT_EQ(pairing.pairs.size(), 3);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(pairing.pairs[i].seed, static_cast<int64_t>(i) + 1);
    EXPECT_EQ(pairing.pairs[i].baseline, &runs[i]);
    EXPECT_EQ(pairing.pairs[i].candidate, &runs[3 + i]);
  }
}

}  // namespace
}  // namespace isoloss::compare::final_window_test
