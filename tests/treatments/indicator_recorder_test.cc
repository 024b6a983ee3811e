#include "isoloss/treatments/indicator_recorder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <optional>
#include <string_view>
#include <vector>

#include "isoloss/base/atomic_file.h"
#include "isoloss/base/text_file.h"
#include "isoloss/corpus/corpus.h"
#include "isoloss/estimators/indicator.h"
#include "isoloss/estimators/indicator_record.h"
#include "isoloss/train/batch_shares.h"
#include "isoloss/train/trainer.h"
#include "support/temporary_folder.h"

namespace isoloss::treatments::indicator_recorder_test {
namespace {

using estimators::Indicator;
using estimators::IndicatorRecord;

constexpr std::string_view kRecordedText = R"(name = "trial"
[model]
vocab_size = 23
num_experts = 4
[data]
source = "synthetic"
sequence_length = 16
noise_levels = 4
tokens = 4000
[train]
steps = 6
sequences_per_batch = 2
seeds = [1]
warmup_steps = 2
[log]
eval_sequences = 4
statistics_first = 6
[arms.bf16]
recipe = "bf16"
[arms.mxfp8]
recipe = "mxfp8_rceil"
)";

double ValueOf(const IndicatorRecord& record, Indicator indicator) {
  return record.values[static_cast<size_t>(indicator)];
}

class IndicatorRecorderTest : public ::testing::Test {
 protected:
  runlog::RunLog Train(size_t arm, const train::RunHooks& hooks,
                       bool resume = false) {
    return train::TrainRun(
        experiment_, experiment_.arms[arm], 1, corpus_, executor_, hooks,
        train::RunFiles{.paths = {folder_.path(), "run"}, .resume = resume});
  }
  train::RunHooks Recording(train::RunHooks hooks = {}) {
    return RecordIndicators(std::move(hooks), experiment_, 2, File());
  }
  std::filesystem::path File() const {
    return IndicatorFile(folder_.path() / "study", "plain", "run");
  }

