#include "isoloss/studies/tuned_exponent.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "../campaign/tiny_experiment.h"
#include "isoloss/base/digest.h"
#include "isoloss/runlog/tuning.h"
#include "isoloss/studies/rung.h"
#include "isoloss/treatments/rung_model.h"
#include "support/temporary_folder.h"

namespace isoloss::studies::tuned_exponent_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// Has an experiment with both sweeps. Losses are symmetric in the logarithm of
/// the rate, so that the best rate is the optimum.
class TunedExponentTest : public ::testing::Test {
 protected:
  void SetUp() override {
    base_.tuning = SweepOf(base_, 0.01);
    base_.scaled_tuning = {
        kParameters, SweepOf(RungExperiment(base_, RungLike(base_, model_),
                                            corpus_.held_out().count),
                             0.005)};
  }

  train::TuningConfig SweepOf(const train::Experiment& experiment,
                              double best) const {
    return {.rates = {best / 2, best, best * 2},
            .held_out = {2, 1, 2},
            .seeds = {1001, 1002},
            .configuration = runlog::TuningDigest(experiment.ResolvedToml(),
                                                  DigestToHex(corpus_.digest()),
                                                  experiment.arms.front().name),
            .seed_optima = {best, best}};
  }

  std::string WhyAssumed() const {
    const estimators::RateExponent exponent = TunedExponent(base_, corpus_);
    EXPECT_EQ(exponent.value, -0.5);
    return exponent.why_assumed;
  }

  static constexpr double kParameters = 60'000;
  test_support::TemporaryFolder folder_;
  train::Experiment base_ =
      campaign::TinyExperiment(folder_.path(), {"train.lr=0.01"});
  const corpus::Corpus corpus_ = train::LoadCorpusOf(base_);
  const model::ModelConfig model_ =
      treatments::ScaledModel(base_.model, kParameters);
};

TEST_F(TunedExponentTest, IsThatOfBothOptima) {
  const estimators::RateExponent exponent = TunedExponent(base_, corpus_);

  EXPECT_EQ(exponent.why_assumed, "");
  // Half the rate, at so many times the width.
  const double power = -1 / std::log2(static_cast<double>(model_.dim) /
                                      static_cast<double>(base_.model.dim));
  EXPECT_NEAR(exponent.value, power, 1e-12);
  EXPECT_NEAR(exponent.least, power, 1e-12);
  EXPECT_NEAR(exponent.largest, power, 1e-12);
  EXPECT_EQ(RateDoubt(exponent, base_), "");
}

TEST_F(TunedExponentTest, IsAssumedWithoutASweepOfEitherSize) {
  base_.scaled_tuning = {};
  EXPECT_EQ(WhyAssumed(), "the experiment has no [tuning.scaled]");

  base_.tuning = {};
  EXPECT_EQ(WhyAssumed(), "the experiment has no [tuning]");
}

TEST_F(TunedExponentTest, IsAssumedIfASweepIsOfAnotherConfiguration) {
  const std::string own = base_.tuning.configuration;
  base_.tuning.configuration = base_.scaled_tuning.sweep.configuration;
  EXPECT_EQ(WhyAssumed(),
            "[tuning] is of another model, schedule, batch, text or recipe");

  base_.tuning.configuration = own;
  base_.scaled_tuning.sweep.configuration = own;
  EXPECT_EQ(
      WhyAssumed(),
      "[tuning.scaled] is of another model, schedule, batch, text or recipe");
}

TEST_F(TunedExponentTest, IsAssumedIfNoModelHasTheSweptSize) {
  base_.scaled_tuning.parameters = 1;

  EXPECT_THAT(WhyAssumed(), HasSubstr("[tuning.scaled] is of another model"));
}

TEST_F(TunedExponentTest, IsAssumedIfAnOptimumIsNotKnown) {
  train::TuningConfig& scaled = base_.scaled_tuning.sweep;
  scaled.held_out = {1, 2, 3};
  EXPECT_THAT(WhyAssumed(), AllOf(HasSubstr("in [tuning.scaled], "),
                                  HasSubstr("is the outermost")));
  constexpr double kDiverged = std::numeric_limits<double>::infinity();
  scaled.held_out = {kDiverged, kDiverged, kDiverged};
  EXPECT_THAT(WhyAssumed(), HasSubstr("diverged at every rate"));
  base_.tuning.seeds = {1001};
  EXPECT_THAT(WhyAssumed(), HasSubstr("in [tuning], the sweep has 1 seed"));
}

TEST_F(TunedExponentTest, IsAssumedIfTheExperimentHasAnotherRate) {
  base_.train.lr = 0.02;

  EXPECT_THAT(WhyAssumed(), HasSubstr("train.lr, 0.02, is not within"));
}

TEST_F(TunedExponentTest, IsAssumedOutsideOfTheRange) {
  for (double& rate : base_.scaled_tuning.sweep.rates) rate /= 8;

  EXPECT_THAT(WhyAssumed(), HasSubstr("outside [-1.5, 0.25]"));
}

TEST_F(TunedExponentTest, LeavesADoubtThatNamesBothCommands) {
  base_.scaled_tuning = {};

  const std::string doubt = RateDoubt(TunedExponent(base_, corpus_), base_);

  const std::string command =
      "`isoloss study rates " + base_.path.string() + " ";
  EXPECT_THAT(doubt, AllOf(HasSubstr("power -0.5 of the width"),
                           HasSubstr("no [tuning.scaled]"),
                           HasSubstr(command + "--write`"),
                           HasSubstr(command + "--parameters ")));
}

}  // namespace
}  // namespace isoloss::studies::tuned_exponent_test
