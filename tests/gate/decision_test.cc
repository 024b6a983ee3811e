// Which levels decide a verdict.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "judged_runs.h"
#include "sample_evidence.h"

namespace isoloss::gate::decision_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// One seed that drifted: L5 alone can't pass it.
class DecisionTest : public ::testing::Test {
 protected:
  TwoVersions versions_{1};
  size_t probed_steps_ = 1000;  ///< of case plain, at most
  const NullEnsemble benign_ = BenignEnsemble(20);

  Judgement Judged(bool probe, bool ensemble, const Policy& policy,
                   const LadderOptions& options = {}) const {
    const compare::Pairing pairing = versions_.Pair();
    std::vector<Probe> probes = {SampleProbe(versions_.now[0])};
    const size_t all = probes[0].log.plain_steps.step.size();
    const size_t seen = std::min(probed_steps_, all);
    KeepPlainSteps(seen, probes[0]);
    Evidence evidence{.pairing = &pairing};
    if (probe) evidence.candidate_probes = probes;
    if (ensemble) evidence.benign = &benign_;
    return Judge(evidence, policy, options);
  }
};

TEST_F(DecisionTest, OracleAndEarlyWindowTogetherPassARegression) {
  const Judgement judgement = Judged(true, true, Regression());

  EXPECT_EQ(judgement.outcome, Outcome::kPass);
  const Check& late = CheckNamed(judgement, "final_window");
  EXPECT_EQ(late.outcome, Outcome::kInconclusive);
  EXPECT_FALSE(late.gates);
}

TEST_F(DecisionTest, TheOracleAlonePassesARegressionOfWhichItSawAllSteps) {
  const Judgement judgement = Judged(true, false, Regression());

  EXPECT_EQ(judgement.outcome, Outcome::kPass);
  EXPECT_FALSE(CheckNamed(judgement, "final_window").gates);
}

TEST_F(DecisionTest, OneOfThemAloneDoesNotAndTheVerdictSaysWhatIsMissing) {
  Policy policy = Regression();
  policy.parted_steps = 10;
  probed_steps_ = 10;
  const Judgement probed = Judged(true, false, policy);
  const Judgement early = Judged(false, true, Regression());
  const Judgement neither = Judged(false, false, Regression());

  EXPECT_EQ(probed.outcome, Outcome::kInconclusive);
  EXPECT_EQ(probed.checks.back().level, "L4");
  EXPECT_THAT(probed.checks.back().next,
              HasSubstr("isoloss lab ensemble build"));
  EXPECT_EQ(early.outcome, Outcome::kInconclusive);
  EXPECT_EQ(early.checks.back().level, "L2");
  EXPECT_THAT(early.checks.back().next, HasSubstr("isoloss lab probe"));
  EXPECT_EQ(neither.outcome, Outcome::kInconclusive);
}

TEST_F(DecisionTest, TheFinalWindowOfEnoughSeedsPassesARegression) {
  versions_ = TwoVersions(4);

  EXPECT_EQ(Judged(false, false, Regression()).outcome, Outcome::kPass);
}

TEST_F(DecisionTest, EqualLossesAreNotAllThatIsSaidOfOtherWeights) {
  versions_ = TwoVersions(4, /*equal=*/true);
  EXPECT_EQ(Judged(false, false, Regression()).equality_note, "");

  versions_.now[2].log.provenance.final_weights_digest = "other";
  const Judgement judgement = Judged(false, false, Regression());

  EXPECT_FALSE(judgement.bit_equal);
  EXPECT_EQ(judgement.outcome, Outcome::kPass);
  EXPECT_THAT(judgement.equality_note, HasSubstr("final weights differ"));
}

TEST_F(DecisionTest, AFailureStandsWhateverElsePasses) {
  versions_ = TwoVersions(4);
  for (auto& run : versions_.now) {
    for (size_t i = 40; i < 50; ++i) run.log.steps.loss_nats[i] *= 1.02;
  }

  const Judgement judgement = Judged(true, true, Regression());

  EXPECT_EQ(LevelOf(judgement, "L2"), Outcome::kPass);
  EXPECT_EQ(LevelOf(judgement, "L4"), Outcome::kPass);
  EXPECT_EQ(judgement.outcome, Outcome::kFail);
}

