#include "isoloss/foreign/align.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <optional>
#include <vector>

#include "isoloss/base/error.h"

namespace isoloss::foreign::align_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

/// A loss of 10 - step at each.
runlog::RunLog LogAt(const std::vector<int64_t>& steps,
                     int64_t tokens_per_step = 0) {
  runlog::RunLog log;
  log.provenance.origin.format = "csv";
  log.provenance.complete = true;
  log.provenance.steps_planned = steps.back();
  log.steps.step = steps;
  for (const int64_t step : steps) {
    log.steps.loss_nats.push_back(10 - static_cast<double>(step));
    if (tokens_per_step == 0) continue;
    log.steps.tokens_seen.push_back(step * tokens_per_step);
  }
  return log;
}

void AlignBoth(runlog::RunLog& a, runlog::RunLog& b,
               const AlignOptions& options = {}) {
  const std::vector<runlog::RunLog*> logs = {&a, &b};
  Align(logs, options);
}

TEST(Align, KeepsTheStepsThatAllHave) {
  runlog::RunLog a = LogAt({1, 2, 3, 4, 5, 6});
  runlog::RunLog b = LogAt({2, 4, 6});
  AlignBoth(a, b);
  EXPECT_THAT(a.steps.step, ElementsAre(2, 4, 6));
  EXPECT_THAT(a.steps.loss_nats, ElementsAre(8, 6, 4));
  EXPECT_THAT(b.steps.loss_nats, ElementsAre(8, 6, 4));
  EXPECT_TRUE(a.provenance.complete);
  ASSERT_THAT(a.events, SizeIs(1));
  EXPECT_THAT(a.events[0].text, HasSubstr("3 of its 6 steps"));
  EXPECT_THAT(b.events, IsEmpty());
}

// What was cut off must not pass for the end of a run.
TEST(Align, MarksALogThatEndsEarly) {
  runlog::RunLog a = LogAt({10, 20, 30, 40});
  runlog::RunLog b = LogAt({10, 20, 30});
  AlignBoth(a, b);
  EXPECT_TRUE(a.provenance.complete);
  EXPECT_FALSE(b.provenance.complete);
  EXPECT_EQ(b.provenance.steps_planned, 40);
}

// Every tenth step up to 95, and every step up to 99: both are whole.
TEST(Align, TakesTheDistanceOfStepsForTheEnd) {
  runlog::RunLog a = LogAt({75, 85, 95});
  runlog::RunLog b = LogAt({75, 80, 85, 90, 95, 99});
  AlignBoth(a, b);
  EXPECT_TRUE(a.provenance.complete);
  EXPECT_EQ(b.provenance.steps_planned, 95);
}

TEST(Align, CutsAllAtAStep) {
  runlog::RunLog a = LogAt({10, 20, 30, 40});
  runlog::RunLog b = LogAt({10, 20, 30});
  a.eval.step = {0, 15, 40};
  a.eval.loss_nats = {3, 2, 1};
  b.eval = a.eval;
  AlignBoth(a, b, {.until = 30});
  EXPECT_TRUE(b.provenance.complete);
  EXPECT_THAT(a.steps.step, ElementsAre(10, 20, 30));
  EXPECT_THAT(a.eval.step, ElementsAre(0, 15));
  EXPECT_THAT(a.eval.loss_nats, ElementsAre(3, 2));
}

