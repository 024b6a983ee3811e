#include "isoloss/compare/width_transfer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "support/expect_refused.h"

namespace isoloss::compare::width_transfer_test {
namespace {

using test_support::ExpectRefused;
using ::testing::ElementsAre;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

/// A run of two layers with two steps of statistics. The weights' SQNR is
/// `sqnr_db` on average over both, that of activations 1 dB less.
Run RunOfWidth(int64_t width, double sqnr_db,
               const std::string& arm = "mxfp8") {
  Run run;
  run.file = arm + std::to_string(width) + ".h5";
  run.log.provenance.arm = arm;
  runlog::TensorColumns& tensors = run.log.tensors;
  tensors.step = {1, 10};
  tensors.names = {"norm_weight", "layers.0.a_weight", "layers.12.a_weight",
                   "layers.0.a_activation", "loss_output"};
  tensors.count = 5;
  const auto elements = static_cast<double>(width);
  tensors.statistics[runlog::kStat_numel] = {elements, 1, 1, 1, 1,
                                             elements, 1, 1, 1, 1};
  tensors.statistics[runlog::kStat_sqnr] = {
      kNaN, sqnr_db - 3, sqnr_db + 3, sqnr_db - 1, kNaN,
      kNaN, sqnr_db - 2, sqnr_db + 2, sqnr_db - 1, kNaN};
  return run;
}

/// 20 dB + 0.5 dB for each doubling of the width, two runs 0.1 dB off.
std::vector<Run> Runs(double of_widest) {
  std::vector<Run> runs;
  for (const int64_t width : {128, 256, 512}) {
    const double mean = 20 + 0.5 * std::log2(static_cast<double>(width));
    runs.push_back(RunOfWidth(width, mean - 0.1));
    runs.push_back(RunOfWidth(width, mean + 0.1));
  }
  runs.push_back(RunOfWidth(2048, of_widest));
  return runs;
}

const OperandTransfer& Of(const WidthTransfer& transfer,
                          const std::string& name) {
  return *std::ranges::find(transfer.operands, name, &OperandTransfer::operand);
}

TEST(CompareWidths, PredictsAlongALine) {
  const WidthTransfer transfer = CompareWidths(Runs(26));

  EXPECT_EQ(transfer.width, 2048);
  EXPECT_THAT(transfer.small_widths, ElementsAre(128, 256, 512));
  EXPECT_THAT(transfer.steps, ElementsAre(1, 10));
  ASSERT_EQ(transfer.operands.size(), 2u);
  const OperandTransfer& weight = Of(transfer, "a_weight");
  EXPECT_DOUBLE_EQ(weight.measured, 26);
  EXPECT_NEAR(weight.nearest, 24.5, 1e-12);
  EXPECT_NEAR(weight.predicted, 25.5, 1e-12);
  // Six residuals of 0.1 with 4 degrees of freedom: 0.06 / 4. log2(2048) lies 3
  // above the mean of 7, 7, 8, 8, 9, 9, whose squares add up to 4. Student's t
  // of 0.975 and 4 is 2.776445.
  const double reach = 2.776445 * std::sqrt(0.06 / 4 * (1 + 1.0 / 6 + 9.0 / 4));
  EXPECT_NEAR(weight.upper, 25.5 + reach, 1e-6);
  EXPECT_NEAR(weight.lower, 25.5 - reach, 1e-6);
  EXPECT_TRUE(weight.inside());
  EXPECT_EQ(transfer.Inside(), 2u);
  EXPECT_NEAR(transfer.PredictedRmsDb(), 0.5, 1e-12);
  EXPECT_NEAR(transfer.NearestRmsDb(), 1.5, 1e-12);
}

TEST(CompareWidths, TellsWhatTheLineDoesNotForetell) {
  const WidthTransfer transfer = CompareWidths(Runs(26.2));
  EXPECT_EQ(transfer.Inside(), 0u);  // 0.7 dB off, 0.6286 are allowed
}

TEST(CompareWidths, TakesStepsAndOperandsThatAllHave) {
  std::vector<compare::Run> runs = Runs(26);
  runs[2].log.tensors.step = {1, 11};
  runs[3].log.tensors.names[3] = "layers.0.other_activation";

  const WidthTransfer transfer = CompareWidths(runs);

  EXPECT_THAT(transfer.steps, ElementsAre(1));
  ASSERT_EQ(transfer.operands.size(), 1u);
  EXPECT_EQ(transfer.operands[0].operand, "a_weight");
  ASSERT_EQ(transfer.left_out.size(), 2u);
  EXPECT_EQ(transfer.left_out[0].operand, "a_activation");
  EXPECT_EQ(transfer.left_out[0].missing, 1u);
  EXPECT_EQ(transfer.left_out[1].operand, "other_activation");
  EXPECT_EQ(transfer.left_out[1].missing, 6u);
}

TEST(CompareWidths, NamesOperandsThatAreInfinite) {
  std::vector<compare::Run> runs = Runs(26);
  EXPECT_TRUE(CompareWidths(runs).left_out.empty());
  for (const size_t run : {0, 6}) {
    runs[run].log.tensors.statistics[runlog::kStat_sqnr][3] =
        std::numeric_limits<double>::infinity();
  }

  const WidthTransfer transfer = CompareWidths(runs);

  EXPECT_EQ(transfer.operands.size(), 1u);
  ASSERT_EQ(transfer.left_out.size(), 1u);
  EXPECT_EQ(transfer.left_out[0].operand, "a_activation");
  EXPECT_EQ(transfer.left_out[0].infinite, 2u);
  EXPECT_EQ(transfer.left_out[0].missing, 0u);
}

TEST(CompareWidths, PredictsTheMeanOfSeveralWideRuns) {
  std::vector<compare::Run> runs = Runs(26);
  for (const double more : {25.9, 26.1, 26.4}) {
    runs.push_back(RunOfWidth(2048, more));
  }

  const WidthTransfer transfer = CompareWidths(runs);

  EXPECT_EQ(transfer.logs, 10u);
  EXPECT_EQ(transfer.wide_logs, 4u);
  const OperandTransfer& weight = Of(transfer, "a_weight");
  EXPECT_NEAR(weight.measured, 26.1, 1e-12);
  EXPECT_NEAR(weight.predicted, 25.5, 1e-12);
  // As for one run, but the spread of a mean of 4.
  const double reach =
      2.776445 * std::sqrt(0.06 / 4 * (1.0 / 4 + 1.0 / 6 + 9.0 / 4));
  EXPECT_NEAR(weight.upper, 25.5 + reach, 1e-6);
  EXPECT_FALSE(weight.inside()) << "0.6 dB off, 0.5553 are allowed";
}

TEST(CompareWidths, CountsEqualOperandsOnce) {
  std::vector<compare::Run> runs = Runs(26);
  for (compare::Run& run : runs) {
    auto& statistics = run.log.tensors.statistics;
    statistics[runlog::kStat_sqnr_columnwise] = statistics[runlog::kStat_sqnr];
  }
  EXPECT_EQ(CompareWidths(runs).operands.size(), 2u);
  runs[0].log.tensors.statistics[runlog::kStat_sqnr_columnwise][3] += 0.1;
  EXPECT_EQ(CompareWidths(runs).operands.size(), 3u);
}

TEST(CompareWidths, RefusesWhatItCantCompare) {
  ExpectRefused([] { CompareWidths({}); }, "no log");
  std::vector<compare::Run> runs = Runs(26);
  runs.push_back(RunOfWidth(2048, 26, "bf16"));
  ExpectRefused([&] { CompareWidths(runs); }, "bf16");
  runs = Runs(26);
  runs.erase(runs.begin(), runs.begin() + 2);
  ExpectRefused([&] { CompareWidths(runs); }, "number of widths is 2");
  runs = Runs(26);
  runs[1].log.tensors = {};
  ExpectRefused([&] { CompareWidths(runs); }, "mxfp8128.h5");
  runs = Runs(26);
  for (compare::Run& run : runs) {
    run.log.tensors.statistics[runlog::kStat_sqnr].clear();
  }
  ExpectRefused([&] { CompareWidths(runs); }, "no quantised operand");
}

}  // namespace
}  // namespace isoloss::compare::width_transfer_test