TEST_F(DecisionTest, EqualBitsPassAndLeaveOnlyTheProbeToJudge) {
  versions_ = TwoVersions(1, /*equal=*/true);

  const Judgement judgement = Judged(true, true, Regression());

  EXPECT_EQ(judgement.outcome, Outcome::kPass);
  EXPECT_TRUE(judgement.bit_equal);
  EXPECT_EQ(LevelOf(judgement, "L1"), Outcome::kPass);
  EXPECT_EQ(LevelOf(judgement, "L2"), Outcome::kPass);
  EXPECT_EQ(LevelOf(judgement, "L4"), std::nullopt);
  EXPECT_EQ(LevelOf(judgement, "L5"), std::nullopt);
}

TEST_F(DecisionTest, LevelsAskedForByNameMustHaveTheirEvidence) {
  Policy policy = Regression();
  policy.levels = {"L2", "L4"};

  const Judgement whole = Judged(true, true, policy);
  const Judgement part = Judged(true, false, policy);

  EXPECT_EQ(whole.outcome, Outcome::kPass);
  EXPECT_EQ(LevelOf(whole, "L5"), std::nullopt);
  EXPECT_EQ(part.outcome, Outcome::kInconclusive);
  EXPECT_EQ(part.checks.back().level, "L4");
}

TEST_F(DecisionTest, L1AskedForByNameNeedsEqualBits) {
  Policy policy = Regression();
  policy.levels = {"L1"};

  const Judgement drifted = Judged(false, false, policy);
  versions_ = TwoVersions(1, /*equal=*/true);
  const Judgement equal = Judged(false, false, policy);
  // As a program of an early layout left it.
  for (auto* runs : {&versions_.now, &versions_.approved}) {
    (*runs)[0].log.schema_version = runlog::kFullTextVersion - 1;
    (*runs)[0].log.provenance.final_weights_digest.clear();
  }
  const Judgement unknown = Judged(false, false, policy);

  EXPECT_EQ(drifted.outcome, Outcome::kFail);
  EXPECT_EQ(CheckNamed(drifted, "bit_equal").outcome, Outcome::kFail);
  EXPECT_EQ(equal.outcome, Outcome::kPass);
  EXPECT_FALSE(unknown.bit_equal);
  EXPECT_EQ(unknown.outcome, Outcome::kFail);
}

TEST_F(DecisionTest, LevelsThatDoNotAnswerTheQuestionNeverPass) {
  const auto regression = [&](std::vector<std::string> levels) {
    Policy policy = Regression();
    policy.levels = std::move(levels);
    return Judged(true, true, policy).outcome;
  };
  const auto precision = [](std::vector<std::string> levels) {
    const TwoArms arms(4);
    const compare::Pairing pairing = arms.Pair();
    Policy policy;
    policy.levels = std::move(levels);
    return Judge({.pairing = &pairing}, policy).outcome;
  };

  EXPECT_EQ(regression({"L0"}), Outcome::kInconclusive);
  EXPECT_EQ(regression({"L3"}), Outcome::kInconclusive);
  EXPECT_EQ(regression({"L0", "L2"}), Outcome::kPass);
  EXPECT_EQ(precision({"L1"}), Outcome::kInconclusive);
  EXPECT_EQ(precision({"L1", "L5"}), Outcome::kInconclusive);
  EXPECT_EQ(precision({"L0", "L5"}), Outcome::kPass);
}

