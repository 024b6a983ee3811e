// Rule `training` of level L0.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "isoloss/compare/integrity.h"
#include "support/findings.h"
#include "support/foreign_runs.h"
#include "support/synthetic_runs.h"

namespace isoloss::compare::training_rule_test {
namespace {

using test_support::Finds;
using ::testing::Contains;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

/// What rule `training` finds of one run of another program.
std::vector<Finding> TrainingOf(const compare::Run& run) {
  const Pairing pairing = PairBySeed("a", {&run}, "a", {&run});
  for (const IntegrityRule& known : IntegrityRules()) {
    if (known.name == "training") {
      return known.check(pairing, Question::kRegression);
    }
  }
  ADD_FAILURE() << "no rule";
  return {};
}

/// Losses of a batch's noise alone, at a rate and with a gradient.
Run Untrained() {
  compare::Run run = test_support::ForeignRunOf("a", 1, 0);
  std::mt19937_64 random(1);
  std::normal_distribution<double> noise(2.3, 0.02);
  for (double& loss : run.log.steps.loss_nats) loss = noise(random);
  run.log.steps.lr.assign(run.log.steps.step.size(), 1e-4);
  return run;
}

TEST(Training, NeedsAGradientAndARate) {
  EXPECT_THAT(TrainingOf(test_support::ForeignRunOf("a", 1, 0)), IsEmpty());
  EXPECT_THAT(TrainingOf(Untrained()), IsEmpty());  // a warning, no more
  compare::Run run = Untrained();
  run.log.steps.grad_norm.assign(100, 0);
  EXPECT_THAT(TrainingOf(run),
              Each(Finds(Severity::kBad,
                         "the gradient norm is 0 in 100 of 100 steps")));
  EXPECT_THAT(TrainingOf(run), SizeIs(2));
  run.log.steps.lr.clear();
  EXPECT_THAT(TrainingOf(run), SizeIs(2));
  run = Untrained();
  run.log.steps.lr.assign(100, 0);
  EXPECT_THAT(TrainingOf(run),
              Contains(Finds(Severity::kBad,
                             "the learning rate is 0 in 100 of 100 steps")));
}

TEST(Training, MayRestForThreeSteps) {
  compare::Run run = test_support::ForeignRunOf("a", 1, 0);
  run.log.steps.lr.assign(100, 1e-4);
  run.log.steps.lr[0] = 0;
  run.log.steps.lr[99] = 0;
  for (const size_t row : {40, 41, 42, 50}) run.log.steps.grad_norm[row] = 0;
  EXPECT_THAT(TrainingOf(run), IsEmpty());
  run.log.steps.grad_norm[43] = 0;
  EXPECT_THAT(
      TrainingOf(run),
      Contains(Finds(Severity::kBad, "0 in 4 steps in a row, 41 to 44")));
  // At a rate of 0 no weight was to move.
  for (const size_t row : {40, 41, 42, 43}) run.log.steps.lr[row] = 0;
  EXPECT_THAT(TrainingOf(run), IsEmpty());
}

// Units of 0.1 hide norms below 0.05, and of these half are 1.
TEST(Training, CountsNoZeroThatDigitsExplain) {
  compare::Run run = test_support::ForeignRunOf("a", 1, 0);
  for (size_t row = 10; row < 20; ++row) run.log.steps.grad_norm[row] = 0;
  run.log.told.grad_norm_half_unit = 0.05;
  EXPECT_THAT(TrainingOf(run), IsEmpty());
  for (double& norm : run.log.steps.grad_norm) norm *= 1.3;
  EXPECT_THAT(TrainingOf(run), SizeIs(2)) << "0 is below 1.3 / 20";
  run.log.told.grad_norm_half_unit = 0.005;
  EXPECT_THAT(TrainingOf(run), SizeIs(2));
}

// As programs log it that never compute the norm. A log that contradicts itself
// is no proof either way.
TEST(Training, IsUndecidedWhereTheLossFallsWithoutAGradient) {
  compare::Run run = test_support::ForeignRunOf("a", 1, 0);
  run.log.steps.grad_norm.assign(100, 0);
  EXPECT_THAT(TrainingOf(run),
              Each(Finds(Severity::kUnverified, "but the loss falls")));
  run = test_support::ForeignRunOf("a", 1, 0);
  run.log.steps.lr.assign(100, 0);
  EXPECT_THAT(TrainingOf(run),
              Each(Finds(Severity::kUnverified, "but the loss falls")));
  // 0.0000 may stand for 3e-5.
  run.log.provenance.origin.lr_half_unit = 0.5e-4;
  EXPECT_THAT(TrainingOf(run), IsEmpty());
}

TEST(Training, MovesWeights) {
  compare::Run run = test_support::ForeignRunOf("a", 1, 0);
  run.log.provenance.initial_weights_digest = "w";
  run.log.provenance.final_weights_digest = "v";
  EXPECT_THAT(TrainingOf(run), IsEmpty());
  run.log.provenance.final_weights_digest = "w";
  EXPECT_THAT(TrainingOf(run),
              Contains(Finds(Severity::kBad, "have the digest w before")));
  compare::Run own = test_support::SyntheticRun(true, 1, 0);
  own.log.parameters = test_support::SampleParameters(own.log.steps);
  EXPECT_THAT(TrainingOf(own), IsEmpty());
  std::ranges::fill(own.log.parameters.update_ratio, 0);
  EXPECT_THAT(
      TrainingOf(own),
      Contains(Finds(Severity::kBad, "no parameter moved in 50 steps")));
}

TEST(Training, GivesNoLossAgainAndAgain) {
  compare::Run run = test_support::ForeignRunOf("a", 1, 0);
  run.log.steps.loss_nats.assign(100, 2.302585);
  run.log.provenance.origin.loss_half_unit = 0.5e-6;
  EXPECT_THAT(TrainingOf(run),
              Contains(Finds(Severity::kBad, "each of the 100")));
  run.log.provenance.origin.loss_half_unit = 0.005;
  EXPECT_THAT(TrainingOf(run), IsEmpty());
}

TEST(Training, StopsWhereOneLossStands) {
  compare::Run run = test_support::ForeignRunOf("a", 1, 0);
  run.log.provenance.origin.loss_half_unit = 0.5e-6;
  auto& loss = run.log.steps.loss_nats;
  std::fill(loss.begin() + 40, loss.end(), 3.1);
  EXPECT_THAT(TrainingOf(run),
              Contains(Finds(Severity::kBad,
                             "each of the 60 losses of steps 41 to 100")));
  // Nineteen may be a pause; and a log may repeat each value until the next.
  run = test_support::ForeignRunOf("a", 1, 0);
  std::fill(loss.begin() + 81, loss.end(), 3.1);
  EXPECT_THAT(TrainingOf(run), IsEmpty());
  run.log.provenance.origin.loss_half_unit = 0.5e-6;
  for (size_t row = 0; row < 100; ++row) loss[row] = loss[row / 25 * 25];
  EXPECT_THAT(TrainingOf(run), IsEmpty());
}

/// The run is both arms.
template <typename Matcher>
auto ElementsAreBoth(const Matcher& finding) {
  return ::testing::ElementsAre(finding, finding);
}

TEST(Training, GoesOnToItsEnd) {
  compare::Run run = test_support::ForeignRunOf("a", 1, 0);
  auto& rates = run.log.steps.lr;
  rates.assign(100, 1e-4);
  std::fill(rates.begin() + 81, rates.end(), 0);
  EXPECT_THAT(TrainingOf(run), IsEmpty());
  rates[80] = 0;
  EXPECT_THAT(TrainingOf(run), ElementsAreBoth(Finds(Severity::kUnverified,
                                                     "81 to 100 in a row")));
  EXPECT_THAT(TrainingOf(run),
              ElementsAreBoth(Finds(Severity::kUnverified, "with --until 80")));
  // 0.0000 may be 4e-5.
  run.log.provenance.origin.lr_half_unit = 0.5e-4;
  EXPECT_THAT(TrainingOf(run), IsEmpty());
}

TEST(Training, DoesNotPauseForAFifthOrInHalfOfTheSteps) {
  compare::Run run = test_support::ForeignRunOf("a", 1, 0);
  auto& rates = run.log.steps.lr;
  rates.assign(100, 1e-4);
  std::fill_n(rates.begin() + 40, 19, 0);
  EXPECT_THAT(TrainingOf(run), IsEmpty());
  rates[59] = 0;
  EXPECT_THAT(
      TrainingOf(run),
      ElementsAreBoth(Finds(Severity::kUnverified,
                            "is 0 in 20 of 100 steps, 41 to 60 in a row")));
  for (size_t row = 0; row < 100; ++row) rates[row] = row % 2 == 0 ? 0 : 1e-4;
  EXPECT_THAT(
      TrainingOf(run),
      ElementsAreBoth(Finds(Severity::kUnverified, "is 0 in 50 of 100 steps")));
  rates.assign(100, 0);
  rates[98] = rates[99] = 1e-4;
  EXPECT_THAT(TrainingOf(run), SizeIs(2)) << "both arms are this run";

  rates.clear();
  auto& norms = run.log.steps.grad_norm;
  for (size_t row = 0; row < 100; row += 5) norms[row] = 0;
  EXPECT_THAT(TrainingOf(run), IsEmpty());
  for (size_t row = 0; row < 100; ++row) norms[row] = row % 4 == 0 ? 0 : 1;
  EXPECT_THAT(
      TrainingOf(run),
      ElementsAreBoth(Finds(Severity::kUnverified, "norm is 0 in 25 of 100")));
}

TEST(Training, SkipsNoMoreUpdatesThanALossScaleNeeds) {
  compare::Run run = test_support::ForeignRunOf("a", 1, 0);
  runlog::Told::Idle idle{.says = "the update was skipped",
                          .step = run.log.steps.step,
                          .value = std::vector<double>(100, 1),
                          .may_begin = true};
  std::fill_n(idle.value.begin(), 20, 0);
  std::fill_n(idle.value.begin() + 60, 3, 0);
  run.log.told.idle = {idle};
  EXPECT_THAT(TrainingOf(run), IsEmpty());
  run.log.told.idle[0].value[63] = 0;
  EXPECT_THAT(
      TrainingOf(run),
      Each(Finds(Severity::kBad, "skipped in 4 steps in a row, 61 to 64")));
  run.log.told.idle[0].value.assign(100, 0);
  EXPECT_THAT(TrainingOf(run),
              Each(Finds(Severity::kUnverified, "both can't be true")));
  // Beyond what is judged.
  run.log.told.idle[0].value = idle.value;
  run.log.told.idle[0].value[99] = 0;
  for (int64_t step = 101; step <= 110; ++step) {
    run.log.told.idle[0].step.push_back(step);
    run.log.told.idle[0].value.push_back(0);
  }
  EXPECT_THAT(TrainingOf(run), IsEmpty());
}

TEST(Training, IsShownByALossThatFalls) {
  const auto warnings = [](const compare::Run& run) {
    return NoTrainingWarnings(PairBySeed("a", {&run}, "b", {&run}));
  };
  EXPECT_THAT(warnings(test_support::ForeignRunOf("a", 1, 0)), IsEmpty());
  EXPECT_THAT(warnings(Untrained()),
              Each(HasSubstr("this log shows no training")));
  EXPECT_THAT(warnings(Untrained()), SizeIs(2));
}

TEST(Training, IsNotShownByALossThatRises) {
  compare::Run run = test_support::ForeignRunOf("a", 1, 0);
  const auto rising = [&] {
    return RisingLoss(PairBySeed("a", {&run}, "b", {&run}));
  };
  EXPECT_EQ(rising(), "");
  std::ranges::reverse(run.log.steps.loss_nats);
  EXPECT_THAT(rising(), HasSubstr("nats above that of its first fifth"));
  // Noise alone.
  run = Untrained();
  EXPECT_EQ(rising(), "");
}

TEST(Training, HasABatchOfItsOwnInEachStep) {
  compare::Run run = test_support::SyntheticRun(true, 1, 0);
  test_support::FillBatches(run.log);
  EXPECT_THAT(TrainingOf(run), IsEmpty());
  run.log.steps.batch_digest.assign(50, 7);
  EXPECT_THAT(TrainingOf(run),
              Each(Finds(Severity::kUnverified, "all 50 steps have one")));
  EXPECT_THAT(TrainingOf(run), SizeIs(2));
  run.log.provenance.origin.format = "recorder";  // may repeat one on purpose
  EXPECT_THAT(TrainingOf(run), IsEmpty());
}

}  // namespace
}  // namespace isoloss::compare::training_rule_test