TEST(Align, ByTokensCountsTheFirstLogsSteps) {
  runlog::RunLog a = LogAt({1, 2, 3, 4}, 200);
  runlog::RunLog b = LogAt({2, 4, 6, 8}, 100);
  AlignBoth(a, b, {.by = AlignBy::kTokens});
  EXPECT_THAT(b.steps.step, ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(b.steps.tokens_seen, ElementsAre(200, 400, 600, 800));
  EXPECT_THAT(b.steps.loss_nats, ElementsAre(8, 6, 4, 2));
}

// By tokens, too, a run that crashed is not cut to where it did.
TEST(Align, ByTokensMarksALogThatEndsEarly) {
  runlog::RunLog a = LogAt({1, 2, 3, 4}, 200);
  runlog::RunLog b = LogAt({2, 4, 6}, 100);
  AlignBoth(a, b, {.by = AlignBy::kTokens});
  EXPECT_TRUE(a.provenance.complete);
  EXPECT_FALSE(b.provenance.complete);
}

TEST(Align, KeepsInMindWhereANormWasZero) {
  runlog::RunLog a = LogAt({1, 2, 3});
  runlog::RunLog b = LogAt({1, 2, 3});
  b.steps.grad_norm = {1, 0, 0};
  AlignBoth(a, b);
  EXPECT_THAT(b.steps.grad_norm, IsEmpty());
  ASSERT_THAT(b.told.idle, SizeIs(1));
  EXPECT_THAT(b.told.idle[0].value, ElementsAre(1, 0, 0));
}

// Steps that meet by chance are no curve.
TEST(Align, RefusesASliver) {
  runlog::RunLog a = LogAt({1, 11, 21, 31});
  runlog::RunLog b = LogAt({1, 10, 20, 30});
  EXPECT_THROW(AlignBoth(a, b), Error);
  // Most, but not the end.
  runlog::RunLog c = LogAt({10, 20, 30, 40, 52});
  runlog::RunLog d = LogAt({10, 20, 30, 45, 55});
  EXPECT_THROW(AlignBoth(c, d), Error);
}

TEST(Align, KeepsInMindWhatWasNoNumber) {
  runlog::RunLog a = LogAt({1, 2, 3, 4});
  runlog::RunLog b = LogAt({2, 4});
  a.steps.loss_nats[2] = std::nan("");
  a.steps.grad_norm = {1, 1, 1, 1};
  AlignBoth(a, b);
  ASSERT_FALSE(a.events.empty());
  EXPECT_EQ(a.events[0].kind, "nonfinite");
  EXPECT_THAT(a.events[0].text, HasSubstr("step 3"));
}

TEST(Align, RefusesMeansOverUnequalIntervals) {
  runlog::RunLog a = LogAt({10, 20, 30, 40});
  runlog::RunLog b = LogAt({20, 40});
  for (runlog::RunLog* log : {&a, &b}) {
    log->provenance.origin.loss_values =
        static_cast<int64_t>(runlog::LossValues::kOfInterval);
  }
  EXPECT_THROW(AlignBoth(a, b), Error);
}

TEST(Align, KeepsThatARunWasNotWhole) {
  runlog::RunLog a = LogAt({1, 2, 3});
  runlog::RunLog b = LogAt({1, 2, 3});
  b.provenance.steps_planned = 100;
  AlignBoth(a, b);
  EXPECT_TRUE(a.provenance.complete);
  EXPECT_FALSE(b.provenance.complete);
}

TEST(Align, DropsColumnsThatOneLogLacks) {
  runlog::RunLog a = LogAt({1, 2}, 100);
  runlog::RunLog b = LogAt({1, 2});
  a.steps.grad_norm = {1, 1};
  AlignBoth(a, b);
  EXPECT_THAT(a.steps.grad_norm, IsEmpty());
  EXPECT_THAT(a.steps.tokens_seen, IsEmpty());
}

TEST(Align, RefusesWhatHasNothingInCommon) {
  runlog::RunLog a = LogAt({1, 3});
  runlog::RunLog b = LogAt({2, 4});
  EXPECT_THROW(AlignBoth(a, b), Error);
  EXPECT_THROW(AlignBoth(a, b, {.by = AlignBy::kTokens}), Error);
  runlog::RunLog c = LogAt({10, 20});
  runlog::RunLog d = LogAt({10, 20});
  EXPECT_THROW(AlignBoth(c, d, {.until = 5}), Error);
}

// Against a copy of itself, too.
TEST(Align, HoldsALogAgainstItsOwnPlan) {
  const auto both = [](std::optional<int64_t> until) {
    runlog::RunLog a = LogAt({1, 2, 3, 4, 5});
    a.provenance.steps_planned = 12;
    runlog::RunLog b = a;
    AlignBoth(a, b, {.until = until});
    EXPECT_EQ(a.provenance.complete, b.provenance.complete);
    return a.provenance;
  };
  EXPECT_FALSE(both({}).complete);
  EXPECT_EQ(both({}).steps_planned, 12);
  for (const int64_t until : {3, 5}) {
    EXPECT_TRUE(both(until).complete) << until;
    EXPECT_EQ(both(until).steps_planned, until);
  }
  // It did not get so far.
  EXPECT_FALSE(both(8).complete);
  EXPECT_EQ(both(8).steps_planned, 8);
}

TEST(Align, LeavesOutWhatIsToldOfBatchesThatAreMeantToDiffer) {
  runlog::RunLog a = LogAt({1, 2});
  a.told.numbers = {{"world size", {0}, {8}}};
  runlog::RunLog b = LogAt({1, 2});
  AlignBoth(a, b);
  EXPECT_THAT(a.told.numbers, SizeIs(1));
  AlignBoth(a, b, {.other_batches = true});
  EXPECT_THAT(a.told.numbers, IsEmpty());
  EXPECT_THAT(a.events, SizeIs(1));
  EXPECT_THAT(b.events, IsEmpty());
}

}  // namespace
}  // namespace isoloss::foreign::align_test
