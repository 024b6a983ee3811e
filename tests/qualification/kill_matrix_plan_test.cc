#include "qualification/kill_matrix_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "campaign/tiny_experiment.h"
#include "support/expect_refused.h"
#include "support/temporary_folder.h"

namespace isoloss::qualification::kill_matrix_plan_test {
namespace {

using isoloss::test_support::ExpectRefused;
using ::testing::ElementsAre;

class KillMatrixPlanTest : public ::testing::Test {
 protected:
  KillMatrixPlanTest() {
    plan_.experiment = campaign::TinyExperiment(folder_.path());
    plan_.arm = plan_.experiment.arms.back();
  }

  isoloss::test_support::TemporaryFolder folder_;
  KillMatrixPlan plan_;
};

TEST_F(KillMatrixPlanTest, AsksForRegressionWithTheFirstSeedsUnlessTold) {
  const KillMatrixPlan plan =
      PlanKillMatrix({.source = {plan_.experiment.path}, .seeds = 3});

  EXPECT_EQ(plan.arm.name, "mxfp8");
  EXPECT_EQ(&plan.BaselineArm(), &plan.arm);
  EXPECT_EQ(plan.policy.question, compare::Question::kRegression);
  EXPECT_EQ(plan.policy.levels, gate::kAuto);
  EXPECT_THAT(plan.seeds, ElementsAre(1, 2, 3));
  EXPECT_EQ(plan.mutants.size(), AllMutants().size());
  EXPECT_EQ(plan.folder, "runs/tiny-mutants");
  EXPECT_EQ(plan.workers, 1);
}

TEST_F(KillMatrixPlanTest, PatternsChooseMutantsInTheOrderOfTheCatalogue) {
  const auto all = AllMutants();
  ASSERT_GE(all.size(), 2);

  const auto chosen = ChosenMutants({all[1].name, all[0].name});

  ASSERT_EQ(chosen.size(), 2);
  EXPECT_EQ(chosen[0].name, all[0].name);
  EXPECT_EQ(chosen[1].name, all[1].name);
  EXPECT_EQ(ChosenMutants({"*"}).size(), all.size());
}

TEST_F(KillMatrixPlanTest, APatternWithoutAMutantIsRefused) {
  const std::string misspelt = std::string(AllMutants()[0].name) + "x";
  ExpectRefused(
      [&] {
        ChosenMutants({"*", misspelt});
      },
      "Did you mean `" + std::string(AllMutants()[0].name));
}

TEST_F(KillMatrixPlanTest, TheReferenceIsAnotherArm) {
  plan_.reference = plan_.experiment.arms.front();
  RequireOtherArm(plan_);
  plan_.reference = plan_.arm;
  ExpectRefused([&] { RequireOtherArm(plan_); }, "--reference mxfp8");
}

TEST_F(KillMatrixPlanTest, GoodRunsNeedAnEnsemble) {
  RequireEnsemble(plan_);  // planted bugs alone need none
  plan_.benign_runs = 3;
  ExpectRefused([&] { RequireEnsemble(plan_); }, "--benign 3");
  plan_.benign_runs = 0;
  plan_.reference = plan_.experiment.arms.front();
  ExpectRefused([&] { RequireEnsemble(plan_); }, "--kind seeds --steps 8");
  plan_.ensemble = gate::NullEnsemble{};
  RequireEnsemble(plan_);
}

}  // namespace
}  // namespace isoloss::qualification::kill_matrix_plan_test