  const train::Experiment experiment_ =
      train::ParseExperiment(kRecordedText, "experiment.toml");
  const corpus::Corpus corpus_ = corpus::LoadCorpus(
      experiment_.corpus_source, experiment_.data.held_out_share);
  Executor executor_{1};
  const test_support::TemporaryFolder folder_;
};

TEST_F(IndicatorRecorderTest, ChangesNoBitOfTheRun) {
  const runlog::RunLog alone = Train(1, {});
  std::filesystem::remove(folder_.path() / "run.h5");

  const runlog::RunLog recorded = Train(1, Recording());

  EXPECT_EQ(recorded.provenance.final_weights_digest,
            alone.provenance.final_weights_digest);
  EXPECT_EQ(recorded.steps.loss_nats, alone.steps.loss_nats);
  std::vector<int64_t> steps;
  for (const IndicatorRecord& record : estimators::ReadRecords(File())) {
    steps.push_back(record.step);
  }
  EXPECT_EQ(steps, (std::vector<int64_t>{1, 2, 4, 6}));
}

TEST_F(IndicatorRecorderTest, FindsTheStatisticsOfTheLog) {
  const runlog::RunLog log = Train(1, Recording());

  const std::vector<IndicatorRecord> records = estimators::ReadRecords(File());
  const runlog::TensorColumns& tensors = log.tensors;
  const size_t count = tensors.names.size();
  for (const IndicatorRecord& record : records) {
    const auto row = static_cast<size_t>(record.step - 1);
    double sqnr = 1e9;
    double swiglu = 0;
    double residual = 0;
    for (size_t i = 0; i < count; ++i) {
      const auto of = [&](size_t statistic) {
        return tensors.statistics[statistic][row * count + i];
      };
      const std::string& name = tensors.names[i];
      if (name.ends_with("_activation")) {
        const double value = of(runlog::kStat_sqnr);
        if (!std::isnan(value)) sqnr = std::min(sqnr, value);
      }
      if (name.ends_with(".w2_activation")) {
        swiglu = std::max(swiglu, of(runlog::kStat_cur_amax));
      }
      if (name == "layers." + std::to_string(experiment_.model.n_layers - 1) +
                      "_output") {
        residual = of(runlog::kStat_cur_amax);
      }
    }
    EXPECT_GT(residual, 0);
    EXPECT_EQ(ValueOf(record, Indicator::kSqnr), sqnr);
    EXPECT_EQ(ValueOf(record, Indicator::kSwigluAmax), swiglu);
    EXPECT_EQ(ValueOf(record, Indicator::kResidualAmax), residual);
    EXPECT_GT(ValueOf(record, Indicator::kSwigluKurtosis), 1);
    EXPECT_GT(ValueOf(record, Indicator::kResidualKurtosis), 1);
  }
}

TEST_F(IndicatorRecorderTest, MeasuresTheNoiseOfAGradient) {
  // 3/4 of the gradient are noise after this: it was g, is 4 g, so that its
  // norm is 4 / 3 of that of the noise 3 g. Powers of two round nothing, and
  // sums of squares in FP64 are good to 1e-12.
  train::RunHooks hooks;
  hooks.before_update = [](int64_t step, model::ParameterSet& gradients) {
    if (step != 4) return;
    for (model::Parameter& parameter : gradients.parameters()) {
      Matrix<float>& values = parameter.values;
      for (size_t i = 0; i < values.size(); ++i) values.data()[i] *= 4;
    }
  };

  Train(0, Recording(hooks));

  const std::vector<IndicatorRecord> records = estimators::ReadRecords(File());
  ASSERT_EQ(records.size(), 4u);
  EXPECT_NEAR(ValueOf(records[2], Indicator::kGradientToNoise),
              4.0 / 3.0 / std::sqrt(3.0), 1e-10);
  EXPECT_EQ(ValueOf(records[2], Indicator::kRoutingFlips), 0);
  // Elsewhere the BF16 run has the very gradient of the second pass.
  for (const size_t i : {0, 1, 3}) {
    EXPECT_TRUE(std::isnan(ValueOf(records[i], Indicator::kGradientToNoise)));
    EXPECT_TRUE(std::isnan(ValueOf(records[i], Indicator::kRoutingFlips)));
  }
}

// Its second pass lists the rows of experts by the run's dispatch units.
TEST_F(IndicatorRecorderTest, FindsNoNoiseInBf16OfSeveralUnits) {
  const train::Experiment units = train::ParseExperiment(
      kRecordedText, "experiment.toml",
      {.variables = {}, .overrides = {"parallel.dispatch_units=2"}});

  train::TrainRun(units, units.arms[0], 1, corpus_, executor_,
                  RecordIndicators({}, units, 2, File()));

  for (const IndicatorRecord& record : estimators::ReadRecords(File())) {
    EXPECT_TRUE(std::isnan(ValueOf(record, Indicator::kGradientToNoise)));
  }
}

TEST_F(IndicatorRecorderTest, TakesWholeBatches) {
  std::string texts[2];
  for (const bool shares : {false, true}) {
    std::vector<std::string> overrides = {"parallel.dispatch_units=2",
                                          "data.sequence_length=32"};
    if (shares) overrides.push_back("parallel.micro_batches=2");
    train::Experiment experiment =
        train::ParseExperiment(kRecordedText, "experiment.toml",
                               {.variables = {}, .overrides = overrides});
    EXPECT_EQ(train::TakeWholeBatches(experiment).empty(), !shares);

    train::TrainRun(experiment, experiment.arms[1], 1, corpus_, executor_,
                    RecordIndicators({}, experiment, 2, File()));

    texts[shares ? 1 : 0] = ReadTextFile(File(), "");
    std::filesystem::remove(File());
  }
  EXPECT_EQ(texts[1], texts[0]);
}

TEST_F(IndicatorRecorderTest, CountsExpertsThatBf16WouldNotHaveChosen) {
  // Every second choice of a token is replaced by an expert that it has not
  // chosen: of top 2, half are flips, but for those of the recipe itself.
  train::RunHooks hooks;
  hooks.edit_routing = [](const model::RoutedToken& decided) {
    int32_t other = 0;
    while (std::ranges::find(decided.expert_ids, other) !=
           decided.expert_ids.end()) {
      ++other;
    }
    decided.expert_ids[1] = other;
  };

  Train(1, Recording(hooks));

  for (const IndicatorRecord& record : estimators::ReadRecords(File())) {
    EXPECT_NEAR(ValueOf(record, Indicator::kRoutingFlips), 0.5, 0.1);
    EXPECT_GT(ValueOf(record, Indicator::kGradientToNoise), 1);
  }
}

TEST_F(IndicatorRecorderTest, DoesNotDependOnWhereARunWasResumed) {
  Train(1, Recording());
  const std::string whole = ReadTextFile(File(), "");
  // Stopped after a checkpoint, or killed when it had recorded all steps since.
  for (const bool killed : {false, true}) {
    std::filesystem::remove(folder_.path() / "run.h5");
    std::filesystem::remove(File());
    std::atomic<bool> stop = false;
    train::RunHooks stopping = Recording();
    stopping.stop = &stop;
    stopping.on_step = [&](const runlog::StepRow& row) {
      stop = row.step == 3;
    };
    Train(1, stopping);
    ASSERT_NE(ReadTextFile(File(), ""), whole);
    if (killed) WriteFileAtomically(File(), whole);

    Train(1, Recording(), /*resume=*/true);

    EXPECT_EQ(ReadTextFile(File(), ""), whole);
  }
}

TEST_F(IndicatorRecorderTest, IsJoinedWithWhatTheLogKnows) {
  const runlog::RunLog log = Train(1, Recording());

  const estimators::IndicatorRun run = ReadIndicators("plain", log, File());

  EXPECT_EQ(run.mode, "plain");
  EXPECT_EQ(run.arm, "mxfp8");
  ASSERT_EQ(run.steps, (std::vector<int64_t>{1, 2, 4, 6}));
  double most = 0;
  for (size_t i = 0; i < run.steps.size(); ++i) {
    const auto begin = log.steps.loss_nats.begin();
    const double least = *std::min_element(begin, begin + run.steps[i]);
    const auto place = static_cast<size_t>(run.steps[i] - 1);
    const auto of = [&](Indicator indicator) {
      return run.values[i][static_cast<size_t>(indicator)];
    };
    EXPECT_EQ(of(Indicator::kLossRise), log.steps.loss_nats[place] - least);
    most = std::max(most, of(Indicator::kLossRise));
    EXPECT_EQ(of(Indicator::kGradientNorm), log.steps.grad_norm[place]);
    EXPECT_EQ(of(Indicator::kSqnr),
              ValueOf(estimators::ReadRecords(File())[i], Indicator::kSqnr));
  }
  EXPECT_GT(most, 0) << "this run can't tell the least loss from the loss";
}

}  // namespace
}  // namespace isoloss::treatments::indicator_recorder_test
