#include "isoloss/treatments/stress_modes.h"

#include <gtest/gtest.h>

#include "../campaign/tiny_experiment.h"
#include "isoloss/base/error.h"
#include "isoloss/train/trainer.h"
#include "support/temporary_folder.h"

namespace isoloss::treatments::stress_modes_test {
namespace {

train::Experiment Changed(std::string_view mode) {
  const test_support::TemporaryFolder folder;
  train::Experiment experiment = campaign::TinyExperiment(folder.path());
  const StressMode& found = StressModeByName(mode);
  if (found.change != nullptr) found.change(experiment);
  return experiment;
}

TEST(StressModes, ChangeWhatTheySay) {
  const train::Experiment plain = Changed("plain");
  EXPECT_EQ(Changed("lr_10").train.lr, 10 * plain.train.lr);
  EXPECT_EQ(Changed("no_decay").train.weight_decay, 0);
  EXPECT_EQ(Changed("steps_10").train.steps, 10 * plain.train.steps);
  EXPECT_EQ(Changed("deep").model.n_layers, 4 * plain.model.n_layers);
  EXPECT_EQ(Changed("deep").model.dim, plain.model.dim / 2);
}

TEST(StressModes, LongSequencesKeepTheTokensOfAStep) {
  const train::Experiment plain = Changed("plain");
  const train::Experiment stressed = Changed("long_sequences");
  EXPECT_GT(stressed.data.sequence_length, plain.data.sequence_length);
  EXPECT_EQ(stressed.parallel.shares(), 1u);
  EXPECT_EQ(stressed.data.sequence_length * stressed.train.sequences_per_batch,
            plain.data.sequence_length * plain.train.sequences_per_batch);
}

/// The first element of a parameter by the last hook that sees it.
float After(std::string_view mode, const std::string& parameter) {
  const train::Experiment experiment = Changed("plain");
  const train::RunHooks hooks = StressModeByName(mode).hooks(experiment);
  model::ParameterSet weights(experiment.model);
  weights.ByName(parameter).values(0, 0) = 1;
  Matrix<float> bias(1, experiment.model.num_experts);
  if (hooks.edit_initial_weights) hooks.edit_initial_weights(weights);
  for (int64_t step = 1; step <= experiment.train.steps; ++step) {
    if (hooks.after_update) hooks.after_update(step, weights, bias.view());
  }
  return weights.ByName(parameter).values(0, 0);
}

TEST(StressModes, OutliersGrowOverARun) {
  // Each of 8 steps multiplies by the FP32 number next to its share, whose
  // relative error is 2^-24 and whose product adds as much: 16 x 2^-24.
  EXPECT_NEAR(After("residual_outliers", "tok_embeddings.weight"), 16,
              16 * 16 * 0x1p-24);
  EXPECT_NEAR(After("gain_outliers", "norm.weight"), 64, 64 * 16 * 0x1p-24);
}

TEST(StressModes, AlignedGatesAreEqualAndFourTimesAsLarge) {
  const train::Experiment experiment = Changed("plain");
  const train::RunHooks hooks =
      StressModeByName("aligned_gates").hooks(experiment);
  model::ParameterSet weights(experiment.model);
  const std::string w1 = "layers.0.feed_forward.w1.weight";
  const std::string w3 = "layers.0.feed_forward.w3.weight";
  const float before = weights.ByName(w1).values(2, 3) = 0.25f;
  hooks.edit_initial_weights(weights);
  EXPECT_EQ(weights.ByName(w1).values(2, 3), 4 * before);
  EXPECT_EQ(weights.ByName(w3).values(2, 3), 4 * before);
}

TEST(StressModes, AnUnknownOneIsRefusedWithTheNames) {
  try {
    StressModeByName("lr_11");
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("lr_10"), std::string::npos);
  }
}

}  // namespace
}  // namespace isoloss::treatments::stress_modes_test