/// A faithful emulation of a bad recipe, say MXFP4: the oracle explains every
/// element, and the loss ends outside the margin.
TEST_F(DecisionTest, NoListOfLevelsLeavesTheEndOfTrainingOut) {
  TwoArms arms(4);
  for (size_t seed = 0; seed < 4; ++seed) {
    for (double& loss : arms.Candidate(seed).log.steps.loss_nats) loss *= 1.01;
  }
  const compare::Pairing pairing = arms.Pair();
  const std::vector<Probe> probes = {SampleProbe(arms.Candidate(0))};
  for (const auto& levels : {std::vector<std::string>{"L2"}, {}}) {
    Policy policy;
    policy.levels = levels;

    const Judgement judgement =
        Judge({.pairing = &pairing, .candidate_probes = probes}, policy);

    EXPECT_EQ(LevelOf(judgement, "L2"), Outcome::kPass);
    EXPECT_EQ(LevelOf(judgement, "L5"), Outcome::kFail);
    EXPECT_EQ(judgement.outcome, Outcome::kFail);
  }
}

TEST_F(DecisionTest, NamesTheLevelsThatHadNoEvidence) {
  const TwoArms arms(4);
  const compare::Pairing pairing = arms.Pair();
  const std::vector<Probe> probes = {SampleProbe(arms.Candidate(0))};

  const Judgement bare = Judge({.pairing = &pairing}, {});
  const Judgement probed =
      Judge({.pairing = &pairing, .candidate_probes = probes}, {});

  EXPECT_EQ(bare.outcome, Outcome::kPass);
  EXPECT_THAT(bare.WithoutEvidence(), ElementsAre("L2", "L3", "L4"));
  EXPECT_THAT(probed.WithoutEvidence(), ElementsAre("L3", "L4"));
}

TEST_F(DecisionTest, ARecipeThatTheOracleDoesNotUnderstandIsInconclusive) {
  const TwoArms arms(4);
  const compare::Pairing pairing = arms.Pair();

  const Judgement judgement = Judge(
      {.pairing = &pairing, .oracle_gap = "accumulator x is not known"}, {});

  EXPECT_EQ(judgement.outcome, Outcome::kInconclusive);
  EXPECT_EQ(LevelOf(judgement, "L2"), Outcome::kInconclusive);
}

/// A candidate must not bring its own limits.
TEST_F(DecisionTest, AnEnsembleOfTheCandidatesOwnCodeIsRefused) {
  const TwoArms arms(4);
  const compare::Pairing pairing = arms.Pair();
  const std::vector<Probe> probes = {PrecisionProbe(arms.Candidate(0))};
  NullEnsemble seeds = SeedsEnsemble(16);
  seeds.ensemble.members[3].perturbation.clear();

  const Judgement judgement =
      Judge({.pairing = &pairing, .candidate_probes = probes, .seeds = &seeds},
            FewMembers());

  EXPECT_EQ(judgement.outcome, Outcome::kInvalid);
  EXPECT_THAT(
      CheckNamed(judgement, "evidence").quantity,
      HasSubstr("limits must come from those that the oracle predicts"));
}

TEST(OnePair, OfOneSidedHeldOutLossesOnlyWorseOnesGate) {
  TwoArms arms(1);
  runlog::EvalColumns& eval = arms.Candidate(0).log.eval;
  for (double& loss : eval.loss_nats) loss *= 0.99;
  for (double& loss : eval.per_sequence_loss_nats) loss *= 0.99;
  const NullEnsemble seeds = SeedsEnsemble(16);
  const compare::Pairing pairing = arms.Pair();
  Policy one_sided = FewMembers();
  one_sided.one_sided = true;

  const Judgement both =
      Judge({.pairing = &pairing, .seeds = &seeds}, FewMembers());
  const Judgement better =
      Judge({.pairing = &pairing, .seeds = &seeds}, one_sided);

  EXPECT_TRUE(CheckNamed(both, "held_out").gates);
  EXPECT_FALSE(CheckNamed(better, "held_out").gates);
}

