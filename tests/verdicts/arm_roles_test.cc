// Which arms are candidates, and what becomes of the others.
#include "isoloss/verdicts/arm_roles.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iterator>
#include <string>
#include <vector>

#include "campaign/tiny_experiment.h"
#include "isoloss/verdicts/judge_arms.h"
#include "support/control_arms.h"
#include "support/expect_refused.h"
#include "support/temporary_folder.h"

namespace isoloss::verdicts::arm_roles_test {
namespace {

using test_support::ExpectRefused;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

using Runs = std::vector<compare::Run>;

const std::vector<double> kGood = {0.05, 0.06, 0.07, 0.04};
const std::vector<double> kBad = {0.9, 1.0, 1.1, 1.0};

void Append(Runs more, Runs& runs) {
  std::move(more.begin(), more.end(), std::back_inserter(runs));
}

/// bf16 and mxfp8, with a null arm and mxfp4, which is worse.
Runs FourArms() {
  Runs runs = test_support::SyntheticExperiment(kGood);
  Append(test_support::NullRuns({0.02, -0.02, 0.01, -0.01}), runs);
  Append(test_support::ArmRuns("mxfp4", kBad), runs);
  return runs;
}

TEST(ArmRoles, OfLogsFollowFromRecipeExchangePerturbationAndName) {
  const ArmRoles roles = RolesOf(FourArms(), "bf16", "mxfp4");

  EXPECT_THAT(roles.candidates, ElementsAre("mxfp8"));
  EXPECT_THAT(roles.nulls, ElementsAre("null"));
  EXPECT_THAT(roles.controls, ElementsAre("mxfp4"));
}

TEST(ArmRoles, OfLogsTakeTheControlThatTheirExperimentNames) {
  Runs runs = FourArms();
  for (compare::Run& run : runs) {
    run.log.provenance.experiment_text += "[gate]\ncontrol = \"mxfp4\"\n";
  }

  EXPECT_THAT(RolesOf(runs, "bf16", {}).controls, ElementsAre("mxfp4"));
  // Who asks for another one, or for none, gets that.
  EXPECT_THAT(RolesOf(runs, "bf16", "").controls, IsEmpty());
  EXPECT_THAT(RolesOf(runs, "bf16", "").candidates,
              ElementsAre("mxfp8", "mxfp4"));
}

TEST(ArmRoles, OfLogsTakeEveryControlThatTheirExperimentNames) {
  Runs runs = FourArms();
  Append(test_support::ArmRuns("mild", {0.1, 0.2, 0.1, 0.2}), runs);
  for (compare::Run& run : runs) {
    run.log.provenance.experiment_text +=
        "[gate]\ncontrol = [\"mild\", \"mxfp4\"]\n";
  }

  const ArmRoles roles = RolesOf(runs, "bf16", {});
  EXPECT_THAT(roles.controls, ElementsAre("mild", "mxfp4"));
  EXPECT_THAT(roles.candidates, ElementsAre("mxfp8"));
  // The mild one lies within the margin; that the other fails is enough.
  const auto judgements = JudgeArms(runs, "bf16", {});
  ASSERT_THAT(judgements, SizeIs(1));
  EXPECT_EQ(judgements[0].controls->Telling()->arm, "mxfp4");
  EXPECT_EQ(judgements[0].outcome, gate::Outcome::kPass);
}

TEST(ArmRoles, OfAnExperimentAreThoseOfItsLogs) {
  const test_support::TemporaryFolder folder;
  const std::vector<std::string> arms = {
      "arms.null.recipe=bf16",         "arms.null.perturb=one_ulp",
      "arms.noisy.recipe=mxfp8_rceil", "arms.noisy.perturb=one_ulp",
      "arms.mxfp4.recipe=mxfp4_floor", "gate.control=mxfp4"};

  const ArmRoles roles = RolesOf(campaign::TinyExperiment(folder.path(), arms));

  EXPECT_THAT(roles.candidates, ElementsAre("mxfp8", "noisy"));
  EXPECT_THAT(roles.nulls, ElementsAre("null"));
  EXPECT_THAT(roles.controls, ElementsAre("mxfp4"));
}

class ChosenArms : public ::testing::Test {
 protected:
  ArmRoles Judged(const std::vector<std::string>& names) const {
    return RolesOf(experiment_, names);
  }

