#include "isoloss/runlog/provenance_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "isoloss/runlog/domain_check.h"
#include "isoloss/runlog/schema.h"
#include "support/full_columns.h"

namespace isoloss::runlog::provenance_check_test {
namespace {

/// A log that has every column and attribute.
RunLog FullLog() {
  RunLog log = test_support::SyntheticRun(true, 1, 0).log;
  test_support::FillColumns(log);
  return log;
}

TEST(Provenance, HasNoEmptyText) {
  RunLog log = FullLog();
  int texts = 0;
  for (const Column& column : AttributeGroup().columns) {
    if (column.type != ValueType::kString || column.field.optional) continue;
    auto& text = MutableView(log.provenance).At<std::string>(column.offset);
    const std::string was = std::exchange(text, "");
    EXPECT_FALSE(CheckDomains(log).empty()) << column.field.name;
    text = was;
    ++texts;
  }
  EXPECT_GE(texts, 18);
  EXPECT_TRUE(CheckDomains(log).empty());
  // A run that was stopped has no last weights.
  log.provenance.final_weights_digest.clear();
  log.provenance.complete = false;
  EXPECT_TRUE(CheckDomains(log).empty());
}

TEST(Provenance, AgreesWithTextAndGraph) {
  const auto expect_found = [&](std::string_view text, const auto& spoil) {
    RunLog log = FullLog();
    spoil(log);
    const auto violations = CheckDomains(log);
    ASSERT_FALSE(violations.empty()) << text;
    EXPECT_THAT(violations[0].message, ::testing::HasSubstr(std::string(text)));
  };
  expect_found("experiment_digest", [](auto& log) {
    log.provenance.experiment_text += "[other]\nkey = 1\n";
  });
  expect_found("attribute recipe is \"bf16\"",
               [](auto& log) { log.provenance.recipe = "bf16"; });
  expect_found(
      "has phases from steps [2], but experiment_text asks for phases "
      "from steps []",
      [](auto& log) {
        ModelGraph& graph = log.provenance.graph;
        AddPhase({2, graph.recipe}, graph);
      });
  for (auto name : {&Provenance::arm, &Provenance::baseline_arm}) {
    expect_found("no recipe of arm `bf17`",
                 [&](auto& log) { log.provenance.*name = "bf17"; });
  }
  for (const int64_t more : {-1, 1}) {
    expect_found("attribute parameters",
                 [more](auto& log) { log.provenance.parameters += more; });
  }
  for (const double deviation : {std::nan(""), 1e300}) {
    expect_found("standard deviation", [deviation](auto& log) {
      for (double& value : log.provenance.graph.tensors.initial_std) {
        if (!std::isnan(value)) value = deviation;
      }
    });
  }
  expect_found("names has ``", [](auto& log) { log.parameters.names[1] = ""; });
  expect_found("each once", [](auto& log) {
    log.parameters.names[1] = log.parameters.names[0];
  });
  expect_found("expert_ids is missing", [](auto& log) {
    log.moe.expert_ids.clear();
    log.moe.tokens = 0;
    log.moe.top_k = 0;
  });
}

// `origin` spares a log most rules, so it must not be that of a run of isoloss.
TEST(Provenance, OfAnotherProgramHasNothingThatOnlyIsolossWrites) {
  RunLog foreign;
  foreign.provenance.origin.format = "torch";
  EXPECT_TRUE(CheckDomains(foreign).empty());
  const RunLog own = FullLog();
  for (auto text : {&Provenance::experiment_text, &Provenance::resolved_recipe,
                    &Provenance::numerics_digest, &Provenance::tool_version}) {
    RunLog log = foreign;
    log.provenance.*text = own.provenance.*text;
    const auto found = CheckDomains(log);
    ASSERT_EQ(found.size(), 1);
    EXPECT_THAT(found[0].message, ::testing::HasSubstr("origin is 'torch'"));
  }
  foreign.provenance.tool_version = "isoloss-recorder 1";
  EXPECT_TRUE(CheckDomains(foreign).empty());
}

// FP64 has no 2^53 + 1.
TEST(Domain, BoundsOfWholeNumbersAreWhole) {
  constexpr int64_t kMost = int64_t{1} << 53;
  EXPECT_TRUE(Domain::Count().Contains(kMost));
  EXPECT_FALSE(Domain::Count().Contains(kMost + 1));
  EXPECT_FALSE(Domain::Count().Contains(int64_t{-1}));
  EXPECT_TRUE(Domain::Whole().Contains(std::numeric_limits<int64_t>::max()));
  EXPECT_TRUE(Domain::Whole().Contains(std::numeric_limits<int64_t>::min()));
  EXPECT_FALSE(Domain::Digest().Contains(int64_t{0}));
}

}  // namespace
}  // namespace isoloss::runlog::provenance_check_test
