#include "isoloss/train/routing_replay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "isoloss/base/error.h"
#include "isoloss/runlog/run_log.h"
#include "isoloss/runlog/writer.h"
#include "support/temporary_folder.h"

namespace isoloss::train::routing_replay_test {
namespace {

using isoloss::test_support::TemporaryFolder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr RoutingShape kShape = {
    .layers = 2, .tokens = 2, .top_k = 2, .experts = 4};

/// Two steps of kShape.
runlog::RunLog Log() {
  runlog::RunLog log;
  log.moe.step = {1, 2};
  log.moe.layers = 2;
  log.moe.experts = 4;
  log.moe.tokens = 2;
  log.moe.top_k = 2;
  log.moe.tokens_per_expert = std::vector<int64_t>(2 * 2 * 4, 1);
  log.moe.expert_ids = {0, 1, 2, 3, 1, 0, 3, 2,   // step 1
                        3, 0, 2, 1, 1, 2, 0, 3};  // step 2
  return log;
}

class RoutingReplayTest : public ::testing::Test {
 protected:
  RoutingReplay Replay(const runlog::RunLog& log,
                       const RoutingShape& needed = kShape) const {
    runlog::WriteRunLog(log, path_);
    return {path_, needed};
  }

  /// The message of the error of kind `kind` that replaying ends in.
  std::string ErrorOf(const runlog::RunLog& log, const RoutingShape& needed,
                      ErrorKind kind) const {
    try {
      Replay(log, needed);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), kind) << error.what();
      EXPECT_THAT(error.what(), ::testing::StartsWith(path_.string()));
      return error.what();
    }
    return "no error";
  }

 private:
  TemporaryFolder folder_;

 protected:
  const std::filesystem::path path_ = folder_.path() / "run.h5";
};

std::vector<int32_t> Values(MatrixView<const int32_t> ids) {
  return {ids.data(), ids.data() + ids.rows() * ids.cols()};
}

TEST_F(RoutingReplayTest, GivesTheIdsOfAStepAndLayer) {
  const RoutingReplay replay = Replay(Log());

  EXPECT_EQ(replay.Ids(1, 0).rows(), 2u);
  EXPECT_EQ(replay.Ids(1, 0).cols(), 2u);
  EXPECT_THAT(Values(replay.Ids(1, 0)), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(Values(replay.Ids(1, 1)), ElementsAre(1, 0, 3, 2));
  EXPECT_THAT(Values(replay.Ids(2, 1)), ElementsAre(1, 2, 0, 3));
}

TEST_F(RoutingReplayTest, DigestFollowsIdsAndNothingElse) {
  runlog::RunLog other_counts = Log();
  other_counts.moe.tokens_per_expert[0] = 5;
  runlog::RunLog other_ids = Log();
  std::swap(other_ids.moe.expert_ids[0], other_ids.moe.expert_ids[1]);

  const uint64_t digest = Replay(Log()).digest();

  EXPECT_EQ(Replay(other_counts).digest(), digest);
  EXPECT_NE(Replay(other_ids).digest(), digest);
}

TEST_F(RoutingReplayTest, RefusesAStepThatTheLogLacks) {
  const RoutingReplay replay = Replay(Log());

  for (const int64_t step : {0, 3}) {
    try {
      replay.Ids(step, 0);
      FAIL() << step;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kConfig);
      EXPECT_EQ(error.what(),
                fmt::format("{}: the log has no routing of step {}, only of 2 "
                            "steps from 1 to 2. Replay a log of at least as "
                            "many steps.",
                            path_.string(), step));
    }
  }
}

TEST_F(RoutingReplayTest, RefusesALogWithoutIds) {
  runlog::RunLog log = Log();
  log.moe.expert_ids.clear();

  EXPECT_THAT(ErrorOf(log, kShape, ErrorKind::kConfig),
              HasSubstr("holds no expert ids (/moe/expert_ids), but replay "
                        "needs them. Make it again with log.routing = true."));
  EXPECT_THAT(ErrorOf({}, kShape, ErrorKind::kConfig),
              HasSubstr("log.routing = true"));
}

TEST_F(RoutingReplayTest, RefusesALogOfAnotherShape) {
  const auto error = [this](RoutingShape needed) {
    return ErrorOf(Log(), needed, ErrorKind::kConfig);
  };

  EXPECT_THAT(
      error({.layers = 3, .tokens = 2, .top_k = 2, .experts = 4}),
      HasSubstr("the log's routing has 2 MoE layers, but this experiment needs "
                "3. Replay a log of the same model and batch."));
  EXPECT_THAT(error({.layers = 2, .tokens = 5, .top_k = 2, .experts = 4}),
              HasSubstr("has 2 tokens a step, but this experiment needs 5"));
  EXPECT_THAT(error({.layers = 2, .tokens = 2, .top_k = 1, .experts = 4}),
              HasSubstr("has 2 experts a token, but this experiment needs 1"));
  EXPECT_THAT(error({.layers = 2, .tokens = 2, .top_k = 2, .experts = 8}),
              HasSubstr("has 4 experts a layer, but this experiment needs 8"));
}

TEST_F(RoutingReplayTest, RefusesIdsOutOfRange) {
  runlog::RunLog log = Log();
  log.moe.expert_ids[13] = 4;
  runlog::RunLog negative = Log();
  negative.moe.expert_ids[0] = -1;

  EXPECT_THAT(ErrorOf(log, kShape, ErrorKind::kFormat),
              HasSubstr("/moe/expert_ids of step 2, MoE layer 1, token 0 hold "
                        "4, but must be distinct and from 0 to 3"));
  EXPECT_THAT(ErrorOf(negative, kShape, ErrorKind::kFormat),
              HasSubstr("of step 1, MoE layer 0, token 0 hold -1"));
}

TEST_F(RoutingReplayTest, RefusesAnExpertThatATokenHasTwice) {
  runlog::RunLog log = Log();
  log.moe.expert_ids[7] = 3;

  EXPECT_THAT(ErrorOf(log, kShape, ErrorKind::kFormat),
              HasSubstr("of step 1, MoE layer 1, token 1 hold 3 twice"));
}

TEST_F(RoutingReplayTest, RefusesStepsOutOfOrder) {
  runlog::RunLog log = Log();
  log.moe.step = {2, 2};

  EXPECT_THAT(ErrorOf(log, kShape, ErrorKind::kFormat),
              HasSubstr("/moe/step in row 1 is 2, but must be above 2"));
}

TEST_F(RoutingReplayTest, PassesOnWhatReadingThrows) {
  EXPECT_THROW(RoutingReplay("/nonexistent/run.h5", kShape), Error);
}

}  // namespace
}  // namespace isoloss::train::routing_replay_test
