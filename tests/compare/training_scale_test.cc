#include "isoloss/compare/training_scale.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "support/synthetic_runs.h"

namespace isoloss::compare::training_scale_test {
namespace {

// That flops and active parameters are those of the model is a matter of
// tests/train/cost_test.cc, which knows models.
TEST(ScaleOf, SaysWhatALogTells) {
  runlog::RunLog log = test_support::SyntheticRun(false, 1, 0).log;
  log.provenance.experiment_text += "[data]\nsource = \"files\"\n";
  log.provenance.unigram_entropy_nats = 3 * std::log(2.0);
  log.provenance.bigram_entropy_nats = std::log(2.0);
  log.provenance.deflated_bits = 2.5;
  log.steps.lr.front() = 5e-4;
  log.steps.lr.back() = 1e-4;

  const TrainingScale scale = ScaleOf(log);

  EXPECT_EQ(scale.tokens, 51200);
  EXPECT_DOUBLE_EQ(scale.TokensPerParameter(), 51200 / 123456.0);
  EXPECT_TRUE(scale.of_bytes);
  EXPECT_EQ(scale.schedule,
            "learning rate 0.001 after warm-up to step 2, falling from step 50 "
            "on");
  EXPECT_DOUBLE_EQ(scale.unigram_bits.value(), 3);
  EXPECT_DOUBLE_EQ(scale.bigram_bits.value(), 1);
  EXPECT_EQ(scale.deflated_bits, 2.5);
}

TEST(ScaleOf, LeavesOutWhatALogDoesNotTell) {
  runlog::RunLog log = test_support::SyntheticRun(false, 1, 0).log;
  log.steps.lr.clear();
  log.provenance.unigram_entropy_nats = std::nan("");
  log.provenance.bigram_entropy_nats = 0;  // as an earlier log's

  const TrainingScale scale = ScaleOf(log);

  EXPECT_FALSE(scale.of_bytes);
  EXPECT_EQ(scale.schedule, "a learning rate that the log does not tell");
  EXPECT_FALSE(scale.flops.has_value());
  EXPECT_FALSE(scale.active_parameters.has_value());
  EXPECT_FALSE(scale.unigram_bits.has_value());
  EXPECT_FALSE(scale.bigram_bits.has_value());
  EXPECT_FALSE(scale.deflated_bits.has_value());
}

}  // namespace
}  // namespace isoloss::compare::training_scale_test
