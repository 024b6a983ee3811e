// Runs that end alike, but do not train alike on the way.
#include "isoloss/gate/trajectory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "isoloss/gate/judge.h"
#include "judged_runs.h"
#include "support/foreign_runs.h"

namespace isoloss::gate::trajectory_test {
namespace {

using test_support::ForeignArms;

/// What a loss of step `step` of 100 becomes.
using Shape = std::function<double(int64_t step, double loss)>;

/// Seeds whose candidates have `shape`, and a little noise of their own.
Runs ArmsOf(const Shape& shape, int64_t stride, uint64_t draw = 0,
            size_t seeds = 4) {
  Runs runs = ForeignArms(std::vector<double>(seeds, 0), stride);
  std::mt19937_64 random(draw);
  std::normal_distribution<double> noise(0, 2e-4);
  for (compare::Run& run : runs) {
    if (run.log.provenance.arm != "fp8") continue;
    auto& steps = run.log.steps;
    for (size_t row = 0; row < steps.step.size(); ++row) {
      steps.loss_nats[row] = shape(steps.step[row], steps.loss_nats[row]) *
                             (1 + (row > 0 ? noise(random) : 0));
    }
  }
  return runs;
}

/// The candidates as runs of the arm that was approved.
Outcome AgainstApproved(Runs& runs) {
  Policy policy;
  policy.question = compare::Question::kRegression;
  std::vector<const compare::Run*> approved;
  std::vector<const compare::Run*> now;
  for (compare::Run& run : runs) {
    (run.log.provenance.arm == "fp8" ? now : approved).push_back(&run);
    run.log.provenance.arm = "bf16";
  }
  return Judge(compare::PairBySeed("bf16", approved, "bf16", now), policy)
      .outcome;
}

struct Course {
  const char* name;
  Shape shape;
};

const std::vector<Course>& BadCourses() {
  static const std::vector<Course> kCourses = {
      {"hump",
       [](int64_t step, double loss) {
         return step > 35 && step <= 55 ? 1.5 * loss : loss;
       }},
      {"dip",
       [](int64_t step, double loss) {
         return step > 35 && step <= 55 ? 0.7 * loss : loss;
       }},
      {"a third 2 % too high",
       [](int64_t step, double loss) {
         return step > 30 && step <= 63 ? 1.02 * loss : loss;
       }},
      {"drift that ends",
       [](int64_t step, double loss) {
         return step <= 70 ? loss * (1 + 3e-4 * static_cast<double>(step))
                           : loss;
       }},
      {"most of the run off the scale",
       [](int64_t step, double loss) {
         return step > 1 && step <= 80 ? 1e30 : loss;
       }},
      {"half too high, half too low",
       [](int64_t step, double loss) {
         const double sign = step <= 45 ? 1 : -1;
         return step > 5 && step <= 85 ? loss * (1 + 0.03 * sign) : loss;
       }},
      {"gap of the last steps",
       [](int64_t step, double loss) {
         return step > 94 ? 1.012 * loss : loss;
       }},
  };
  return kCourses;
}

TEST(Trajectory, OfEqualEndsIsJudgedAllTheWay) {
  for (const Course& course : BadCourses()) {
    Runs runs = ArmsOf(course.shape, 1);
    EXPECT_NE(JudgeArms(runs, "bf16", "fp8").outcome, Outcome::kPass)
        << course.name;
    EXPECT_EQ(AgainstApproved(runs), Outcome::kFail) << course.name;
  }
}

TEST(Trajectory, OfEachTenthStepIsJudgedToo) {
  for (const Course& course : BadCourses()) {
    Runs runs = ArmsOf(course.shape, 10);
    EXPECT_NE(JudgeArms(runs, "bf16", "fp8").outcome, Outcome::kPass)
        << course.name;
  }
}

TEST(Trajectory, OneStepBeyondAnUntrainedModelFails) {
  Runs runs = ArmsOf(
      [](int64_t step, double loss) { return step == 50 ? 1e30 : loss; }, 1);
  const Judgement judgement = JudgeArms(runs, "bf16", "fp8");
  EXPECT_EQ(judgement.outcome, Outcome::kFail);
  EXPECT_EQ(AgainstApproved(runs), Outcome::kFail);
}

// The mean over seeds has a spread of its own there, which hides any hump.
TEST(Trajectory, OfOneSeedNamesTheSeed) {
  for (const size_t seeds : {2, 3, 8}) {
    for (const double factor : {0.8, 1.1, 2.0}) {
      Runs runs =
          ArmsOf([](int64_t, double loss) { return loss; }, 1, 0, seeds);
      for (size_t row = 30; row < 50; ++row) {
        runs[3].log.steps.loss_nats[row] *= factor;
      }
      const Judgement judgement = JudgeArms(runs, "bf16", "fp8");
      EXPECT_EQ(judgement.outcome, Outcome::kInconclusive) << seeds;
      const Check& check = CheckNamed(judgement, "trajectory");
      EXPECT_THAT(check.quantity, ::testing::StartsWith("seed 2, steps "));
      // To the noise, of a mean of eight steps: 2e-4 / sqrt(8) of the loss.
      EXPECT_NEAR(*check.value, 100 * (factor - 1), 4 * 0.0071 * factor);
      EXPECT_EQ(AgainstApproved(runs), Outcome::kFail) << seeds;
    }
  }
}

// Two seeds that go wrong into opposite directions have a mean of 0.
TEST(Trajectory, OfSeedsThatPartIsNoMean) {
  for (const size_t seeds : {2, 4}) {
    Runs runs = ArmsOf([](int64_t, double loss) { return loss; }, 1, 0, seeds);
    for (size_t row = 60; row < 75; ++row) {
      runs[1].log.steps.loss_nats[row] *= 1.2;
      runs[3].log.steps.loss_nats[row] *= 0.8;
    }
    EXPECT_NE(JudgeArms(runs, "bf16", "fp8").outcome, Outcome::kPass);
    EXPECT_EQ(AgainstApproved(runs), Outcome::kFail);
  }
}

// The tenths share an alpha of 5 %, so that of 60 sets of good runs more than 9
// are stopped with a probability of 0.1 % (binomial).
TEST(Trajectory, OfGoodRunsPasses) {
  constexpr uint64_t kSets = 60;
  int precision = 0;
  int regression = 0;
  for (uint64_t draw = 1; draw <= kSets; ++draw) {
    Runs runs = ArmsOf([](int64_t, double loss) { return loss; }, 1, draw);
    precision += JudgeArms(runs, "bf16", "fp8").outcome != Outcome::kPass;
    regression += AgainstApproved(runs) != Outcome::kPass;
  }
  EXPECT_LE(precision, 9);
  EXPECT_LE(regression, 9);
}

/// Whether the course of one pair stops it, whose noise grows from 0.05 to 5 %
/// of the loss.
bool StopsANoisyPair(uint64_t draw) {
  Runs runs = ForeignArms({0});
  std::mt19937_64 random(draw);
  std::normal_distribution<double> noise(0, 1);
  auto& loss = runs[1].log.steps.loss_nats;
  for (size_t row = 1; row < loss.size(); ++row) {
    const double share = static_cast<double>(row) / 100;
    loss[row] *= 1 + 5e-4 * std::pow(100, share) * noise(random);
  }
  const Judgement judgement = JudgeArms(runs, "bf16", "fp8");
  return std::ranges::any_of(judgement.checks, [](const Check& check) {
    return check.name == "trajectory" && check.outcome != Outcome::kPass;
  });
}

// docs/gate.md has a rate of 4 %: more than 8 of 60 have a probability of 0.1 %
// (binomial). Limits that know no noise of steps stop some 25 of them.
TEST(Trajectory, OfANoisyPartPasses) {
  constexpr uint64_t kSets = 60;
  int stopped = 0;
  for (uint64_t draw = 1; draw <= kSets; ++draw) {
    stopped += StopsANoisyPair(draw);
  }
  EXPECT_LE(stopped, 8);
}

}  // namespace
}  // namespace isoloss::gate::trajectory_test
