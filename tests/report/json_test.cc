#include "isoloss/report/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "isoloss/base/error.h"
#include "isoloss/gate/judge.h"
#include "support/synthetic_runs.h"

namespace isoloss::report {
namespace {

using nlohmann::json;

gate::Judgement Judged(const std::vector<compare::Run>& runs) {
  return gate::Judge(runs, "bf16", "mxfp8", {});
}

TEST(RenderJson, HoldsVerdictChecksSeedsFilesAndDigests) {
  const auto runs = testing::SyntheticExperiment({0.05, 0.06, 0.07, 0.04});

  const json verdict = json::parse(RenderJson(Judged(runs)));

  EXPECT_EQ(verdict["schema_version"], 1);
  EXPECT_EQ(verdict["outcome"], "PASS");
  EXPECT_EQ(verdict["exit_code"], 0);
  EXPECT_EQ(verdict["config_digest"], "c1");
  EXPECT_EQ(verdict["policy"]["margin_percent"], 0.25);
  EXPECT_EQ(verdict["checks"].size(), 8);
  EXPECT_EQ(verdict["checks"][6]["name"], "final_window");
  EXPECT_EQ(verdict["checks"][6]["limit"], 0.25);
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

TEST(RenderJson, IsValidForRunsThatAreNotFinite) {
  auto runs = testing::SyntheticExperiment({0.05, 0.06});
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

TEST(RenderJson, IsValidWithoutAnyRun) {
  const json verdict = json::parse(RenderJson(Judged({})));

  EXPECT_EQ(verdict["outcome"], "INVALID");
  EXPECT_EQ(verdict["exit_code"], 3);
}

TEST(WriteJson, WritesTheRenderedText) {
  const auto judgement = Judged(testing::SyntheticExperiment({0.05, 0.06}));
  const std::filesystem::path path =
      std::filesystem::path(::testing::TempDir()) / "isoloss_verdict.json";

  WriteJson(judgement, path);

  std::ifstream file(path);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  EXPECT_EQ(text, RenderJson(judgement));
  std::filesystem::remove(path);
}

TEST(WriteJson, NamesAFolderThatIsNotThere) {
  try {
    WriteJson(Judged({}), "/no/such/folder/verdict.json");
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kIo);
    EXPECT_THAT(error.what(), ::testing::HasSubstr("/no/such/folder"));
  }
}

}  // namespace
}  // namespace isoloss::report
