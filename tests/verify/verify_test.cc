#include "isoloss/verify/verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "campaign/tiny_experiment.h"
#include "isoloss/campaign/train_arms.h"
#include "isoloss/gate/looks.h"
#include "isoloss/logs/log_files.h"
#include "isoloss/runlog/probe_log.h"
#include "support/expect_refused.h"
#include "support/temporary_folder.h"

namespace isoloss::verify::verify_test {
namespace {

using test_support::ExpectRefused;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

/// Asks the oracle for the experiment as it is, a tenth of its work.
gate::Policy Plain() {
  gate::Policy policy;
  policy.require_tuning = false;  // tiny runs at any rate
  policy.probe_cases = {"plain"};
  return policy;
}

class Verifying : public ::testing::Test {
 protected:
  VerifyPlan Plan(const std::vector<std::string>& overrides = {}) const {
    VerifyPlan plan{
        .experiment = campaign::TinyExperiment(folder_.path(), overrides),
        .policy = Plain()};
    plan.folder = out_;
    return plan;
  }
  std::set<std::string> Logs() const {
    std::set<std::string> names;
    for (const compare::Run& run : logs::ReadRuns({out_})) {
      names.insert(std::filesystem::path(run.file).stem().string());
    }
    return names;
  }

  test_support::TemporaryFolder folder_;
  const std::filesystem::path out_ = folder_.path() / "out";
};

TEST_F(Verifying, JudgesEveryOtherArmAgainstTheFirst) {
  VerifyPlan plan = Plan();
  plan.policy = {};  // all cases of the oracle
  const Verification found = Verify(std::move(plan));
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
  ASSERT_TRUE(judgement.controls && judgement.controls->Telling());
  EXPECT_EQ(judgement.controls->controls.at(0).arm, "mxfp4");
  ASSERT_THAT(judgement.controls->nulls, SizeIs(1));
  EXPECT_EQ(judgement.controls->nulls[0].perturbation, "one_ulp, draw 1");
  // Two pairs each, which part by chance.
  EXPECT_EQ(judgement.controls->nulls[0].not_judged, "");
  EXPECT_NE(judgement.controls->nulls[0].tests.at(0).pairs.mean, 0);
}

TEST_F(Verifying, TrainsOnlyTheArmsThatAreAskedForAndTheirLooks) {
  VerifyPlan plan =
      Plan({"arms.floor.recipe=mxfp8_floor", "arms.mxfp4.recipe=mxfp4_floor",
            "gate.control=mxfp4", "train.seeds=[1]", "gate.looks=[2, 3]"});
  plan.judged = {"mxfp4"};
  plan.oracle = false;
  plan.policy.margin_percent = 1e-3;
  plan.policy.alpha = 1e-6;  // so that no look decides

  const Verification found = Verify(std::move(plan));

  ASSERT_TRUE(found.judgements);
  ASSERT_THAT(*found.judgements, SizeIs(1));
  const gate::Judgement& judgement = found.judgements->front();
  EXPECT_EQ(judgement.candidate.arm, "mxfp4");
  EXPECT_FALSE(judgement.controls && judgement.controls->Telling());
  EXPECT_THAT(judgement.looks->taken, SizeIs(2));
  EXPECT_EQ(Logs(), (std::set<std::string>{"bf16-seed1", "bf16-seed2",
                                           "bf16-seed3", "mxfp4-seed1",
                                           "mxfp4-seed2", "mxfp4-seed3"}));
}

TEST_F(Verifying, AWatchOverLossesIsRefusedWithAMarginInTokens) {
  VerifyPlan plan = Plan();
  plan.abort_early = true;
  plan.policy.margin_tokens_percent = 5;

  ExpectRefused([&] { Verify(std::move(plan)); },
                "--abort-early tests a margin of loss");
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

/// So little alpha that no interval of these runs is short of the margin, and
/// so small a margin that all hold it.
gate::Policy Undecided() {
  gate::Policy policy = Plain();
  policy.margin_percent = 1e-3;
  policy.alpha = 1e-6;
  return policy;
}

/// Anything short of a doubled loss is within the margin.
gate::Policy Generous() {
  gate::Policy policy = Plain();
  policy.margin_percent = 99;
  return policy;
}

TEST_F(Verifying, FinishedRunsAreKeptAndThoseOfOtherSeedsJudgedToo) {
  VerifyPlan plan = Plan();
  plan.policy = Undecided();
  Verify(plan);
  const auto written = std::filesystem::last_write_time(out_ / "bf16-seed1.h5");
  plan.experiment =
      campaign::TinyExperiment(folder_.path(), {"train.seeds=[3]"});
  const Verification found = Verify(plan);
  EXPECT_EQ(found.judgements->front().divergences.size(), 3);
  EXPECT_EQ(std::filesystem::last_write_time(out_ / "bf16-seed1.h5"), written);
}

TEST_F(Verifying, ArmsThatAreWhatTheyWerePassAgainstApprovedRuns) {
  VerifyPlan plan = Plan();
  Verify(plan);
  plan.policy = {};  // all cases of the oracle
  plan.approved = logs::ReadRuns({out_});
  plan.folder = folder_.path() / "again";
  const Verification found = Verify(std::move(plan));
  ASSERT_TRUE(found.judgements);
  ASSERT_THAT(*found.judgements, SizeIs(2));
  for (const gate::Judgement& judgement : *found.judgements) {
    EXPECT_EQ(judgement.outcome, gate::Outcome::kPass);
  }
  EXPECT_TRUE(std::filesystem::exists(
      folder_.path() / "again" / logs::kProbeFolder / "mxfp8-seed1.probe.h5"));
}

TEST_F(Verifying, AsksTheOracleForWhatThePolicyAsksForAndThePlainCase) {
  VerifyPlan plan = Plan({"train.seeds=[1]"});
  plan.policy.probe_cases = {"router_ties"};
  Verify(std::move(plan));
  EXPECT_THAT(
      runlog::ReadProbeLog(out_ / logs::kProbeFolder / "mxfp8-seed1.probe.h5")
          .cases,
      ElementsAre("plain", "router_ties"));
}

TEST_F(Verifying, WhatIsDecidedGetsNoMoreSeeds) {
  VerifyPlan plan = Plan();
  plan.policy = Generous();
  Verify(plan);
  for (const char* seeds : {"train.seeds=[1,2,3]", "train.seeds=[3]"}) {
    plan.experiment = campaign::TinyExperiment(folder_.path(), {seeds});
    const Verification found = Verify(plan);
    EXPECT_EQ(found.judgements->front().outcome, gate::Outcome::kPass);
    EXPECT_EQ(Logs().size(), 4);
  }
}

TEST_F(Verifying, AddsSeedsUntilALookDecides) {
  VerifyPlan plan = Plan({"gate.looks=[2,3,5]"});
  plan.policy = Generous();
  const Verification found = Verify(std::move(plan));

  EXPECT_EQ(Logs().size(), 4) << "two pairs";
  EXPECT_EQ(found.judgements->front().outcome, gate::Outcome::kPass);
  EXPECT_LT(found.judgements->front().looks->NominalAlpha({}), 0.05);
}

TEST_F(Verifying, EndsAtTheLastLookAndCountsNoneTwice) {
  VerifyPlan plan = Plan({"gate.looks=[2,3,4]"});
  plan.policy = Undecided();
  const Verification first = Verify(plan);
  const auto record = gate::ReadLooks(out_ / gate::kLooksFile);
  const Verification again = Verify(plan);

  EXPECT_EQ(Logs().size(), 8);
  ASSERT_EQ(record.looks.size(), 3u);
  EXPECT_THAT(record.looks[1].seeds, ElementsAre(1, 2, 3));
  EXPECT_EQ(record.looks[2].outcomes.at("mxfp8"), "INCONCLUSIVE");
  EXPECT_EQ(gate::ReadLooks(out_ / gate::kLooksFile), record);
  EXPECT_EQ(again.judgements->front().looks->taken.size(), 3u);
  EXPECT_EQ(again.judgements->front().looks->NominalAlpha({}),
            first.judgements->front().looks->NominalAlpha({}));

  plan.experiment =
      campaign::TinyExperiment(folder_.path(), {"gate.looks=[2,3,6]"});
  ExpectRefused([&] { Verify(plan); }, "a plan made after a look");
}

TEST_F(Verifying, MoreSeedsBehindThePlanCanNotPass) {
  VerifyPlan plan = Plan();
  plan.policy = Undecided();
  Verify(plan);
  plan.experiment =
      campaign::TinyExperiment(folder_.path(), {"train.seeds=[3,4]"});
  const Verification more = Verify(plan);

  const gate::Judgement& judgement = more.judgements->front();
  EXPECT_EQ(judgement.outcome, gate::Outcome::kInconclusive);
  EXPECT_EQ(judgement.looks->NominalAlpha({}), 0);
  EXPECT_EQ(gate::ReadLooks(out_ / gate::kLooksFile).looks.size(), 1u)
      << "nothing was tested";
}

TEST_F(Verifying, SeedsOfLaterLooksAreNotSeenBefore) {
  // As `isoloss run` leaves them.
  const train::Experiment all =
      campaign::TinyExperiment(folder_.path(), {"train.seeds=[1,2,3,4]"});
  campaign::TrainArms(all, campaign::PlanTraining(all), out_, {.quiet = true});
  VerifyPlan plan = Plan({"gate.looks=[2,4]", "train.seeds=[1,2,3,4]"});
  plan.policy = Undecided();
  Verify(plan);

  const auto record = gate::ReadLooks(out_ / gate::kLooksFile);
  ASSERT_EQ(record.looks.size(), 2u);
  EXPECT_THAT(record.looks[0].seeds, ElementsAre(1, 2));
}

TEST_F(Verifying, LooksOfAnotherExperimentAreRefusedOrDiscarded) {
  Verify(Plan());
  for (const auto& entry : std::filesystem::directory_iterator(out_)) {
    if (entry.path().extension() == ".h5") std::filesystem::remove(entry);
  }
  VerifyPlan plan = Plan({"arms.mxfp8.recipe=mxfp8_floor"});
  ExpectRefused([&] { Verify(plan); }, "another experiment");
  EXPECT_FALSE(std::filesystem::exists(out_ / "bf16-seed1.h5"));

  plan.leftovers = train::Leftovers::kDiscard;
  const Verification found = Verify(plan);
  EXPECT_EQ(found.judgements->front().looks->taken.size(), 1u);
}

TEST_F(Verifying, RefusesMorePairsThanWerePlanned) {
  ExpectRefused(
      [&] {
        Verify(Plan({"gate.looks=[2,3]", "train.seeds=[1,2,3,4]"}));
      },
      "gate.looks ends at 3");
  EXPECT_FALSE(std::filesystem::exists(out_));
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

runlog::StepRow Row(int64_t step, double loss) {
  return {.step = step, .loss_nats = loss, .grad_norm = 1};
}

/// Feeds whole runs of two steps, pair by pair, until the watch has enough;
/// returns how many pairs that took, 0 if it never had.
int FeedPairs(verdicts::EarlyAbort& watch, const train::Arm& candidate,
              double percent) {
  const train::Arm baseline{.name = "bf16"};
  for (int pair = 1; pair <= 12; ++pair) {
    const auto seed = static_cast<uint64_t>(pair);
    const double loss = 3 * (1 + percent / 100 + 1e-4 * (pair % 3));
    for (const int64_t step : {1, 2}) {
      watch.Add({&baseline, seed}, Row(step, 3));
    }
    for (const int64_t step : {1, 2}) {
      if (watch.Add({&candidate, seed}, Row(step, loss))) return pair;
    }
  }
  return 0;
}

TEST(EarlyAbort, NeedsSeveralPairsOfACandidate) {
  const train::Arm mxfp8{.name = "mxfp8"};
  const train::Arm control{.name = "control"};
  verdicts::EarlyAbort good("bf16", {"mxfp8"}, {}, 12, 2);
  EXPECT_EQ(FeedPairs(good, mxfp8, 0), 0);

  verdicts::EarlyAbort bad("bf16", {"mxfp8"}, {}, 12, 2);
  const int pairs = FeedPairs(bad, mxfp8, 3);
  EXPECT_GE(pairs, 2);
  EXPECT_LE(pairs, 5);
  EXPECT_EQ(bad.hopeless()->arm, "mxfp8");
  EXPECT_EQ(bad.hopeless()->step, 2);

  verdicts::EarlyAbort other("bf16", {"mxfp8"}, {}, 12, 2);
  EXPECT_EQ(FeedPairs(other, control, 3), 0) << "it is no candidate";
}

TEST(TrainArms, StopsAllRunsOnceGoingOnIsNoUse) {
  const test_support::TemporaryFolder folder;
  const train::Experiment experiment = campaign::TinyExperiment(folder.path());
  verdicts::EarlyAbort watch("bf16", {"mxfp8"}, {}, 12, 2);
  FeedPairs(watch, train::Arm{.name = "mxfp8"}, 3);

  const campaign::ExecutedRuns executed = campaign::TrainArms(
      experiment, campaign::PlanTraining(experiment), folder.path() / "out",
      {.quiet = true, .watch = &watch});

  ASSERT_TRUE(executed.hopeless);
  EXPECT_EQ(executed.hopeless->arm, "mxfp8");
  EXPECT_FALSE(executed.interrupted);
  EXPECT_THAT(
      executed.logs,
      ElementsAre(folder.path() / "out" / "bf16-seed1.partial.h5", "", "", ""));
}

TEST(TrainArms, OneArmAloneWhereItIsAskedFor) {
  const test_support::TemporaryFolder folder;
  const train::Experiment experiment = campaign::TinyExperiment(folder.path());
  const campaign::ExecutedRuns executed = campaign::TrainArms(
      experiment, campaign::PlanTraining(experiment, "mxfp8"),
      folder.path() / "out", {.quiet = true});
  EXPECT_THAT(executed.logs, SizeIs(2));
  EXPECT_THAT(executed.logs,
              Contains(folder.path() / "out" / "mxfp8-seed2.h5"));
}

}  // namespace
}  // namespace isoloss::verify::verify_test
