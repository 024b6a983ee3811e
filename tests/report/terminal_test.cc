#include "isoloss/report/terminal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "gate/judged_runs.h"
#include "support/synthetic_runs.h"

namespace isoloss::report {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

gate::Judgement Judged(const std::vector<compare::Run>& runs) {
  return gate::JudgeRuns(runs);
}

gate::Judgement Healthy() {
  return Judged(testing::SyntheticExperiment({0.05, 0.06, 0.07, 0.04}));
}

/// A summary whose text was read by a person and stored beside this file.
std::string Golden(const std::string& name) {
  std::ifstream file(std::string(ISOLOSS_SOURCE_DIR "/tests/report/") + name);
  EXPECT_TRUE(file.is_open()) << name;
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(RenderTerminal, MatchesTheStoredSummaryOfAPass) {
  EXPECT_EQ(RenderTerminal(Healthy(), {.width = 80}), Golden("pass.txt"));
}

TEST(RenderTerminal, MatchesTheStoredAsciiSummaryOfAFailure) {
  auto runs = testing::SyntheticExperiment({0.45, 0.50, 0.55, 0.50});
  runs[5].log.steps.expert_load_max_over_mean.assign(50, 8.0);

  EXPECT_EQ(RenderTerminal(Judged(runs), {.width = 80, .ascii = true}),
            Golden("fail_ascii.txt"));
}

TEST(RenderTerminal, IsPlainUnlessColourIsAskedFor) {
  EXPECT_THAT(RenderTerminal(Healthy(), {}), Not(HasSubstr("\x1b")));
  EXPECT_THAT(RenderTerminal(Healthy(), {.color = true}),
              HasSubstr("\x1b[32mPASS"));
}

TEST(RenderTerminal, KeepsWithinTheWidth) {
  for (const int width : {60, 80, 100, 120}) {
    std::istringstream text(
        RenderTerminal(Healthy(), {.width = width, .ascii = true}));
    for (std::string line; std::getline(text, line);) {
      EXPECT_LE(line.size(), width) << line;
    }
  }
}

TEST(RenderTerminal, ComparesWithTheFloorOfASyntheticSource) {
  auto runs = testing::SyntheticExperiment({0.05, 0.06});
  for (auto& run : runs) {
    run.log.provenance.unigram_entropy_nats = std::nan("");
    run.log.provenance.entropy_floor_nats = 2.0;
  }

  const std::string text = RenderTerminal(Judged(runs), {});

  EXPECT_THAT(text, HasSubstr("% above the source's entropy rate of 2.0000"));
  EXPECT_THAT(text, Not(HasSubstr("unigram")));
}

TEST(RenderTerminal, ShowsEvidenceTensorsAndMeasuredPower) {
  gate::Judgement judgement = Healthy();
  judgement.evidence = {"probe p.h5"};
  judgement.tensors = {{"wq", "gain of wq", 3, -7.5, 0.01}};
  judgement.checks[8].gates = false;
  judgement.checks[8].outcome = gate::Outcome::kInconclusive;
  judgement.power = gate::PowerRecord{};
  judgement.power->bugs = judgement.power->bugs_caught = 41;
  judgement.power->benign_runs = 300;

  const std::string text = RenderTerminal(judgement, {.width = 120});

  EXPECT_THAT(text, HasSubstr("  evidence   probe p.h5\n"));
  EXPECT_THAT(text,
              HasSubstr("gain of wq at step 3: -7.5 sd, adjusted p 0.01"));
  EXPECT_THAT(text, HasSubstr("  not needed  L5 held_out"));
  EXPECT_THAT(text, HasSubstr("all 8 checks pass"));
  EXPECT_THAT(text, HasSubstr("41 of 41 planted bugs caught"));
}

TEST(RenderTerminal, ShowsRunsThatCannotBeJudged) {
  auto runs = testing::SyntheticExperiment({0.05, 0.06});
  runs[3].log.steps = {};

  const std::string text = RenderTerminal(Judged(runs), {});

  EXPECT_THAT(text, HasSubstr("mxfp8_seed2.h5: 0 steps of 50 planned"));
  EXPECT_THAT(text, HasSubstr("INVALID  mxfp8 against bf16: L0 steps (exit "
                              "code 3)"));
  EXPECT_THAT(RenderTerminal(Judged({}), {}), HasSubstr("INVALID"));
}

}  // namespace
}  // namespace isoloss::report
