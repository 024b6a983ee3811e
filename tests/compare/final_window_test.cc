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
