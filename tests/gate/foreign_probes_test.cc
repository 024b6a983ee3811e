// Probes of other programs' runs: what binds them, what they may say, and that
// isoloss' own are judged no more leniently than before.
#include "isoloss/gate/foreign_probes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "isoloss/gate/judge.h"
#include "judged_runs.h"
#include "sample_evidence.h"
#include "support/foreign_runs.h"

namespace isoloss::gate::foreign_probes_test {
namespace {

using test_support::ForeignArms;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

/// Two tensors of each of `steps`, all elements equal.
Probe ForeignProbe(const compare::Run& run,
                   const std::vector<int64_t>& steps = {2, 3}) {
  Probe probe;
  probe.file = "probe.h5";
  runlog::ProbeLog& log = probe.log;
  log.provenance.origin.format = "operation files";
  log.provenance.arm = run.log.provenance.arm;
  log.provenance.seed = run.log.provenance.seed;
  log.provenance.recipe = "mxfp8_rceil";
  log.provenance.complete = true;
  log.provenance.steps_planned = steps.back();
  log.operations = static_cast<int64_t>(steps.size());
  log.cases = {"plain"};
  log.tensors = {"h.0.up_output", "h.0.up_dgrad"};
  for (const int64_t step : steps) {
    for (int64_t tensor = 0; tensor < 2; ++tensor) {
      log.oracle.Append(SampleRow(0, step, tensor));
    }
    log.plain_steps.step.push_back(step);
    log.plain_steps.loss_nats.push_back(
        run.log.steps.loss_nats[static_cast<size_t>(step) - 1]);
    log.plain_steps.grad_norm.push_back(std::nan(""));
    for (auto* bytes :
         {&log.plain_steps.bytes_to_self, &log.plain_steps.bytes_within_nodes,
          &log.plain_steps.bytes_between_nodes}) {
      bytes->push_back(0);
    }
  }
  return probe;
}

class ForeignProbes : public ::testing::Test {
 protected:
  /// Of candidate and baseline in turns.
  Runs runs_ = ForeignArms({0.05, 0.06, 0.07, 0.04});
  std::vector<Probe> probes_ = {ForeignProbe(runs_[1])};

