#include "isoloss/campaign/verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "isoloss/campaign/log_files.h"
#include "isoloss/campaign/train_arms.h"
#include "support/expect_refused.h"
#include "support/temporary_folder.h"
#include "tiny_experiment.h"

namespace isoloss::campaign {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using testing::ExpectRefused;
using ::testing::HasSubstr;
using ::testing::SizeIs;

class Verifying : public ::testing::Test {
 protected:
  VerifyPlan Plan(const std::vector<std::string>& overrides = {}) const {
    VerifyPlan plan{.experiment = TinyExperiment(folder_.path(), overrides)};
    plan.folder = out_;
    return plan;
  }
  std::set<std::string> Logs() const {
    std::set<std::string> names;
    for (const compare::Run& run : ReadRuns({out_})) {
      names.insert(std::filesystem::path(run.file).stem().string());
    }
    return names;
  }

  testing::TemporaryFolder folder_;
  const std::filesystem::path out_ = folder_.path() / "out";
};

TEST_F(Verifying, JudgesEveryOtherArmAgainstTheFirst) {
  const Verification found = Verify(Plan());
  EXPECT_FALSE(found.interrupted);
  ASSERT_TRUE(found.judgements);
  ASSERT_THAT(*found.judgements, SizeIs(1));
  EXPECT_EQ(found.judgements->front().candidate.arm, "mxfp8");
  EXPECT_EQ(Logs(), (std::set<std::string>{"bf16-seed1", "bf16-seed2",
                                           "mxfp8-seed1", "mxfp8-seed2"}));
}

TEST_F(Verifying, TrainsNullArmsAndTheControlAndJudgesCandidatesBesideThem) {
  const Verification found =
      // In so small a model BF16 would hide the last bit of FP32.
      Verify(Plan({"arms.bf16.recipe=fp32", "arms.null.recipe=fp32",
                   "arms.null.perturb=one_ulp", "arms.mxfp4.recipe=mxfp4_floor",
                   "gate.control=mxfp4"}));

  ASSERT_TRUE(found.judgements);
  ASSERT_THAT(*found.judgements, SizeIs(1));
  const gate::Judgement& judgement = found.judgements->front();
  EXPECT_EQ(judgement.candidate.arm, "mxfp8");
  ASSERT_TRUE(judgement.controls && judgement.controls->control);
  EXPECT_EQ(judgement.controls->control->arm, "mxfp4");
  ASSERT_THAT(judgement.controls->nulls, SizeIs(1));
  EXPECT_EQ(judgement.controls->nulls[0].perturbation, "one_ulp, draw 1");
  // Two pairs each, which part by chance.
  EXPECT_EQ(judgement.controls->nulls[0].not_judged, "");
  EXPECT_NE(judgement.controls->nulls[0].tests.at(0).mean, 0);
}

TEST_F(Verifying, ADryRunTrainsNothing) {
  VerifyPlan plan = Plan();
  plan.dry_run = true;
  ::testing::internal::CaptureStdout();
  EXPECT_FALSE(Verify(std::move(plan)).judgements);
  EXPECT_THAT(::testing::internal::GetCapturedStdout(),
              HasSubstr("[arms.mxfp8]"));
  EXPECT_FALSE(std::filesystem::exists(out_));
}

TEST_F(Verifying, FinishedRunsAreKeptAndThoseOfOtherSeedsJudgedToo) {
  Verify(Plan());
  const auto written = std::filesystem::last_write_time(out_ / "bf16-seed1.h5");
  const Verification found = Verify(Plan({"train.seeds=[3]"}));
  EXPECT_EQ(found.judgements->front().divergences.size(), 3);
  EXPECT_EQ(std::filesystem::last_write_time(out_ / "bf16-seed1.h5"), written);
}

TEST_F(Verifying, ArmsThatAreWhatTheyWerePassAgainstApprovedRuns) {
  Verify(Plan());
  VerifyPlan plan = Plan();
  plan.approved = ReadRuns({out_});
  plan.folder = folder_.path() / "again";
  const Verification found = Verify(std::move(plan));
  ASSERT_TRUE(found.judgements);
  ASSERT_THAT(*found.judgements, SizeIs(2));
  for (const gate::Judgement& judgement : *found.judgements) {
    EXPECT_EQ(judgement.outcome, gate::Outcome::kPass);
  }
  EXPECT_TRUE(std::filesystem::exists(folder_.path() / "again" / kProbeFolder /
                                      "mxfp8-seed1.probe.h5"));
}

TEST_F(Verifying, RefusesBeforeItTrains) {
  VerifyPlan alone = Plan();
  alone.experiment.arms.resize(1);
  ExpectRefused([&] { Verify(alone); }, "needs a second arm");

  VerifyPlan other = Plan();
  compare::Run approved;
  approved.log.provenance.arm = "fp4";
  other.approved = {approved};
  ExpectRefused([&] { Verify(other); }, "Give approved logs of one of them");
  EXPECT_FALSE(std::filesystem::exists(out_));

  std::filesystem::create_directories(out_);
  std::ofstream(out_ / "verdict.json") << "my notes";
  ExpectRefused([&] { Verify(Plan()); }, "verdict");
  EXPECT_FALSE(std::filesystem::exists(out_ / "bf16-seed1.h5"));
}

TEST(TrainArms, StopsAllRunsOnceAPairIsBeyondHope) {
  const testing::TemporaryFolder folder;
  const train::Experiment experiment = TinyExperiment(folder.path());
  // Good pairs that never part in the loss: the first difference is an alarm.
  gate::Policy policy;
  policy.margin_percent = 1e-9;
  policy.sequential_batch = 2;
  EarlyAbort watch("bf16", {"mxfp8"}, policy,
                   {{"mxfp8", {.sd_percent = 1e-9}}});

  const ExecutedRuns executed =
      TrainArms(experiment, PlanTraining(experiment), folder.path() / "out",
                {.quiet = true, .watch = &watch});

  ASSERT_TRUE(executed.hopeless);
  EXPECT_EQ(executed.hopeless->arm, "mxfp8");
  EXPECT_EQ(executed.hopeless->seed, 1u);
  EXPECT_EQ(executed.hopeless->step, 2);
  EXPECT_FALSE(executed.interrupted);
  EXPECT_THAT(
      executed.logs,
      ElementsAre(folder.path() / "out" / "bf16-seed1.h5",
                  folder.path() / "out" / "mxfp8-seed1.partial.h5", "", ""));
}

/// A control that is beyond hope does what it is for.
TEST(TrainArms, WatchesCandidatesOnly) {
  const testing::TemporaryFolder folder;
  const train::Experiment experiment = TinyExperiment(folder.path());
  gate::Policy policy;
  policy.margin_percent = 1e-9;
  policy.sequential_batch = 2;
  EarlyAbort watch("bf16", {"other"}, policy,
                   {{"mxfp8", {.sd_percent = 1e-9}}});

  const ExecutedRuns executed =
      TrainArms(experiment, PlanTraining(experiment), folder.path() / "out",
                {.quiet = true, .watch = &watch});

  EXPECT_FALSE(executed.hopeless);
}

TEST(TrainArms, OneArmAloneWhereItIsAskedFor) {
  const testing::TemporaryFolder folder;
  const train::Experiment experiment = TinyExperiment(folder.path());
  const ExecutedRuns executed =
      TrainArms(experiment, PlanTraining(experiment, "mxfp8"),
                folder.path() / "out", {.quiet = true});
  EXPECT_THAT(executed.logs, SizeIs(2));
  EXPECT_THAT(executed.logs,
              Contains(folder.path() / "out" / "mxfp8-seed2.h5"));
}

}  // namespace
}  // namespace isoloss::campaign
