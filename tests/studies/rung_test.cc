#include "isoloss/studies/rung.h"

#include <gtest/gtest.h>

#include <cmath>

#include "../campaign/tiny_experiment.h"
#include "support/temporary_folder.h"

namespace isoloss::studies::rung_test {
namespace {

class RungTest : public ::testing::Test {
 protected:
  test_support::TemporaryFolder folder_;
  const train::Experiment base_ = campaign::TinyExperiment(
      folder_.path(), {"train.lr=0.01", "train.steps=100"});
};

TEST_F(RungTest, OfTheSameModelHasTheScheduleOfTheExperiment) {
  const train::Experiment rung =
      RungExperiment(base_, RungLike(base_, base_.model), 400);

  EXPECT_EQ(rung.train.steps, 100);
  EXPECT_EQ(rung.train.lr, 0.01);
  EXPECT_EQ(rung.train.warmup_steps, 4);
  // 399 labels are 21 sequences of 19 tokens.
  EXPECT_EQ(rung.log.eval_sequences, 21u);
}

TEST_F(RungTest, HasAsManyTokensForEachParameter) {
  model::ModelConfig wide = base_.model;
  wide.dim = 96;
  const double growth = train::EstimatedParameters(wide) /
                        train::EstimatedParameters(base_.model);

  const train::Experiment rung =
      RungExperiment(base_, RungLike(base_, wide), 400);

  EXPECT_EQ(rung.train.steps,
            static_cast<int64_t>(std::ceil(100 * growth - 1e-9)));
  EXPECT_EQ(rung.train.lr, 0.005);  // the root of a quarter
}

TEST_F(RungTest, TakesTheExponentAndTheRootOfTheBatch) {
  model::ModelConfig wide = base_.model;
  wide.dim = 48;

  const train::Experiment rung = RungExperiment(base_,
                                                {.model = wide,
                                                 .tokens = 57 * 10 * 16,
                                                 .rate_exponent = -1,
                                                 .batch_factor = 16},
                                                400);

  EXPECT_EQ(rung.train.steps, 10);
  EXPECT_EQ(rung.train.warmup_steps, 1);  // a tenth
  EXPECT_EQ(rung.train.sequences_per_batch, 48u);
  EXPECT_EQ(rung.train.lr, 0.02);  // half, times the root of 16
}

}  // namespace
}  // namespace isoloss::studies::rung_test
