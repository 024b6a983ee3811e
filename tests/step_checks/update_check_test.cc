#include "isoloss/step_checks/update_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "isoloss/base/error.h"
#include "isoloss/formats/bf16.h"
#include "step_checks/recorded_run.h"
#include "step_checks/recorded_step.h"

namespace isoloss::step_checks::update_check_test {
namespace {

using oracle::Grid;

using isoloss::test_support::ExpectFound;
using isoloss::test_support::ExpectNoOthers;
using isoloss::test_support::Others;
using isoloss::test_support::RecordedRun;
using isoloss::test_support::TinyExperiment;
using ::testing::HasSubstr;

constexpr size_t kBf16Arm = 0;

/// Biases that start at 0 do not move far in a few steps; a large rate shows
/// their update.
train::Experiment Trial() {
  return TinyExperiment({"train.load_balance_coeff=0.3"});
}

UpdateOracle OracleOf(RecordedRun& run) {
  return {run.experiment.model, run.experiment.train,
          run.learner().State().parameters};
}

void Check(RecordedRun& run, UpdateOracle& oracle, ReportSink& sink,
           Grid grid = Grid::kBf16) {
  oracle.Check(run.record, run.Outcome(), grid, run.executor, sink);
}

/// What the oracle finds in four steps of a run with these hooks.
int64_t OthersWith(const train::RunHooks& hooks) {
  RecordedRun run(Trial(), kBf16Arm, hooks);
  UpdateOracle oracle = OracleOf(run);
  ReportSink sink;
  for (int64_t step = 1; step <= 4; ++step) {
    run.Step(step);
    Check(run, oracle, sink);
  }
  return Others(sink);
}

TEST(UpdateCheck, FindsNothingInCorrectRuns) {
  for (size_t arm = 0; arm < 3; ++arm) {
    RecordedRun run(Trial(), arm);
    const Grid grid = arm == 2 ? Grid::kFp32 : Grid::kBf16;
    UpdateOracle oracle = OracleOf(run);
    for (int64_t step = 1; step <= 6; ++step) {
      run.Step(step);
      ExpectNoOthers(
          [&](ReportSink& sink) { Check(run, oracle, sink, grid); },
          run.experiment.arms[arm].name + ", step " + std::to_string(step));
    }
  }
}

TEST(UpdateCheck, FollowsTheBiasesOfTheRun) {
  RecordedRun run(Trial(), kBf16Arm);
  UpdateOracle oracle = OracleOf(run);
  EXPECT_EQ(oracle.expert_bias()(0, 3), 0.0f);
  ReportSink sink;

  run.Step(1);
  Check(run, oracle, sink);

  for (size_t e = 0; e < 6; ++e) {
    EXPECT_EQ(oracle.expert_bias()(0, e), run.Outcome().expert_bias(0, e));
  }
  EXPECT_NE(oracle.expert_bias()(0, 3), 0.0f);
}

TEST(UpdateCheck, FindsMasterWeightsInBf16) {
  train::RunHooks hooks;
  hooks.after_update = [](int64_t /*step*/, model::ParameterSet& weights,
                          MatrixView<float> /*bias*/) {
    for (model::Parameter& parameter : weights.parameters()) {
      for (size_t i = 0; i < parameter.values.size(); ++i) {
        float& value = parameter.values.data()[i];
        value = formats::RoundToBf16(value);
      }
    }
  };

  EXPECT_GT(OthersWith(hooks), 0);
}

TEST(UpdateCheck, FindsAnotherUpdate) {
  const auto others = [](auto change) {
    train::RunHooks hooks;
    hooks.before_optimizer = change;
    return OthersWith(hooks);
  };
  using Inputs = train::OptimizerInputs;

  EXPECT_EQ(others([](int64_t, Inputs&) {}), 0);
  // A learning rate that is off by 1e-4.
  EXPECT_GT(others([](int64_t, Inputs& in) { in.lr *= 1.0001; }), 0);
  // No clipping; a norm that is off by 1e-3.
  EXPECT_GT(others([](int64_t, Inputs& in) { in.clip_coefficient = 1; }), 0);
  EXPECT_GT(others([](int64_t, Inputs& in) { in.clip_coefficient *= 1.001; }),
            0);
  // A moment that was lost, or never taken over.
  EXPECT_GT(others([](int64_t step, Inputs& in) {
              if (step == 3) in.adamw.first_moments()[0].SetZero();
            }),
            0);
  EXPECT_GT(others([](int64_t step, Inputs& in) {
              if (step == 3) in.adamw.second_moments()[4].SetZero();
            }),
            0);
  // Bias correction of the step before.
  EXPECT_GT(others([](int64_t step, Inputs& in) {
              if (step == 3) in.adamw.Restore(1);
            }),
            0);
  // Moments kept in BF16.
  EXPECT_GT(others([](int64_t, Inputs& in) {
              for (Matrix<float>& m : in.adamw.first_moments()) {
                for (size_t i = 0; i < m.size(); ++i) {
                  m.data()[i] = formats::RoundToBf16(m.data()[i]);
                }
              }
            }),
            0);
}

TEST(UpdateCheck, FindsAnotherBiasUpdate) {
  train::RunHooks hooks;
  hooks.after_update = [](int64_t step, model::ParameterSet& /*weights*/,
                          MatrixView<float> bias) {
    if (step == 2) bias(0, 1) += 0.01f;
  };

  EXPECT_GT(OthersWith(hooks), 0);
}

TEST(UpdateCheck, FindsAChangeOfEveryTensor) {
  for (const char* tensor :
       {"layers.0.attention.wq_weight", "layers.0.attention.wq_wgrad",
        "layers.0.attention.wq_parameter", "layers.0.attention.wq_update",
        "layers.1.moe.routed_experts.w2_parameter", "norm_wgrad"}) {
    RecordedRun run(Trial(), kBf16Arm);
    UpdateOracle oracle = OracleOf(run);
    run.Step(1);

    ExpectFound(run.record, tensor, 0, 3,
                [&](ReportSink& sink) { Check(run, oracle, sink); });
  }
}

TEST(UpdateCheck, FindsWrongFigures) {
  const auto others = [](auto change) {
    RecordedRun run(Trial(), kBf16Arm);
    UpdateOracle oracle = OracleOf(run);
    run.Step(1);
    change(run.row);
    ReportSink sink;
    Check(run, oracle, sink);
    return sink.comparisons().at("grad_norm").Row().other +
           sink.comparisons().at("lr").Row().other;
  };

  EXPECT_EQ(others([](runlog::StepRow&) {}), 0);
  EXPECT_EQ(others([](runlog::StepRow& row) { row.grad_norm *= 1 + 1e-6; }), 1);
  EXPECT_EQ(others([](runlog::StepRow& row) { row.lr *= 1 + 1e-6; }), 1);
}

TEST(UpdateCheck, AStepThatIsNotFiniteMustChangeNothing) {
  RecordedRun run(Trial(), kBf16Arm);
  UpdateOracle oracle = OracleOf(run);
  run.Step(1);
  run.row.loss_nats = std::numeric_limits<double>::quiet_NaN();
  ReportSink sink;

  Check(run, oracle, sink);  // but weights did change

  const runlog::OracleRow row = sink.comparisons().at("norm_parameter").Row();
  EXPECT_GT(row.other, 0);
}

TEST(UpdateCheck, RefusesToSkipAStep) {
  RecordedRun run(Trial(), kBf16Arm);
  UpdateOracle oracle = OracleOf(run);
  run.Step(1);
  run.row.step = 2;
  ReportSink sink;
  try {
    Check(run, oracle, sink);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kFormat);
    EXPECT_THAT(error.what(), HasSubstr("step 2 was given, but 1 comes next"));
  }
}

// torchtitan's debugmodel: 10 steps, 2 of warm-up, 8 of decay, linear to 0.
// D = 8, S = 1; the factor of n = 3 is 1 - (3 + 1 - 3) / 8.
TEST(LearningRate, FollowsWarmUpPlateauAndDecay) {
  train::TrainConfig train;
  train.steps = 10;
  train.warmup_steps = 2;
  train.decay_ratio = 0.8;
  train.min_lr_factor = 0;
  train.lr = 8e-4;

  EXPECT_DOUBLE_EQ(OracleLearningRate(train, 1), 4e-4);
  EXPECT_DOUBLE_EQ(OracleLearningRate(train, 2), 8e-4);
  EXPECT_DOUBLE_EQ(OracleLearningRate(train, 3), 8e-4);
  EXPECT_DOUBLE_EQ(OracleLearningRate(train, 4), 7e-4);
  EXPECT_DOUBLE_EQ(OracleLearningRate(train, 10), 1e-4);
  train.decay_type = optim::DecayShape::kSqrt;
  EXPECT_DOUBLE_EQ(OracleLearningRate(train, 5), 4e-4);  // 1 - sqrt(2 / 8)
  train.decay_type = optim::DecayShape::kCosine;
  EXPECT_DOUBLE_EQ(OracleLearningRate(train, 7), 4e-4);  // progress 1/2
  train.min_lr_factor = 0.5;
  EXPECT_DOUBLE_EQ(OracleLearningRate(train, 7), 6e-4);
}

}  // namespace
}  // namespace isoloss::step_checks::update_check_test
