#include "isoloss/ensembles/ensemble_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "campaign/tiny_experiment.h"
#include "support/expect_refused.h"
#include "support/temporary_folder.h"

namespace isoloss::ensembles::ensemble_plan_test {
namespace {

using test_support::ExpectRefused;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

class EnsemblePlanTest : public ::testing::Test {
 protected:
  EnsemblePlanTest() {
    const train::Experiment tiny = campaign::TinyExperiment(folder_.path());
    request_.source.file = tiny.path.string();
    request_.runs = 3;
    request_.out = folder_.path() / "null.h5";
    request_.probe_steps = {1, 2};
  }

  test_support::TemporaryFolder folder_;
  EnsembleRequest request_;
};

TEST_F(EnsemblePlanTest, BenignMembersTakeTheExperimentsSeedsInTurn) {
  const EnsemblePlan plan = PlanEnsemble(request_);

  EXPECT_EQ(plan.arm, "mxfp8");
  EXPECT_EQ(plan.baseline_arm, "bf16");
  EXPECT_THAT(plan.seeds, ElementsAre(1, 2, 1));
  EXPECT_EQ(plan.steps, 8);  // all: the policy's window has more
  EXPECT_THAT(plan.probe_steps, IsEmpty());
  EXPECT_EQ(plan.folder, folder_.path() / "null.h5.members");
}

TEST_F(EnsemblePlanTest, MembersOfSeedsHaveNewOnes) {
  request_.kind = runlog::EnsembleKind::kSeeds;
  request_.steps = 4;
  const EnsemblePlan plan = PlanEnsemble(request_);

  EXPECT_THAT(plan.seeds, ElementsAre(1'000'001, 1'000'002, 1'000'003));
  EXPECT_THAT(plan.probe_steps, ElementsAre(1, 2));
  EXPECT_EQ(plan.steps, 4);
}

TEST_F(EnsemblePlanTest, NoRunIsJudgedByItself) {
  request_.kind = runlog::EnsembleKind::kSeeds;
  request_.first_seed = 2;
  ExpectRefused([&] { PlanEnsemble(request_); }, "seed 2 is one of");
}

TEST_F(EnsemblePlanTest, TheBaselineIsNoPairWithItself) {
  request_.kind = runlog::EnsembleKind::kSeeds;
  request_.arm = "bf16";
  ExpectRefused([&] { PlanEnsemble(request_); }, "bf16 is the baseline");
  request_.kind = runlog::EnsembleKind::kBenign;
  EXPECT_EQ(PlanEnsemble(request_).arm, "bf16");
}

TEST_F(EnsemblePlanTest, NoMoreStepsThanTheExperimentHas) {
  request_.steps = 9;
  ExpectRefused([&] { PlanEnsemble(request_); }, "--steps is 9");
}

TEST_F(EnsemblePlanTest, OnlyAnEnsembleIsReplaced) {
  CheckEnsembleOutput(request_.out);  // nothing is there
  ExpectRefused([&] { CheckEnsembleOutput(folder_.path()); }, "is a folder");
  std::ofstream(request_.out) << "a letter";
  ExpectRefused([&] { CheckEnsembleOutput(request_.out); },
                "is no null ensemble");
}

}  // namespace
}  // namespace isoloss::ensembles::ensemble_plan_test
