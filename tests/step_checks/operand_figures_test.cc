// Figures of operands: known answers, and a log whose figures are wrong.
#include "isoloss/step_checks/operand_figures.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "isoloss/step_checks/log_check.h"
#include "isoloss/step_checks/probe.h"
#include "step_checks/trial.h"

namespace isoloss::step_checks::operand_figures_test {
namespace {

using formats::Quantization;

Quantization E4m3(formats::Cell cell) {
  return {.element = &formats::FormatByName("e4m3"),
          .scale_rule = formats::ScaleRule::kTe,
          .scale_format = formats::ScaleFormat::kFp32,
          .cell = cell};
}

RecordedTensor Operand(size_t rows, const std::vector<float>& values) {
  RecordedTensor operand;
  operand.values.Resize(rows, values.size() / rows);
  std::ranges::copy(values, operand.values.data());
  operand.quantized_rowwise = operand.quantized_columnwise = true;
  return operand;
}

OperandFigures Figures(const RecordedTensor& operand, bool down) {
  return FiguresOf(operand, SegmentsOf(operand, nullptr), down);
}

// The scale of the tensor is 448 / 4 = 112, 2^-20 times which is less than half
// of the smallest E4M3, 2^-9. 1, 2 and 4 times 112 are 7 x 2^n.
TEST(OperandFigures, AreOfOneScale) {
  RecordedTensor operand = Operand(2, {1, 2, -4, 0x1p-20f, NAN, 0});
  operand.rowwise = E4m3({0, 0});
  operand.rowwise.non_finite = formats::NonFinitePolicy::kTe;

  const OperandFigures figures = Figures(operand, /*down=*/false);

  EXPECT_EQ(figures.scale_min, static_cast<double>(1.0f / 112.0f));
  EXPECT_EQ(figures.scale_max, figures.scale_min);
  EXPECT_EQ(figures.pairs, 5);
  EXPECT_EQ(figures.underflows, 1);
  EXPECT_EQ(figures.saturated, 0);
  EXPECT_EQ(figures.nan_scales, 0);
  EXPECT_EQ(figures.squares, 21 + 0x1p-40);
  EXPECT_TRUE(std::isnan(figures.Spread()));
}

TEST(OperandFigures, SaturateWhereTheHistoryIsSmaller) {
  RecordedTensor operand = Operand(1, {1, 2, -4});
  operand.rowwise = E4m3({0, 0});
  operand.rowwise.scaling = formats::Scaling::kDelayed;
  operand.rowwise.history = 4;
  operand.rowwise_states.resize(1);
  operand.rowwise_states[0].common.history = 2.0f;

  const OperandFigures figures = Figures(operand, /*down=*/false);

  EXPECT_EQ(figures.scale_min, static_cast<double>(1.0f / 224.0f));
  EXPECT_EQ(figures.saturated, 1);
}

// Each column is a cell, and the NaN spoils that of the second one.
TEST(OperandFigures, AreOfColumnsIfTheseAreQuantised) {
  RecordedTensor operand = Operand(2, {7, NAN, 448, 1});
  operand.columnwise = E4m3({1, 0});

  const OperandFigures figures = Figures(operand, /*down=*/true);

  EXPECT_EQ(figures.nan_scales, 1);
  EXPECT_EQ(figures.scale_min, 1.0);
  EXPECT_EQ(figures.pairs, 2);
  EXPECT_EQ(figures.errors, 0.0);
}

// 16 ones are 4 and zeros after H / 4; three ones are filled up to sixteen.
TEST(OperandFigures, CountNoElementThatATransformAdds) {
  RecordedTensor operand = Operand(1, {1, 1, 1});
  operand.rowwise = E4m3({1, 32});
  operand.rowwise.transform = formats::Transform::kHadamard16;

  const OperandFigures figures = Figures(operand, /*down=*/false);

  EXPECT_EQ(figures.pairs, 3);
  EXPECT_EQ(figures.squares, 3.0);  // H / 4 is orthogonal
}

// Along rows 1 becomes 0 beside 2^17. Down columns 1 is announced, and 0 comes.
TEST(OperandFigures, CompareASecondQuantisationWithTheAnnounced) {
  RecordedTensor operand = Operand(1, {1, 0x1p17f});
  operand.rowwise = operand.columnwise = E4m3({1, 0});
  operand.rowwise.element = &formats::FormatByName("e2m1");

  EXPECT_EQ(Figures(operand, /*down=*/true).underflows, 0);
  operand.columnwise_again = true;
  EXPECT_EQ(Figures(operand, /*down=*/true).underflows, 1);
}

TEST(OperandFigures, HaveBytesAndPlacesOfMxBlocks) {
  std::vector<float> values(40, 1.0f);
  values[5] = 448.0f;
  RecordedTensor operand = Operand(1, values);
  operand.rowwise = {&formats::FormatByName("e4m3")};

  const OperandFigures figures = Figures(operand, /*down=*/false);

  EXPECT_EQ(figures.bytes[127], 1);      // 448 / 448
  EXPECT_EQ(figures.bytes[127 - 8], 1);  // 1 / 448, rounded up
  EXPECT_EQ(figures.scale_min, 127 - 8);
  EXPECT_EQ(figures.scale_max, 127);
  EXPECT_EQ(figures.places[5], 1);  // eight elements are no full block
  EXPECT_EQ(figures.Spread(), 0.0);
}

/// Statistics of one direction begin and end so.
constexpr size_t kFirst = runlog::kStat_underflows_num;
constexpr size_t kLast = runlog::kStat_block_argmax_spread;
constexpr size_t kColumnwise = runlog::kStat_underflows_num_columnwise - kFirst;

/// Elements of the log's statistics that are not explained if every statistic
/// of one tensor's quantisation is a little off, and a byte of both histograms.
int64_t OthersOfSpoiltLog(const std::string& recipe,
                          const std::string& tensor) {
  train::Experiment experiment = SmallTrial();
  experiment.arms.resize(1);
  experiment.arms[0].Use(precision::RecipeByName(recipe));
  const corpus::Corpus corpus = CorpusOf(experiment);
  Executor executor(1);
  ProbeOptions options = {.steps = 1, .cases = {"plain"}};
  options.train = [&](const train::Experiment& probed, const train::Arm& arm,
                      uint64_t seed, const corpus::Corpus& text,
                      Executor& threads, const train::RunHooks& hooks) {
    train::RunHooks lying = hooks;
    lying.on_rows = [&](const runlog::RunLog& rows) {
      runlog::RunLog spoilt = rows;
      const auto place =
          static_cast<size_t>(std::ranges::find(spoilt.tensors.names, tensor) -
                              spoilt.tensors.names.begin());
      for (size_t i = kFirst; i <= kLast; ++i) {
        for (const size_t statistic : {i, i + kColumnwise}) {
          if (spoilt.tensors.statistics[statistic].empty()) continue;
          double& value = spoilt.tensors.statistics[statistic].at(place);
          value = std::isfinite(value) ? value * (1 + 1e-6) + 1e-6 : 7.0;
        }
      }
      for (auto* histogram : {&spoilt.tensors.e8m0_histogram,
                              &spoilt.tensors.e8m0_histogram_columnwise}) {
        if (!histogram->empty()) ++histogram->at(place * 256 + 9);
      }
      hooks.on_rows(spoilt);
    };
    return train::TrainRun(probed, arm, seed, text, threads, lying);
  };
  const runlog::ProbeLog log =
      ProbeArm(experiment, experiment.arms[0], 1, corpus, executor, options);
  int64_t others = 0;
  for (size_t i = 0; i < log.oracle.other.size(); ++i) {
    others += log.oracle.other[i];
    if (log.oracle.other[i] == 0) continue;
    EXPECT_EQ(log.tensors[static_cast<size_t>(log.oracle.tensor[i])],
              std::string(runlog::kLogPrefix) + "/tensors/statistics");
  }
  return others;
}

TEST(OperandFigures, AreEachHeldAgainstTheLog) {
  constexpr int64_t kBothDirections = 2 * (kLast - kFirst + 1) + 2;
  const std::string first = "layers.0.attention.wo";
  for (const char* recipe :
       {"te_fp8_delayed", "te_nvfp4", "deepseek_v3_fp8", "te_mxfp8"}) {
    for (const char* tensor : {"_activation", "_weight", "_gradient"}) {
      EXPECT_EQ(OthersOfSpoiltLog(recipe, first + tensor), kBothDirections)
          << recipe << " " << tensor;
    }
  }
}

}  // namespace
}  // namespace isoloss::step_checks::operand_figures_test
