#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "gate/judged_runs.h"
#include "isoloss/document/text.h"
#include "isoloss/report/controls.h"
#include "isoloss/report/json.h"
#include "json_schema.h"

namespace isoloss::report::report_controls_test {
namespace {

using gate::ArmTest;
using gate::ControlArm;
using gate::Outcome;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string Text(const gate::Judgement& judgement) {
  return document::RenderText(ControlsDocument(judgement));
}

ArmTest Test(Outcome outcome, double mean) {
  return {.name = "final_window",
          .outcome = outcome,
          .pairs = {.count = 4, .mean = mean, .sd = 0.12},
          .lower = mean - 0.1,
          .upper = mean + 0.1};
}

gate::Judgement Judged(gate::Controls controls) {
  gate::Judgement judgement = gate::JudgeRuns(gate::HealthyRuns());
  controls.candidate = gate::TestsOf(judgement);
  judgement.controls = std::move(controls);
  return judgement;
}

ControlArm Null() {
  return {.arm = "null",
          .recipe = "bf16",
          .perturbation = "one_ulp, draw 1",
          .tests = {Test(Outcome::kPass, 0.01)}};
}

ControlArm Control(Outcome outcome, double mean) {
  return {
      .arm = "mxfp4", .recipe = "mxfp4_floor", .tests = {Test(outcome, mean)}};
}

TEST(ControlsDocument, ShowsTheCandidateBesideNullArmsAndControl) {
  EXPECT_EQ(Text(Judged({.nulls = {Null()},
                         .controls = {Control(Outcome::kFail, 1.0)}})),
            R"(  candidate mxfp8
    final_window    +0.055 %  sd  0.013 %  [+0.040 %, +0.070 %]    PASS
    held_out        +0.055 %  sd  0.013 %  [+0.040 %, +0.070 %]    PASS
  null arm null (bf16 again, one_ulp, draw 1)
    final_window    +0.010 %  sd  0.120 %  [-0.090 %, +0.110 %]    PASS
  control mxfp4
    final_window    +1.000 %  sd  0.120 %  [+0.900 %, +1.100 %]    FAIL
  control: mxfp4 came out worse, as it must (+1.000 %, 4 margins; the margin is 25 % of it); null arms: 1
)");
}

TEST(ControlsDocument, SaysWhereItsFiguresAreTokens) {
  gate::Judgement judgement = Judged({.nulls = {Null()}});
  judgement.policy.margin_tokens_percent = 5;

  EXPECT_THAT(Text(judgement),
              HasSubstr("  extra tokens in % of the baseline's:\n  candidate"));
}

TEST(ControlsDocument, SaysThatNoneIsNamed) {
  EXPECT_EQ(Text(Judged({})), "  control: none named; null arms: none\n");
  gate::Judgement regression;
  EXPECT_EQ(Text(regression), "");
}

TEST(ControlStatement, SaysWhatBecameOfTheControl) {
  const auto statement = [](ControlArm control) {
    return ControlStatement(Judged({.controls = {std::move(control)}}));
  };

  EXPECT_EQ(statement(Control(Outcome::kPass, 0.01)),
            "control: mxfp4 lies within the margin, so it shows nothing");
  EXPECT_EQ(statement(Control(Outcome::kInconclusive, 0.2)),
            "control: mxfp4 was not shown to lie outside the margin");
  EXPECT_EQ(statement(Control(Outcome::kFail, -1)),
            "control: mxfp4 came out better, but must come out worse");
  EXPECT_EQ(statement({.arm = "mxfp4", .not_judged = "L0 seeds: …"}),
            "control: mxfp4 was not judged");
  EXPECT_EQ(ControlStatement(Judged({.is_candidate = true})),
            "control: none, since mxfp8 itself is judged");
}

TEST(ControlsDocument, FitsTheSchemaWhateverTheControlsCameTo) {
  std::ifstream file(ISOLOSS_SOURCE_DIR "/docs/verdict.schema.json");
  const auto schema = nlohmann::json::parse(file);
  ControlArm alone = Control(Outcome::kInconclusive, 1.0);
  alone.tests[0].pairs.sd = std::nan("");
  alone.tests[0].lower.reset();
  gate::Judgement stopped = Judged({});
  stopped.controls.reset();

  for (const gate::Judgement& judgement :
       {Judged({}), stopped, Judged({.nulls = {Null()}, .controls = {alone}}),
        Judged({.controls = {{.arm = "x", .not_judged = "why"}}})}) {
    const auto verdict = nlohmann::json::parse(RenderJson(judgement));
    EXPECT_THAT(test_support::SchemaCheck().Findings(schema, verdict),
                IsEmpty());
  }
  const auto json = nlohmann::json::parse(RenderJson(Judged({})));
  EXPECT_EQ(json["controls"]["statement"], "control: none named");
  EXPECT_TRUE(json["controls"]["control"].is_null());
  const auto both = nlohmann::json::parse(RenderJson(
      Judged({.nulls = {Null()}, .controls = {Control(Outcome::kFail, 1.0)}})));
  EXPECT_EQ(both["controls"]["control"]["seen_worse"], true);
  EXPECT_EQ(both["controls"]["null_arms"][0]["tests"][0]["mean"], 0.01);
}

}  // namespace
}  // namespace isoloss::report::report_controls_test
