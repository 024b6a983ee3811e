#include "isoloss/report/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <span>
#include <vector>

#include "gate/judged_runs.h"
#include "isoloss/base/error.h"
#include "json_schema.h"
#include "support/synthetic_runs.h"
#include "support/temporary_folder.h"

namespace isoloss::report::json_test {
namespace {

using nlohmann::json;

gate::Judgement Judged(const std::vector<compare::Run>& runs) {
  return gate::JudgeRuns(runs);
}

TEST(RenderJson, HoldsVerdictChecksSeedsFilesAndDigests) {
  const auto runs = test_support::SyntheticExperiment({0.05, 0.06, 0.07, 0.04});

  const json verdict = json::parse(RenderJson(Judged(runs)));

  EXPECT_EQ(verdict["schema_version"], 2);
  EXPECT_EQ(verdict["outcome"], "PASS");
  EXPECT_EQ(verdict["exit_code"], 0);
  EXPECT_EQ(verdict["config_digest"], "c1");
  EXPECT_EQ(verdict["policy"]["margin_percent"], 0.25);
  EXPECT_EQ(verdict["checks"].size(), 15);
  EXPECT_EQ(verdict["checks"][8]["name"], "final_window");
  EXPECT_EQ(verdict["checks"][8]["limit"], 0.25);
  const json& seeds = verdict["final_window"]["seeds"];
  ASSERT_EQ(seeds.size(), 4);
  EXPECT_EQ(seeds[2]["seed"], 3);
  EXPECT_NEAR(seeds[2]["final_window_percent"].get<double>(), 0.07, 1e-12);
  EXPECT_EQ(verdict["candidate"]["runs"][3]["file"], "mxfp8_seed4.h5");
  EXPECT_EQ(verdict["candidate"]["runs"][3]["initial_weights_digest"], "w4");
  EXPECT_EQ(verdict["first_divergences"][0]["step"], 1);
  EXPECT_TRUE(verdict["entropy_floor_nats"].is_null());
  EXPECT_EQ(verdict["entropy_floor_nats_text"], "nan");
}

TEST(RenderJson, HoldsWhatAVerdictOnPrecisionRestsOn) {
  gate::Judgement judgement =
      Judged(test_support::SyntheticExperiment({0.05, 0.06, 0.07, 0.04}));
  const gate::PrecisionMeasures& measures = *judgement.precision;

  const json precision = json::parse(RenderJson(judgement))["precision"];

  EXPECT_EQ(precision["trained"]["tokens"], 51200);
  EXPECT_TRUE(precision["trained"]["flops"].is_null());
  EXPECT_EQ(precision["learnt"][1]["arm"], "mxfp8");
  EXPECT_EQ(precision["sensitivity"][0]["detectable"],
            measures.sensitivity[0].detectable);
  EXPECT_EQ(precision["tokens"]["percent"], measures.tokens->percent);
  EXPECT_EQ(precision["tokens"]["slope_first_step"], 26);
  EXPECT_EQ(precision["along"]["tenths"].size(), 10);
  EXPECT_EQ(precision["along"]["tenths"][9]["last_step"], 50);
  EXPECT_EQ(precision["along"]["percent_per_doubling"]["mean"],
            measures.along->per_doubling->mean);
  EXPECT_TRUE(precision["along"]["decay"].is_null());
  EXPECT_EQ(precision["alpha"], 0.05);
  judgement.precision.reset();
  EXPECT_TRUE(json::parse(RenderJson(judgement))["precision"].is_null());
}

TEST(RenderJson, IsValidForRunsThatAreNotFinite) {
  auto runs = test_support::SyntheticExperiment({0.05, 0.06});
  runs[3].log.steps.loss_nats.back() = std::nan("");
  runs[3].log.steps.grad_norm.back() = std::numeric_limits<double>::infinity();
  runs[3].file = "not UTF-8: \xff";

  const json verdict = json::parse(RenderJson(Judged(runs)));

  EXPECT_EQ(verdict["outcome"], "FAIL");
  EXPECT_EQ(verdict["exit_code"], 1);
  EXPECT_TRUE(verdict["candidate"]["final_loss_nats"].is_null());
  EXPECT_EQ(verdict["candidate"]["final_loss_nats_text"], "nan");
  EXPECT_TRUE(verdict["final_window"].is_null());
}

TEST(RenderJson, HoldsTheOutcomeOfEachLevel) {
  const json verdict = json::parse(
      RenderJson(Judged(test_support::SyntheticExperiment({0.05, 0.06}))));

  EXPECT_EQ(verdict["levels"].size(), 7);
  EXPECT_EQ(verdict["levels"][0]["outcome"], "PASS");
  EXPECT_TRUE(verdict["levels"][2]["outcome"].is_null());
}

TEST(RenderJson, SeveralVerdictsAreAListUnderTheSeverest) {
  const std::vector<gate::Judgement> judgements = {
      Judged(test_support::SyntheticExperiment({0.05, 0.06, 0.07, 0.04})),
      Judged(test_support::SyntheticExperiment({5.0, 5.1, 5.2, 5.3}))};

  const json both = json::parse(RenderJson(judgements));

  EXPECT_EQ(both["schema_version"], 2);
  EXPECT_EQ(both["outcome"], "FAIL");
  EXPECT_EQ(both["exit_code"], 1);
  ASSERT_EQ(both["verdicts"].size(), 2U);
  EXPECT_EQ(both["verdicts"][0], json::parse(RenderJson(judgements[0])));
  EXPECT_EQ(both["verdicts"][1]["outcome"], "FAIL");
  EXPECT_EQ(RenderJson(std::span(judgements).first(1)),
            RenderJson(judgements[0]));
}

// ---- docs/verdict.schema.json ----------------------------------------------

json Schema() {
  std::ifstream file(ISOLOSS_SOURCE_DIR "/docs/verdict.schema.json");
  return json::parse(file);
}

std::vector<std::string> SchemaFindings(const json& verdict) {
  return test_support::SchemaCheck().Findings(Schema(), verdict);
}

TEST(VerdictSchema, HasADefinitionOfSeveralVerdicts) {
  const std::vector<gate::Judgement> judgements(
      2, Judged(test_support::SyntheticExperiment({0.05, 0.06})));
  const json schema = Schema();
  const auto findings = [&](const json& value) {
    return test_support::SchemaCheck().Findings(
        schema, schema["$defs"]["several"], value);
  };
  json both = json::parse(RenderJson(judgements));

  EXPECT_THAT(findings(both), ::testing::IsEmpty());
  both["verdicts"][1].erase("levels");
  EXPECT_THAT(findings(both),
              ::testing::ElementsAre("$.verdicts[1]: \"levels\" is missing"));
}

TEST(VerdictSchema, AcceptsEveryKindOfVerdict) {
  auto nan = test_support::SyntheticExperiment({0.05, 0.06});
  nan[3].log.steps.loss_nats.back() = std::nan("");
  auto regression = Judged(test_support::SyntheticExperiment({0.05, 0.06}));
  regression.policy.levels = {"L2", "L4"};
  regression.precision.reset();
  regression.tensors = {{"wq", "gain of wq", 3, 1 / 0.0, 0.01}};
  regression.evidence = {"probe p.h5"};

  auto falling = test_support::SyntheticExperiment({0.05, 0.06});
  for (auto& run : falling) run.log.steps.lr.back() /= 2;
  auto unknown = falling;
  for (auto& run : unknown) run.log.steps.lr.front() *= 2;

  for (const auto& judgement :
       {Judged(test_support::SyntheticExperiment({0.05, 0.06, 0.07, 0.04})),
        Judged(test_support::SyntheticExperiment({0.05})), Judged(nan),
        Judged({}), regression, Judged(falling), Judged(unknown)}) {
    EXPECT_THAT(SchemaFindings(json::parse(RenderJson(judgement))),
                ::testing::IsEmpty());
  }
}

TEST(VerdictSchema, RefusesWhatIsNoVerdict) {
  const json good = json::parse(
      RenderJson(Judged(test_support::SyntheticExperiment({0.05, 0.06}))));
  const auto findings = [&good](const auto& spoil) {
    json verdict = good;
    spoil(verdict);
    return SchemaFindings(verdict);
  };
  using ::testing::ElementsAre;

  EXPECT_THAT(findings([](json& v) { v["outcome"] = "MAYBE"; }),
              ElementsAre(::testing::StartsWith("$.outcome: ")));
  EXPECT_THAT(findings([](json& v) { v.erase("levels"); }),
              ElementsAre("$: \"levels\" is missing"));
  EXPECT_THAT(findings([](json& v) { v["checks"][0]["value"] = "x"; }),
              ElementsAre(::testing::StartsWith("$.checks[0].value: ")));
  EXPECT_THAT(findings([](json& v) { v["policy"]["margin"] = 1; }),
              ElementsAre("$.policy.margin: is no key of the schema"));
}

TEST(RenderJson, IsValidWithoutAnyRun) {
  const json verdict = json::parse(RenderJson(Judged({})));

  EXPECT_EQ(verdict["outcome"], "INVALID");
  EXPECT_EQ(verdict["exit_code"], 3);
}

TEST(WriteJson, WritesTheRenderedText) {
  const auto judgement =
      Judged(test_support::SyntheticExperiment({0.05, 0.06}));
  const test_support::TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "verdict.json";

  WriteJson({&judgement, 1}, path);

  std::ifstream file(path);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  EXPECT_EQ(text, RenderJson(judgement));
}

TEST(WriteJson, NamesAFolderThatIsNotThere) {
  try {
    WriteJson(std::vector{Judged({})}, "/no/such/folder/verdict.json");
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kIo);
    EXPECT_THAT(error.what(), ::testing::HasSubstr("/no/such/folder"));
  }
}

}  // namespace
}  // namespace isoloss::report::json_test