TEST_F(DecisionTest, ClimbingAllSaysWhatEachLevelFindsOnItsOwn) {
  ScaleGradients(versions_.now[0].log, 3, 1.5);
  const LadderOptions all{.climb_all = true};

  const Judgement stopped = Judged(true, true, Regression());
  const Judgement judgement = Judged(true, true, Regression(), all);

  EXPECT_EQ(LevelOf(stopped, "L5"), std::nullopt);
  EXPECT_EQ(stopped.outcome, Outcome::kFail);
  EXPECT_EQ(judgement.outcome, Outcome::kFail);
  EXPECT_EQ(LevelOf(judgement, "L0"), Outcome::kPass);
  EXPECT_EQ(LevelOf(judgement, "L1"), Outcome::kFail);
  EXPECT_EQ(LevelOf(judgement, "L2"), Outcome::kPass);
  EXPECT_EQ(LevelOf(judgement, "L4"), Outcome::kFail);
  EXPECT_EQ(LevelOf(judgement, "L5"), Outcome::kInconclusive);
}

TEST_F(DecisionTest, ClimbingAllTouchesNoRunsThatL0FoundBroken) {
  versions_.now[0].log.steps.loss_nats[3] = std::nan("");
  const LadderOptions all{.climb_all = true};

  const Judgement judgement = Judged(true, true, Regression(), all);

  EXPECT_EQ(LevelOf(judgement, "L0"), Outcome::kFail);
  EXPECT_EQ(LevelOf(judgement, "L2"), Outcome::kPass);
  EXPECT_EQ(LevelOf(judgement, "L4"), std::nullopt);
  EXPECT_EQ(judgement.levels.size(), Ladder().size());
}

// ---- one pair and a known spread -------------------------------------------

TEST(OnePair, TakesItsSpreadFromTheEnsemble) {
  const TwoArms arms(1);
  const NullEnsemble seeds = SeedsEnsemble(16);
  const compare::Pairing pairing = arms.Pair();

  const Judgement alone = Judge({.pairing = &pairing}, {});
  const Judgement judgement =
      Judge({.pairing = &pairing, .seeds = &seeds}, FewMembers());

  EXPECT_EQ(alone.outcome, Outcome::kInconclusive);
  EXPECT_EQ(judgement.outcome, Outcome::kPass);
  EXPECT_THAT(CheckNamed(judgement, "final_window").evidence,
              HasSubstr("of 16 pairs of seeds.h5"));
  EXPECT_FALSE(CheckNamed(judgement, "held_out").gates);
}

TEST(OnePair, FailsOutsideTheMargin) {
  TwoArms arms(1);
  for (double& loss : arms.Candidate(0).log.steps.loss_nats) loss *= 1.005;
  const NullEnsemble seeds = SeedsEnsemble(16);
  const compare::Pairing pairing = arms.Pair();

  const Judgement judgement = Judge({.pairing = &pairing, .seeds = &seeds},
                                    FewMembers(), {.climb_all = true});

  EXPECT_EQ(CheckNamed(judgement, "final_window").outcome, Outcome::kFail);
}

// ---- lists of levels
// ----------------------------------------------------------

/// A list says what must have evidence, not what may be looked at.
TEST_F(DecisionTest, ABadProbeFailsWhateverLevelsAreListed) {
  const compare::Pairing pairing = versions_.Pair();
  std::vector<Probe> probes = {SampleProbe(versions_.now[0])};
  auto& oracle = probes[0].log.oracle;
  oracle.equal[0] -= 1;
  oracle.other[0] += 1;
  oracle.worst_ratio[0] = 5;
  oracle.worst_row[0] = oracle.worst_column[0] = 0;
  oracle.worst_value[0] = oracle.worst_expected[0] = 1;
  Policy listed = Regression();
  listed.levels = {"L5"};

  const Judgement judgement = Judge(
      {.pairing = &pairing, .candidate_probes = probes, .benign = &benign_},
      listed);

  EXPECT_EQ(judgement.outcome, Outcome::kFail);
  EXPECT_EQ(CheckNamed(judgement, "elements").outcome, Outcome::kFail);
}

}  // namespace
}  // namespace isoloss::gate::decision_test
