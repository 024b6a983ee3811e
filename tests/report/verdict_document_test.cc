#include "isoloss/report/verdict_document.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "gate/judged_runs.h"
#include "isoloss/document/text.h"
#include "support/synthetic_runs.h"

namespace isoloss::report::verdict_document_test {
namespace {

std::string RenderTerminal(const gate::Judgement& judgement,
                           const document::TextStyle& style) {
  return document::RenderText(DocumentOf(judgement), style);
}

using ::testing::HasSubstr;
using ::testing::Not;

gate::Judgement Judged(const std::vector<compare::Run>& runs) {
  return gate::JudgeRuns(runs);
}

gate::Judgement Healthy() {
  return Judged(test_support::SyntheticExperiment({0.05, 0.06, 0.07, 0.04}));
}

/// A summary whose text was read by a person and stored beside this file.
std::string Golden(const std::string& name) {
  std::ifstream file(std::string(ISOLOSS_SOURCE_DIR "/tests/report/") + name);
  EXPECT_TRUE(file.is_open()) << name;
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(VerdictDocument, MatchesTheStoredSummaryOfAPass) {
  EXPECT_EQ(RenderTerminal(Healthy(), {.width = 80}), Golden("pass.txt"));
}

TEST(VerdictDocument, MatchesTheStoredAsciiSummaryOfAFailure) {
  auto runs = test_support::SyntheticExperiment({0.45, 0.50, 0.55, 0.50});
  runs[5].log.steps.expert_load_max_over_mean.assign(50, 8.0);

  EXPECT_EQ(RenderTerminal(Judged(runs), {.width = 80, .ascii = true}),
            Golden("fail_ascii.txt"));
}

TEST(VerdictDocument, IsPlainUnlessColourIsAskedFor) {
  EXPECT_THAT(RenderTerminal(Healthy(), {}), Not(HasSubstr("\x1b")));
  EXPECT_THAT(RenderTerminal(Healthy(), {.color = true}),
              HasSubstr("\x1b[32mPASS"));
}

TEST(VerdictDocument, KeepsWithinTheWidth) {
  for (const int width : {60, 80, 100, 120}) {
    std::istringstream text(
        RenderTerminal(Healthy(), {.width = width, .ascii = true}));
    for (std::string line; std::getline(text, line);) {
      if (line.starts_with("PASS  ")) continue;  // one line by design
      EXPECT_LE(line.size(), width) << line;
    }
  }
}

TEST(VerdictDocument, ComparesWithTheFloorOfASyntheticSource) {
  auto runs = test_support::SyntheticExperiment({0.05, 0.06});
  for (auto& run : runs) {
    run.log.provenance.unigram_entropy_nats = std::nan("");
    run.log.provenance.entropy_floor_nats = 2.0;
  }

  const std::string text = RenderTerminal(Judged(runs), {});

  EXPECT_THAT(text, HasSubstr("% above the source's entropy rate of 2.0000"));
  EXPECT_THAT(text, Not(HasSubstr("unigram")));
}

TEST(VerdictDocument, DrawsNoMarginInTokensOnTheScaleOfLoss) {
  gate::Judgement judgement = Healthy();
  EXPECT_THAT(RenderTerminal(judgement, {}), HasSubstr("margin +-0.25"));
  judgement.policy.margin_tokens_percent = 5;
  EXPECT_THAT(RenderTerminal(judgement, {}), Not(HasSubstr("margin +-")));
}

TEST(VerdictDocument, SaysWhatAVerdictOnPrecisionRestsOn) {
  auto runs = test_support::SyntheticExperiment({0.05, 0.06, 0.07, 0.04});
  for (auto& run : runs) {
    run.log.provenance.bigram_entropy_nats = 3 * std::log(2.0);
    run.log.provenance.deflated_bits = 1.25;
    for (size_t i = 45; i < 50; ++i) run.log.steps.lr[i] /= 2;
  }
  gate::Judgement judgement = Judged(runs);
  judgement.precision->trained.flops = 1.25e9;
  judgement.precision->trained.active_parameters = 99999;

  const std::string text = RenderTerminal(judgement, {.width = 1000});

  EXPECT_THAT(text, HasSubstr("rests on (90 % intervals over seeds)\n"));
  EXPECT_THAT(text,
              HasSubstr("  trained    51.2 k tokens for 123 k parameters: "
                        "0.415 each; 100 k active; 1.2e+09 FLOP a run"));
  EXPECT_THAT(text, HasSubstr("bits per token; the corpus: unigrams 4.617, "
                              "bigrams 3.000, deflate 1.250\n"));
  EXPECT_THAT(text, HasSubstr("held_out: PASS with probability 1.00 if"));
  EXPECT_THAT(text,
              HasSubstr("slope over steps 23 to 45; the margin is 1.8 % of "
                        "the tokens\n"));
  EXPECT_THAT(text, HasSubstr("since the rate falls (step 46): "));
  EXPECT_THAT(text, HasSubstr("  valid for  this model of 123 k parameters, "
                              "51.2 k tokens of this corpus (digest d1), "
                              "learning rate 0.001, falling from step 46 on, "
                              "seeds 1, 2, 3, 4; no extrapolation"));
  judgement.policy.margin_tokens_percent = 5;
  EXPECT_THAT(RenderTerminal(judgement, {.width = 1000}),
              HasSubstr("FAIL with 0.80 from 0.287 % tokens on (4 pairs"));
  judgement.precision->tokens->unknown = "of a reason";
  EXPECT_THAT(
      RenderTerminal(judgement, {}),
      HasSubstr("  tokens     the difference in tokens is unknown: of"));
  judgement.precision.reset();
  EXPECT_THAT(RenderTerminal(judgement, {}), Not(HasSubstr("rests on")));
}

TEST(VerdictDocument, ShowsEvidenceAndTensors) {
  gate::Judgement judgement = Healthy();
  judgement.evidence = {"probe p.h5"};
  judgement.tensors = {{"wq", "gain of wq", 3, -7.5, 0.01}};
  judgement.checks[10].gates = false;
  judgement.checks[10].outcome = gate::Outcome::kInconclusive;

  const std::string text = RenderTerminal(judgement, {.width = 120});

  EXPECT_THAT(text, HasSubstr("  evidence   probe p.h5\n"));
  EXPECT_THAT(text,
              HasSubstr("gain of wq at step 3: -7.5 sd, adjusted p 0.01"));
  EXPECT_THAT(text, HasSubstr("  not needed  L5 held_out"));
  EXPECT_THAT(text, HasSubstr("14 checks pass"));
}

TEST(VerdictDocument, ShowsRunsThatCannotBeJudged) {
  auto runs = test_support::SyntheticExperiment({0.05, 0.06});
  runs[3].log.steps = {};

  const std::string text = RenderTerminal(Judged(runs), {});

  EXPECT_THAT(text, HasSubstr("mxfp8_seed2.h5: 0 steps of 50 planned"));
  EXPECT_THAT(text, HasSubstr("INVALID  mxfp8 against bf16: L0 steps (exit "
                              "code 3)"));
  EXPECT_THAT(RenderTerminal(Judged({}), {}), HasSubstr("INVALID"));
}

}  // namespace
}  // namespace isoloss::report::verdict_document_test
