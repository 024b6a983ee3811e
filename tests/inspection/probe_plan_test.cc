#include "isoloss/inspection/probe_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "campaign/tiny_experiment.h"
#include "isoloss/gate/policy.h"
#include "isoloss/step_checks/probe_cases.h"
#include "support/expect_refused.h"
#include "support/temporary_folder.h"

namespace isoloss::inspection::probe_plan_test {
namespace {

using test_support::ExpectRefused;
using ::testing::ElementsAre;

class ProbePlanTest : public ::testing::Test {
 protected:
  step_checks::ProbeOptions OptionsOfArm(size_t arm) const {
    return ProbeOptionsOf(request_, experiment_, experiment_.arms[arm]);
  }

  test_support::TemporaryFolder folder_;
  train::Experiment experiment_ = campaign::TinyExperiment(folder_.path());
  ProbeRequest request_;
};

TEST_F(ProbePlanTest, ThreeStepsUnlessToldOrThereAreFewer) {
  EXPECT_EQ(OptionsOfArm(0).steps, 3);
  experiment_.train.steps = 2;
  EXPECT_EQ(OptionsOfArm(0).steps, 2);
  request_.steps = 1;
  EXPECT_EQ(OptionsOfArm(0).steps, 1);
}

TEST_F(ProbePlanTest, StepsThatNoRunHasAreRefused) {
  CheckProbe(request_, experiment_);
  request_.plain_steps = 8;
  CheckProbe(request_, experiment_);
  request_.plain_steps = 9;
  ExpectRefused([&] { CheckProbe(request_, experiment_); },
                "--plain-steps names step 9, but the experiment has 8");
  request_ = {.reference_steps = {1, 10}};
  ExpectRefused([&] { CheckProbe(request_, experiment_); },
                "--reference-steps names step 10");
  request_ = {.steps = 11};
  ExpectRefused([&] { CheckProbe(request_, experiment_); },
                "--steps names step 11");
}

TEST_F(ProbePlanTest, OfAllArmsTheReferenceIsNotComparedWithItself) {
  EXPECT_EQ(OptionsOfArm(1).reference, nullptr);
  request_.reference = "bf16";
  EXPECT_EQ(OptionsOfArm(0).reference, nullptr);
  EXPECT_EQ(OptionsOfArm(1).reference, &experiment_.arms[0]);
  EXPECT_THAT(OptionsOfArm(1).reference_steps, ElementsAre(1, 2, 3));
  request_.reference_steps = {5};
  EXPECT_THAT(OptionsOfArm(1).reference_steps, ElementsAre(5));
  request_.arm = "bf16";
  EXPECT_EQ(OptionsOfArm(0).reference, &experiment_.arms[0]) << "as told";
  request_.reference = "bf61";
  ExpectRefused([&] { OptionsOfArm(1); }, "bf61");
}

TEST_F(ProbePlanTest, LogsGoBesideTheRunsUnlessTold) {
  EXPECT_EQ(request_.Folder(experiment_), "runs/tiny/probes");
  request_.out = "elsewhere";
  EXPECT_EQ(request_.Folder(experiment_), "elsewhere");
}

// Verdicts ask for the cases that the gate knows: none of the oracle's may be
// missing among them.
TEST(ProbeCases, AreTheSameForTheOracleAndTheGate) {
  std::vector<std::string> names;
  for (const step_checks::ProbeCase& probe_case : step_checks::ProbeCases()) {
    names.push_back(probe_case.name);
  }
  EXPECT_THAT(names, ::testing::UnorderedElementsAreArray(gate::kProbeCases));
}

}  // namespace
}  // namespace isoloss::inspection::probe_plan_test