  Judgement Judged() const {
    const compare::Pairing pairing =
        compare::PairBySeed("bf16", compare::RunsOfArm(runs_, "bf16"), "fp8",
                            compare::RunsOfArm(runs_, "fp8"));
    return Judge({.pairing = &pairing, .candidate_probes = probes_}, {});
  }
  /// That the probe is no evidence, and the finding says so.
  void ExpectRefused(const std::string& why) const {
    const Judgement judgement = Judged();
    EXPECT_EQ(judgement.outcome, Outcome::kInvalid) << why;
    EXPECT_THAT(CheckNamed(judgement, "probe").findings,
                Contains(HasSubstr(why)));
  }
};

TEST_F(ForeignProbes, PassAndSayWhatWasLookedAt) {
  const Judgement judgement = Judged();

  EXPECT_EQ(judgement.outcome, Outcome::kPass);
  EXPECT_EQ(LevelOf(judgement, "L2"), Outcome::kPass);
  const Check& scope = CheckNamed(judgement, "scope");
  EXPECT_THAT(scope.quantity,
              AllOf(HasSubstr("2 recorded operations of step 2 to 3"),
                    HasSubstr("nothing else of these runs")));
  EXPECT_EQ(scope.evidence, "1 probes, 4 tensors, 4000 elements");
  for (const Check& check : judgement.checks) {
    EXPECT_NE(check.name, "flip_sides");
    EXPECT_NE(check.name, "signed_error");
    if (check.level != "L2") continue;
    EXPECT_THAT(check.quantity, Not(HasSubstr("whole")));
  }
}

TEST_F(ForeignProbes, FailAndNameTheTensor) {
  auto& oracle = probes_[0].log.oracle;
  --oracle.equal[3];
  ++oracle.other[3];
  oracle.worst_ratio[3] = 40;

  const Judgement judgement = Judged();

  EXPECT_EQ(judgement.outcome, Outcome::kFail);
  EXPECT_THAT(CheckNamed(judgement, "elements").evidence,
              HasSubstr("h.0.up_dgrad in case plain, step 3"));
}

TEST_F(ForeignProbes, OfOneStepAreInconclusive) {
  probes_ = {ForeignProbe(runs_[1], {2})};

  const Judgement judgement = Judged();

  EXPECT_EQ(judgement.outcome, Outcome::kInconclusive);
  EXPECT_THAT(CheckNamed(judgement, "cases").next,
              HasSubstr("isoloss check-tensors --out"));
}

TEST_F(ForeignProbes, OfStepOneAloneAreInconclusive) {
  // The plan of such a probe is its last step, so it asks for no second one.
  probes_ = {ForeignProbe(runs_[1], {1})};

  EXPECT_EQ(Judged().outcome, Outcome::kInconclusive);
}

TEST_F(ForeignProbes, WithOpenPointsAreInconclusiveUnlessElementsAreWrong) {
  probes_[0].log.provenance.complete = false;

  const Judgement judgement = Judged();

  EXPECT_EQ(judgement.outcome, Outcome::kInconclusive);
  EXPECT_THAT(CheckNamed(judgement, "scope").quantity,
              HasSubstr("not marked as complete"));
  --probes_[0].log.oracle.equal[3];
  ++probes_[0].log.oracle.other[3];
  probes_[0].log.oracle.worst_ratio[3] = 40;
  EXPECT_EQ(Judged().outcome, Outcome::kFail);
}

TEST_F(ForeignProbes, MayHaveNormsThatTheLogRounds) {
  runs_[1].log.told.grad_norm_half_unit = 0.005;
  probes_[0].log.plain_steps.grad_norm[0] = 1.0049;
  EXPECT_EQ(Judged().outcome, Outcome::kPass);
  probes_[0].log.plain_steps.grad_norm[0] = 1.0051;
  ExpectRefused("gradient norm of step 2");
}

TEST_F(ForeignProbes, AreBoundByLossesAndWhatElseIsTold) {
  probes_[0].log.plain_steps.loss_nats[1] *= 1 + 1e-5;
  ExpectRefused("loss of step 3");
  probes_ = {ForeignProbe(runs_[1])};
  probes_[0].log.plain_steps.loss_nats[1] *= 1 + 1e-7;  // of another order
  EXPECT_EQ(Judged().outcome, Outcome::kPass);
  probes_[0].log.plain_steps.grad_norm[0] = 1.5;
  ExpectRefused("gradient norm of step 2");
  probes_ = {ForeignProbe(runs_[1])};
  for (double& loss : probes_[0].log.plain_steps.loss_nats) {
    loss = std::nan("");
  }
  ExpectRefused("nothing binds one to the other");
  probes_ = {ForeignProbe(runs_[1])};
  probes_[0].log.provenance.seed = 9;
  ExpectRefused("seed 9 is none");
  probes_ = {ForeignProbe(runs_[1])};
  const auto name_recipe = [this](const std::string& recipe) {
    for (size_t i = 1; i < runs_.size(); i += 2) {
      runs_[i].log.provenance.recipe = recipe;
    }
  };
  name_recipe("bf16");
  ExpectRefused("recipe is 'mxfp8_rceil'");
  name_recipe("");
  runs_[1].log.provenance.initial_weights_digest = "a";
  probes_[0].log.provenance.initial_weights_digest = "b";
  ExpectRefused("initial_weights_digest is 'b'");
}

TEST_F(ForeignProbes, MustNotContradictThemselves) {
  probes_[0].log.operations = 0;
  ExpectRefused("attribute operations is 0");
  probes_ = {ForeignProbe(runs_[1])};
  probes_[0].log.cases.emplace_back("hot_row");
  ExpectRefused("it has 2 cases");
  probes_ = {ForeignProbe(runs_[1])};
  probes_[0].log.tensors.emplace_back("h.1.up_output");
  ExpectRefused("it lists 3 tensors, but has rows of 2");
  probes_ = {ForeignProbe(runs_[1])};
  probes_[0].log.oracle.flips[0] = 7;  // of no element
  EXPECT_EQ(Judged().outcome, Outcome::kInvalid);
}

// A probe that only says of itself that it is foreign gets round nothing.
TEST(OwnRuns, TakeNoForeignProbe) {
  const TwoVersions versions(1, /*equal=*/true);
  const compare::Pairing pairing = versions.Pair();
  std::vector<Probe> probes = {SampleProbe(versions.now[0])};
  probes[0].log.provenance.origin.format = "operation files";

  const Judgement judgement =
      Judge({.pairing = &pairing, .candidate_probes = probes},
            {.question = compare::Question::kRegression});

  EXPECT_EQ(judgement.outcome, Outcome::kInvalid);
  EXPECT_THAT(CheckNamed(judgement, "probe").findings,
              Contains(HasSubstr("trained by isoloss itself")));
}

TEST(ForeignRegression, NeedsOperationsOfTheStepAtWhichRunsPart) {
  Runs runs = ForeignArms({0, 0});
  for (compare::Run& run : runs) run.log.provenance.arm = "fp8";
  for (size_t i = 40; i < runs[1].log.steps.loss_nats.size(); ++i) {
    runs[1].log.steps.loss_nats[i] *= 1 + 1e-6;
  }
  const compare::Pairing pairing =
      compare::PairBySeed("fp8", {&runs[0]}, "fp8", {&runs[1]});
  const auto parting = [&](const std::vector<int64_t>& steps) {
    return MissesParting(ForeignProbe(runs[1], steps), pairing.pairs[0]);
  };

  EXPECT_FALSE(parting({3, 40}));
  EXPECT_FALSE(parting({41}));
  ASSERT_TRUE(parting({1, 2, 3, 100}));
  EXPECT_EQ(parting({1, 2, 3, 100})->outcome, Outcome::kInconclusive);
  EXPECT_THAT(parting({1, 2, 3, 100})->quantity,
              AllOf(HasSubstr("part at step 41"),
                    HasSubstr("looked at step 1 to 3, 100")));
}

}  // namespace
}  // namespace isoloss::gate::foreign_probes_test
