#include "isoloss/compare/largest_differences.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace isoloss::compare::largest_differences_test {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

runlog::RunLog Log() {
  runlog::RunLog log;
  log.parameters = {.step = {1, 2},
                    .count = 3,
                    .names = {"u", "v", "w"},
                    .grad_norm = {1, 2, 4, 1, 2, 4},
                    .update_ratio = {1, 1, 1, 1, 1, 1}};
  log.tensors.step = {2};
  log.tensors.count = 1;
  log.tensors.names = {"t_output"};
  log.tensors.statistics[runlog::kStat_l2_norm] = {8};
  return log;
}

TEST(LargestDifferences, RanksByTheWorstStepOfEachName) {
  auto b = Log();
  b.parameters.grad_norm = {1, 2, 4, 1.25, 3, 4};

  const auto largest = LargestParameterDifferences(Log(), b, 5);

  ASSERT_THAT(largest, SizeIs(2));
  EXPECT_EQ(largest[0].name, "v");
  EXPECT_EQ(largest[0].quantity, "grad_norm");
  EXPECT_EQ(largest[0].step, 2);
  EXPECT_EQ(largest[0].a, 2);
  EXPECT_EQ(largest[0].b, 3);
  EXPECT_EQ(largest[0].relative, 1.0 / 3);
  EXPECT_EQ(largest[1].name, "u");
  EXPECT_EQ(largest[1].relative, 0.2);
}

TEST(LargestDifferences, NanAgainstANumberComesFirst) {
  auto b = Log();
  b.parameters.grad_norm[2] = std::nan("");
  b.parameters.update_ratio[0] = -1;  // relative 2

  const auto largest = LargestParameterDifferences(Log(), b, 1);

  ASSERT_THAT(largest, SizeIs(1));
  EXPECT_EQ(largest[0].name, "w");
  EXPECT_TRUE(std::isinf(largest[0].relative));
}

TEST(LargestDifferences, TensorsAreRankedByTheirStatistics) {
  auto b = Log();
  b.tensors.statistics[runlog::kStat_l2_norm] = {10};
  b.tensors.statistics[runlog::kStat_std] = {3};  // A lacks it

  const auto largest = LargestTensorDifferences(Log(), b, 5);

  ASSERT_THAT(largest, SizeIs(1));
  EXPECT_EQ(largest[0].quantity, "l2_norm");
  EXPECT_EQ(largest[0].relative, 0.2);
}

TEST(LargestDifferences, WhatWasNotLoggedAtAStepIsPassedOver) {
  auto a = Log();
  auto b = Log();
  a.tensors.statistics[runlog::kStat_numel] = {64};
  b.tensors.statistics[runlog::kStat_numel] = {std::nan("")};
  b.tensors.statistics[runlog::kStat_l2_norm] = {std::nan("")};

  EXPECT_THAT(LargestTensorDifferences(a, b, 5), IsEmpty());

  b.tensors.statistics[runlog::kStat_numel] = {64};
  EXPECT_THAT(LargestTensorDifferences(a, b, 5), SizeIs(1));
}

TEST(LargestDifferences, EqualLogsHaveNone) {
  EXPECT_THAT(LargestParameterDifferences(Log(), Log(), 5), IsEmpty());
  EXPECT_THAT(LargestTensorDifferences(Log(), Log(), 5), IsEmpty());
  EXPECT_THAT(LargestTensorDifferences(Log(), {}, 5), IsEmpty());
}

}  // namespace
}  // namespace isoloss::compare::largest_differences_test