  test_support::TemporaryFolder folder_;
  train::Experiment experiment_ = campaign::TinyExperiment(
      folder_.path(), {"arms.null.recipe=bf16", "arms.null.perturb=one_ulp",
                       "arms.floor.recipe=mxfp8_floor",
                       "arms.mxfp4.recipe=mxfp4_floor", "gate.control=mxfp4"});
};

TEST_F(ChosenArms, AreJudgedBesideNullArmsAndTheControl) {
  const ArmRoles roles = Judged({"floor"});

  EXPECT_THAT(roles.candidates, ElementsAre("floor"));
  EXPECT_THAT(roles.nulls, ElementsAre("null"));
  EXPECT_THAT(roles.controls, ElementsAre("mxfp4"));
  EXPECT_TRUE(HasRole(roles, "floor"));
  EXPECT_TRUE(HasRole(roles, "null"));
  EXPECT_TRUE(HasRole(roles, "mxfp4"));
  EXPECT_FALSE(HasRole(roles, "mxfp8"));
  EXPECT_FALSE(HasRole(roles, "bf16"));
  // In the order of the file, each once.
  EXPECT_THAT(Judged({"floor", "mxfp8", "floor"}).candidates,
              ElementsAre("mxfp8", "floor"));
}

TEST_F(ChosenArms, MayBeANullArmOrTheControl) {
  const ArmRoles null = Judged({"null"});
  EXPECT_THAT(null.candidates, ElementsAre("null"));
  EXPECT_THAT(null.controls, ElementsAre("mxfp4"));

  const ArmRoles control = Judged({"mxfp4"});
  EXPECT_THAT(control.candidates, ElementsAre("mxfp4"));
  EXPECT_THAT(control.nulls, ElementsAre("null"));
}

TEST(JudgeRoles, JudgesNoArmBesideItself) {
  const ArmRoles roles = {.candidates = {"mxfp8", "null", "mxfp4"},
                          .nulls = {"null"},
                          .controls = {"mxfp4"}};

  const auto judgements = JudgeRoles(FourArms(), "bf16", roles, {}, {});

  ASSERT_THAT(judgements, SizeIs(3));
  for (const gate::Judgement& judgement : judgements) {
    const std::string& arm = judgement.candidate.arm;
    ASSERT_TRUE(judgement.controls) << arm;
    EXPECT_EQ(judgement.controls->nulls.empty(), arm == "null") << arm;
    EXPECT_EQ(judgement.controls->Telling() != nullptr, arm != "mxfp4") << arm;
    EXPECT_EQ(judgement.controls->is_candidate, arm == "mxfp4") << arm;
  }
  EXPECT_EQ(judgements[1].outcome, gate::Outcome::kPass);
  EXPECT_EQ(judgements[2].outcome, gate::Outcome::kFail);
}

TEST_F(ChosenArms, AreThoseOfTheExperimentButTheBaseline) {
  ExpectRefused(
      [&] {
        Judged({"floor", "bf16"});
      },
      "`bf16` is the baseline, which the others are judged against. "
      "Name one of mxfp8, null, floor, mxfp4.");
  ExpectRefused([&] { Judged({"flor"}); },
                "there is no arm `flor`. Arms of this experiment: bf16, mxfp8, "
                "null, floor, mxfp4. Did you mean `floor`?");
}

TEST(ArmRoles, RefuseAControlThatCannotBeOne) {
  const Runs runs = FourArms();
  const Runs three = test_support::SyntheticExperiment(kGood);

  ExpectRefused(
      [&] { RolesOf(runs, "bf16", "mxfp4x"); },
      "no log of arm `mxfp4x`; the logs are of mxfp8, null, mxfp4 and "
      "the baseline bf16. Give its logs too, or name another "
      "control. Did you mean `mxfp4`?");
  ExpectRefused([&] { RolesOf(runs, "bf16", "bf16"); }, "is the baseline");
  ExpectRefused([&] { RolesOf(three, "bf16", "mxfp8"); },
                "the control is mxfp8, and no arm is left to be judged");
}

TEST(JudgeArms, GivesNoVerdictOnNullArmsAndTheControl) {
  Runs runs = FourArms();
  Append(test_support::ArmRuns("other", {0.06, 0.05, 0.04, 0.07}), runs);

  const auto judgements = JudgeArms(runs, "bf16", {}, {}, "mxfp4");

  ASSERT_THAT(judgements, SizeIs(2));
  for (const gate::Judgement& judgement : judgements) {
    EXPECT_EQ(judgement.outcome, gate::Outcome::kPass)
        << judgement.candidate.arm;
    ASSERT_TRUE(judgement.controls && judgement.controls->Telling());
    EXPECT_TRUE(judgement.controls->controls.at(0).SeenWorse());
    EXPECT_THAT(judgement.controls->nulls, SizeIs(1));
  }
  EXPECT_EQ(judgements[1].candidate.arm, "other");
}

TEST(JudgeArms, JudgesANullArmThatIsAllThereIs) {
  Runs runs = test_support::SyntheticExperiment(kGood);
  std::erase_if(runs, [](const compare::Run& run) {
    return run.log.provenance.arm == "mxfp8";
  });
  Append(test_support::NullRuns({0.02, -0.02, 0.01, -0.01}), runs);
  for (compare::Run& run : runs) {  // no log of it is given
    run.log.provenance.experiment_text += "[gate]\ncontrol = \"mxfp4\"\n";
  }

  const auto judgements = JudgeArms(runs, "bf16", {});

  ASSERT_THAT(judgements, SizeIs(1));
  EXPECT_EQ(judgements[0].candidate.arm, "null");
  EXPECT_EQ(judgements[0].outcome, gate::Outcome::kPass);
  EXPECT_THAT(judgements[0].controls->nulls, IsEmpty());
  EXPECT_FALSE(judgements[0].controls->Telling() != nullptr);
}

/// Who leaves out the logs of a control that came out wrong gets no PASS.
TEST(JudgeArms, DoesNotPassWithoutTheLogsOfTheControlThatTheyName) {
  Runs runs = test_support::SyntheticExperiment(kGood);
  for (compare::Run& run : runs) {
    run.log.provenance.experiment_text += "[gate]\ncontrol = \"mxfp4\"\n";
  }

  const auto judgements = JudgeArms(runs, "bf16", {});

  ASSERT_THAT(judgements, SizeIs(1));
  EXPECT_EQ(judgements[0].outcome, gate::Outcome::kInconclusive);
  EXPECT_THAT(judgements[0].checks.back().quantity,
              AllOf(HasSubstr("mxfp4 was not judged"),
                    HasSubstr("no log of it was given")));
}

}  // namespace
}  // namespace isoloss::verdicts::arm_roles_test
