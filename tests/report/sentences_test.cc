#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "gate/judged_runs.h"
#include "isoloss/report/verdict_result.h"

namespace isoloss::report::sentences_test {
namespace {

document::Result ReadingOf(const gate::Judgement& judgement) {
  return ResultOf(judgement, "");
}

using gate::Outcome;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::StartsWith;

gate::Judgement Judged(const std::vector<double>& percent,
                       const gate::Policy& policy = {}) {
  return gate::JudgeRuns(test_support::SyntheticExperiment(percent), policy);
}

gate::Policy Regression() {
  return {.question = compare::Question::kRegression};
}

/// Runs of one recipe against approved ones; `percent` apart.
gate::Judgement Again(const std::vector<double>& percent) {
  auto runs = test_support::SyntheticExperiment(percent);
  for (auto& run : runs) {
    auto& p = run.log.provenance;
    if (p.arm == "bf16") continue;
    const auto& approved = runs[static_cast<size_t>(p.seed) - 1].log.provenance;
    p.recipe = approved.recipe;
    p.resolved_recipe = approved.resolved_recipe;
    p.graph = approved.graph;
    p.quantized_gemms_per_step = approved.quantized_gemms_per_step;
    p.final_weights_digest = approved.final_weights_digest;
    run.log.steps.quantized_gemms.assign(test_support::kSyntheticSteps, 0);
  }
  return gate::JudgeRuns(runs, Regression());
}

TEST(VerdictSentences, OfAPassSaysWhatItMeansWithFigureAndMargin) {
  const document::Result reading = ReadingOf(Judged({0.05, 0.06, 0.07, 0.04}));

  // Mean 0.055, standard deviation 0.0129, t_{0.95,3} = 2.353: +-0.0152.
  EXPECT_EQ(
      reading.headline,
      "mxfp8 ends within 0.25 % of bf16: final loss +0.055 % "
      "(+0.040 % to +0.070 %, 4 seed pairs). The course of training keeps "
      "its limits.");
  EXPECT_THAT(reading.next, IsEmpty());
  EXPECT_THAT(
      reading.reasons,
      ElementsAre(
          "All 8 checks of \"log integrity\" (L0) pass: seeds, same "
          "configuration, complete runs, valid values, learning-rate schedule, "
          "weights that moved, recipe really ran, declared change.",
          StartsWith("The check \"final loss\" (L5) passes: mean paired loss "
                     "difference +0.055 % within +-0.25 % (90 % interval"),
          StartsWith("The check \"held-out loss\" (L5) passes: "),
          StartsWith("The check \"tuned learning rate\" (L5) passes: learning "
                     "rate 0.001 is within a factor 1.5 of the best one")));
  EXPECT_THAT(reading.holds_for,
              ElementsAre(StartsWith("It holds for this model of 123 k")));
}

TEST(VerdictSentences, ClaimsLessWhereNobodyJudgedTheLearningRate) {
  gate::Policy policy;
  policy.require_tuning = false;
  gate::Judgement judgement = Judged({0.05, 0.06, 0.07, 0.04}, policy);
  constexpr const char* kFigure =
      ": final loss +0.055 % (+0.040 % to +0.070 %, 4 seed pairs). The course "
      "of training keeps its limits. Its learning rate was not judged.";

  EXPECT_EQ(ReadingOf(judgement).headline,
            std::string("mxfp8 ends within 0.25 % of bf16 here") + kFigure);

  for (gate::LevelOutcome& level : judgement.levels) {
    if (level.name == "L2") level.outcome = Outcome::kPass;
  }
  EXPECT_EQ(ReadingOf(judgement).headline,
            std::string("this build emulates mxfp8_rceil, and mxfp8 ends "
                        "within 0.25 % of bf16 here") +
                kFigure);
}

TEST(VerdictSentences, SaysWhatTheExperimentCouldHaveSeen) {
  gate::Judgement judgement = Judged({0.05, 0.06, 0.07, 0.04});

  EXPECT_THAT(
      ReadingOf(judgement).could_have_seen,
      ElementsAre(
          "At the upper 80 % limit of the spread over 4 seed pairs, true "
          "differences of 0.287 % of the final loss or of 0.287 % of the "
          "held-out loss fail with probability 0.8. Each test passes an equal "
          "candidate with probability 1.00 (final loss) and 1.00 (held-out "
          "loss).",
          StartsWith("No control is named"),
          "Nothing was given for \"oracle\" (L2), \"errors of tensors\" (L3), "
          "\"first steps\" (L4)."));

  judgement.controls->controls = {
      {.arm = "mxfp4",
       .tests = {{.name = "final_window",
                  .outcome = Outcome::kFail,
                  .pairs = {.count = 4, .mean = 1}}}}};
  judgement.controls->nulls = {
      {.arm = "null",
       .recipe = "bf16",
       .tests = {{.name = "final_window", .outcome = Outcome::kPass}}}};
  const auto seen = ReadingOf(judgement).could_have_seen;
  EXPECT_THAT(seen,
              Contains("The control \"mxfp4\" came out worse, as it must."));
  EXPECT_THAT(seen,
              Contains("The null arm \"null\" (bf16 again, which only chance "
                       "drives away) was not seen outside the margin."));
  gate::ArmTest& chance = judgement.controls->nulls[0].tests[0];
  chance.margin = 0.25;
  chance.lower = -0.3;
  chance.upper = 0.2;
  EXPECT_THAT(ReadingOf(judgement).could_have_seen,
              Contains(HasSubstr("was not seen outside the margin.")));
  chance.upper = 0.4;
  EXPECT_THAT(ReadingOf(judgement).could_have_seen,
              Contains(HasSubstr("reaches beyond both ends of the margin "
                                 "(-0.300 % to +0.400 %)")));
  judgement.controls->controls.clear();
  judgement.controls->is_candidate = true;
  EXPECT_THAT(
      ReadingOf(judgement).could_have_seen,
      Contains("The control is \"mxfp8\" itself, so that none is beside it."));
}

TEST(VerdictSentences, OfAFailureNamesTheSideAndWhatToDo) {
  const document::Result worse = ReadingOf(Judged({0.45, 0.50, 0.55, 0.50}));
  const document::Result better =
      ReadingOf(Judged({-0.45, -0.50, -0.55, -0.50}));

  EXPECT_THAT(worse.headline,
              StartsWith("mxfp8 trains worse than bf16 by more than 0.25 %: "
                         "final loss +0.500 % ("));
  EXPECT_THAT(better.headline,
              StartsWith("mxfp8 trains better than bf16 by more than 0.25 %, "
                         "which is a sign of an error as well: "));
  EXPECT_THAT(worse.reasons, SizeIs(3));
  EXPECT_THAT(worse.reasons[0],
              StartsWith("The check \"final loss\" (L5) fails: mean paired "
                         "loss difference +0.500 % outside +-0.25 % ("));
  EXPECT_THAT(worse.next, Contains(StartsWith("final loss: isoloss compare")));
}

TEST(VerdictSentences, OfAnOpenQuestionSaysWhatWouldDecideAndHoldsNowhere) {
  const document::Result reading = ReadingOf(Judged({-0.2, 0.6}));

  EXPECT_THAT(reading.headline,
              StartsWith("It is not shown that mxfp8 ends within 0.25 % of "
                         "bf16: final loss +0.200 % (-"));
  EXPECT_THAT(reading.holds_for, IsEmpty());
  EXPECT_THAT(reading.next,
              Contains(HasSubstr("seed pairs needed for power 0.8: isoloss")));

  gate::Policy policy;
  policy.levels = {"L2"};
  EXPECT_THAT(
      ReadingOf(Judged({0.05, 0.06}, policy)).headline,
      StartsWith("It is not shown that mxfp8 ends within 0.25 % of bf16, "
                 "since the check \"evidence of these runs\" (L2) stays open: "
                 "final loss +0.055 % ("));
}

TEST(VerdictSentences, OfRunsThatCannotBeJudgedSaysWhichCheckFoundIt) {
  auto runs = test_support::SyntheticExperiment({0.05, 0.06});
  runs[3].log.steps = {};

  const document::Result reading = ReadingOf(gate::JudgeRuns(runs));

  EXPECT_EQ(reading.headline,
            "mxfp8 cannot be judged against bf16: the check \"complete runs\" "
            "(L0) found that a difference between these runs would mean "
            "nothing.");
  EXPECT_THAT(reading.next,
              ElementsAre(StartsWith("complete runs: see where the run")));
  EXPECT_THAT(reading.holds_for, IsEmpty());
  EXPECT_THAT(reading.reasons[0], HasSubstr("0 steps of 50 planned"));
  EXPECT_THAT(ReadingOf(gate::Judgement()).headline,
              "There is nothing to judge.");
}

TEST(VerdictSentences, OfARegressionSaysWhatEqualityOfBitsMeans) {
  const document::Result equal = ReadingOf(Again({0, 0}));
  const document::Result near = ReadingOf(Again({0.01, -0.01, 0.02}));
  const document::Result far = ReadingOf(Again({3, 3.1}));

  EXPECT_EQ(equal.headline,
            "mxfp8 is still the run that was approved: losses, gradient norms, "
            "held-out losses and final weights have the same bits (2 seed "
            "pairs, 50 steps).");
  EXPECT_THAT(equal.holds_for,
              ElementsAre("It holds for these 50 steps of mxfp8_vs_bf16 with "
                          "seeds 1, 2, and for no other recipe, model or "
                          "corpus."));
  EXPECT_THAT(near.headline,
              StartsWith("mxfp8 is still the run that was approved, as its "
                         "loss differs by less than 0.25 %: final loss +0.007 "
                         "% ("));
  EXPECT_THAT(far.headline,
              StartsWith("mxfp8 is no longer the run that was approved: final "
                         "loss +3.050 % ("));
}

TEST(VerdictSentences, OfEqualLossesSaysWhatTheyLeaveOpen) {
  gate::Judgement judgement = Again({0, 0});
  judgement.equality_note = "Not all tensors are equal.";

  EXPECT_EQ(ReadingOf(judgement).headline,
            "mxfp8 is still the run that was approved: losses, gradient norms, "
            "held-out losses and final weights have the same bits (2 seed "
            "pairs, 50 steps). Not all tensors are equal.");
}

TEST(VerdictSentences, GivesFiguresToAHundredthOfTheMargin) {
  gate::Policy policy;
  policy.margin_percent = 2;
  EXPECT_THAT(ReadingOf(Judged({0.05, 0.07}, policy)).headline,
              HasSubstr("within 2 % of bf16: final loss +0.06 % ("));
  policy.margin_percent = 0.01;
  EXPECT_THAT(ReadingOf(Judged({0.0050, 0.0052}, policy)).headline,
              HasSubstr("within 0.01 % of bf16: final loss +0.0051 % ("));
  policy.one_sided = true;
  EXPECT_THAT(ReadingOf(Judged({-0.5, -0.5}, policy)).headline,
              StartsWith("mxfp8 ends no worse than bf16 by more than 0.01 %"));
  policy.margin_tokens_percent = 5;
  EXPECT_THAT(ReadingOf(Judged({0.05, 0.06, 0.05}, policy)).headline,
              HasSubstr("5 % of its tokens: final loss made up by tokens: +"));
}

}  // namespace
}  // namespace isoloss::report::sentences_test
