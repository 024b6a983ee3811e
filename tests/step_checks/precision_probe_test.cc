#include "isoloss/step_checks/precision_probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "isoloss/base/error.h"
#include "isoloss/formats/format.h"
#include "step_checks/recorded_run.h"

namespace isoloss::step_checks::precision_probe_test {
namespace {

using isoloss::test_support::CorpusOf;
using isoloss::test_support::RecordedRun;
using isoloss::test_support::TinyExperiment;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

RecordedTensor TensorOf(size_t rows, size_t cols, std::vector<float> values) {
  RecordedTensor tensor;
  tensor.name = "x_output";
  tensor.values.Resize(rows, cols);
  std::copy(values.begin(), values.end(), tensor.values.data());
  return tensor;
}

/// Of experiment.arms: 0 bf16, 1 mxfp8, 2 fp32.
PrecisionFindings Probe(const train::Experiment& experiment, size_t candidate,
                        std::vector<int64_t> steps, size_t reference = 0,
                        const train::RunHooks& hooks = {}) {
  Executor executor(1);
  return ProbePrecision(experiment, experiment.arms[candidate],
                        experiment.arms[reference], /*seed=*/1,
                        CorpusOf(experiment), steps, executor, hooks);
}

/// The row of a tensor at a step.
runlog::PrecisionRow RowOf(const PrecisionFindings& found, int64_t step,
                           const std::string& tensor) {
  const runlog::PrecisionColumns& rows = found.precision;
  for (size_t i = 0; i < rows.step.size(); ++i) {
    if (rows.step[i] != step ||
        found.tensors[static_cast<size_t>(rows.tensor[i])] != tensor) {
      continue;
    }
    return {.step = step,
            .tensor = rows.tensor[i],
            .relative_error = rows.relative_error[i],
            .gain = rows.gain[i],
            .worst_group_error = rows.worst_group_error[i],
            .saturated = rows.saturated[i],
            .underflows = rows.underflows[i]};
  }
  ADD_FAILURE() << tensor << " at step " << step;
  return {};
}

TEST(CompareTensors, GivesErrorGainAndWorstGroup) {
  RecordedTensor reference = TensorOf(3, 1, {3, 4, 0});
  RecordedTensor candidate = TensorOf(3, 1, {3, 6, 0});
  reference.begins = candidate.begins = {0, 1, 2, 3};

  const runlog::PrecisionRow row = CompareTensors(candidate, reference);

  EXPECT_DOUBLE_EQ(row.relative_error, 0.4);  // 2 / 5
  EXPECT_DOUBLE_EQ(row.gain, (9.0 + 24.0) / 25 - 1);
  EXPECT_DOUBLE_EQ(row.worst_group_error, 0.5);  // 2 / 4
  EXPECT_TRUE(std::isnan(row.saturated));
  EXPECT_TRUE(std::isnan(row.underflows));
}

TEST(CompareTensors, TakesThirtyTwoRowsAsAGroup) {
  RecordedTensor reference = TensorOf(64, 1, std::vector<float>(64, 1.0f));
  RecordedTensor candidate = TensorOf(64, 1, std::vector<float>(64, 1.0f));
  candidate.values(40, 0) = 9.0f;

  const runlog::PrecisionRow row = CompareTensors(candidate, reference);

  EXPECT_DOUBLE_EQ(row.relative_error, 1.0);                // 8 / sqrt(64)
  EXPECT_DOUBLE_EQ(row.worst_group_error, std::sqrt(2.0));  // 8 / sqrt(32)
}

TEST(CompareTensors, SaysWhatIsNotFiniteOrZero) {
  const RecordedTensor zero = TensorOf(1, 1, {0});
  const RecordedTensor one = TensorOf(1, 1, {1});
  const RecordedTensor nan = TensorOf(1, 1, {NAN});

  EXPECT_EQ(CompareTensors(zero, zero).relative_error, 0.0);
  EXPECT_TRUE(std::isinf(CompareTensors(one, zero).relative_error));
  EXPECT_TRUE(std::isnan(CompareTensors(nan, one).relative_error));
  EXPECT_TRUE(std::isnan(CompareTensors(nan, one).worst_group_error));
  EXPECT_TRUE(std::isnan(CompareTensors(one, nan).relative_error));
}

TEST(CompareTensors, CountsWhatIsNotMx) {
  // The scale is 448 / 448: 2^-11 is a quarter of the smallest E4M3.
  RecordedTensor tensor = TensorOf(1, 4, {448, 0x1p-11f, 1, 0});
  tensor.rowwise = {.element = &formats::FormatByName("e4m3"),
                    .scale_rule = formats::ScaleRule::kTe,
                    .scale_format = formats::ScaleFormat::kFp32,
                    .cell = {0, 0}};
  tensor.quantized_rowwise = true;

  const runlog::PrecisionRow row = CompareTensors(tensor, tensor);

  EXPECT_EQ(row.saturated, 0.0);
  EXPECT_EQ(row.underflows, 25.0);
  tensor.quantized_rowwise = false;
  EXPECT_TRUE(std::isnan(CompareTensors(tensor, tensor).underflows));
}

TEST(CompareTensors, CountsSaturationAndUnderflowOfTheCandidate) {
  // E4M3 with the floor rule: amax 480 has scale 2^0, above 448; the smallest
  // code is 2^-9.
  RecordedTensor tensor = TensorOf(2, 2, {480, 0x1p-11f, 1, 0});
  const RecordedTensor reference = TensorOf(2, 2, {480, 0, 1, 0});
  tensor.rowwise = {&formats::FormatByName("e4m3"), formats::ScaleRule::kFloor};
  tensor.columnwise = tensor.rowwise;
  tensor.quantized_rowwise = true;

  const runlog::PrecisionRow along_rows = CompareTensors(tensor, reference);
  tensor.quantized_rowwise = false;
  tensor.quantized_columnwise = true;
  tensor.values(0, 1) = 448;
  tensor.values(1, 0) = 0x1p-11f;
  const runlog::PrecisionRow down_columns = CompareTensors(tensor, reference);

  EXPECT_DOUBLE_EQ(along_rows.saturated, 25.0);
  EXPECT_DOUBLE_EQ(along_rows.underflows, 25.0);
  EXPECT_DOUBLE_EQ(down_columns.saturated, 25.0);
  EXPECT_DOUBLE_EQ(down_columns.underflows, 25.0);
}

TEST(CompareTensors, RejectsOtherExtents) {
  try {
    CompareTensors(TensorOf(1, 2, {1, 2}), TensorOf(2, 1, {1, 2}));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kShape);
    EXPECT_THAT(error.what(), HasSubstr("x_output is 1x2"));
  }
}

TEST(ProbePrecision, TheReferenceItselfIsEqual) {
  const PrecisionFindings found = Probe(TinyExperiment(), 0, {1, 3});

  EXPECT_THAT(found.precision.relative_error, Each(0.0));
  EXPECT_THAT(found.precision.worst_group_error, Each(0.0));
  EXPECT_THAT(found.routing_flips.step, ElementsAre(1, 3));
  EXPECT_THAT(found.routing_flips.layer, ElementsAre(0, 0));
  EXPECT_THAT(found.routing_flips.flip_share, Each(0.0));
  EXPECT_EQ(found.precision.step.size(), 2 * found.tensors.size());
}

TEST(ProbePrecision, MxFp8DiffersByItsFormat) {
  const PrecisionFindings found = Probe(TinyExperiment(), 1, {1, 4});

  for (const int64_t step : {1, 4}) {
    // Before anything is quantised.
    EXPECT_EQ(RowOf(found, step, "tok_embeddings_output").relative_error, 0.0);
    EXPECT_EQ(
        RowOf(found, step, "layers.0.attention_norm_output").relative_error,
        0.0);
    // E4M3 rounds each element by 2^-4 of it at most, 2^-5 / sqrt(3) of its
    // binade typically; of a product's two operands the errors add up.
    const auto row = RowOf(found, step, "layers.0.attention.wq_output");
    EXPECT_GT(row.relative_error, 0.01);
    EXPECT_LT(row.relative_error, 0.1);
    EXPECT_LT(std::fabs(row.gain), row.relative_error);
    EXPECT_GE(row.worst_group_error, row.relative_error);
    const auto operand = RowOf(found, step, "layers.0.attention.wq_activation");
    EXPECT_EQ(operand.saturated, 0.0);  // RCEIL never does
    EXPECT_GE(operand.underflows, 0.0);
    EXPECT_TRUE(std::isnan(RowOf(found, step, "lm_head_output").saturated));
  }
  for (const double share : found.routing_flips.flip_share) {
    EXPECT_GE(share, 0.0);
    EXPECT_LT(share, 0.5);
  }
}

TEST(ProbePrecision, AStepIsTheOneOfTheReferencesRun) {
  // Teacher forcing: step 4 of the pair begins where the reference's run is,
  // whatever was probed before.
  const train::Experiment experiment = TinyExperiment();
  const PrecisionFindings all = Probe(experiment, 1, {1, 2, 3, 4});
  const PrecisionFindings last = Probe(experiment, 1, {4});

  for (const std::string& tensor : last.tensors) {
    const runlog::PrecisionRow a = RowOf(all, 4, tensor);
    const runlog::PrecisionRow b = RowOf(last, 4, tensor);
    EXPECT_EQ(a.relative_error, b.relative_error) << tensor;
    EXPECT_EQ(a.worst_group_error, b.worst_group_error) << tensor;
  }
  EXPECT_EQ(all.routing_flips.flip_share.back(),
            last.routing_flips.flip_share.back());
}

TEST(ProbePrecision, HooksAreTheCandidates) {
  train::RunHooks hooks;
  hooks.before_update = [](int64_t /*step*/, model::ParameterSet& gradients) {
    Matrix<float>& values = gradients.ByName("norm.weight").values;
    for (size_t i = 0; i < values.size(); ++i) values.data()[i] *= 2;
  };

  const PrecisionFindings found = Probe(TinyExperiment(), 0, {2}, 0, hooks);

  EXPECT_DOUBLE_EQ(RowOf(found, 2, "norm_wgrad").gain, 1.0);
  EXPECT_DOUBLE_EQ(RowOf(found, 2, "norm_wgrad").relative_error, 1.0);
  EXPECT_EQ(RowOf(found, 2, "norm_weight").relative_error, 0.0);
  EXPECT_EQ(RowOf(found, 2, "lm_head_wgrad").relative_error, 0.0);
}

TEST(ProbePrecision, ForcedRoutingHasNoFlips) {
  const PrecisionFindings found =
      Probe(TinyExperiment({"routing.mode=forced_balance"}), 1, {1});

  EXPECT_TRUE(found.routing_flips.step.empty());
  EXPECT_FALSE(found.precision.step.empty());
}

TEST(ProbePrecision, WorksOnRanks) {
  const std::vector<std::string> ranks = {"parallel.ranks=2",
                                          "parallel.exchange=rank"};

  const PrecisionFindings found = Probe(TinyExperiment(ranks), 0, {1});

  EXPECT_THAT(found.precision.relative_error, Each(0.0));
}

TEST(ProbePrecision, RefusesWhatItCannotCompare) {
  const auto error_of = [](std::vector<int64_t> steps, size_t reference) {
    try {
      Probe(TinyExperiment(), 1, std::move(steps), reference);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kConfig);
      return std::string(error.what());
    }
    return std::string("no error");
  };

  EXPECT_THAT(error_of({2, 2}, 0), HasSubstr("step 2 follows step 2"));
  EXPECT_THAT(error_of({0}, 0), HasSubstr("ascend from 1"));
  EXPECT_THAT(error_of({7}, 0), HasSubstr("the run's 6"));
  EXPECT_THAT(error_of({1}, 1), HasSubstr("quantises"));
}

}  // namespace
}  // namespace isoloss::step_checks::precision_probe_test
