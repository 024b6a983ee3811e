#include "isoloss/campaign/watched_runs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "isoloss/runlog/writer.h"
#include "support/synthetic_runs.h"
#include "support/temporary_folder.h"

namespace isoloss::campaign::watched_runs_test {
namespace {

using report::RunState;

class Watching : public ::testing::Test {
 protected:
  void WriteRun(const std::string& name) const {
    runlog::WriteRunLog(test_support::SyntheticRun(false, 1, 0).log,
                        folder_.path() / name);
  }

  test_support::TemporaryFolder folder_;
};

TEST_F(Watching, RunsAppearWhenTheirFilesDo) {
  WatchedRuns watched(folder_.path());
  watched.Update();
  EXPECT_TRUE(watched.folder());
  EXPECT_TRUE(watched.Runs().empty());
  WriteRun("bf16-seed1.h5");
  watched.Update();
  ASSERT_EQ(watched.Runs().size(), 1);
  EXPECT_EQ(watched.Runs()[0].name, "bf16-seed1");
  EXPECT_EQ(watched.Runs()[0].state, RunState::kFinished);
}

TEST_F(Watching, AFileThatCantBeReadIsShownWithTheReason) {
  std::ofstream(folder_.path() / "bf16-seed1.h5") << "no log";
  WatchedRuns watched(folder_.path());
  watched.Update();
  ASSERT_EQ(watched.Runs().size(), 1);
  EXPECT_EQ(watched.Runs()[0].state, RunState::kUnreadable);
  EXPECT_FALSE(watched.Runs()[0].note.empty());
}

TEST_F(Watching, OneRunIsWatchedByAnyOfItsFiles) {
  WriteRun("bf16-seed1.h5");
  WriteRun("bf16-seed2.h5");
  WatchedRuns watched(folder_.path() / "bf16-seed1.journal");
  watched.Update();
  EXPECT_FALSE(watched.folder());
  ASSERT_EQ(watched.Runs().size(), 1);
  EXPECT_EQ(watched.Runs()[0].name, "bf16-seed1");
}

TEST_F(Watching, TellsOfTheJobWhileItIsAtWork) {
  WatchedRuns watched(folder_.path());
  {
    const JobFile job(folder_.path(), {50, {"bf16-seed1", "bf16-seed2"}});
    watched.Update();
    ASSERT_TRUE(watched.Job());
    EXPECT_EQ(watched.Job()->runs, 2);
  }
  watched.Update();
  EXPECT_FALSE(watched.Job());
}

TEST_F(Watching, RunsHaveEndedWhenTheirJobHasSaidSo) {
  WatchedRuns watched(folder_.path());
  {
    const JobFile job(folder_.path(), {50, {"bf16-seed1"}});
    WriteRun("bf16-seed1.h5");
    watched.Update();
    EXPECT_FALSE(watched.ended());
  }
  watched.Update();
  EXPECT_TRUE(watched.ended());
  EXPECT_FALSE(watched.unreadable());
}

TEST_F(Watching, WithoutAJobMoreRunsMayComeForSomeSeconds) {
  WriteRun("bf16-seed1.h5");
  WatchedRuns watched(folder_.path());
  watched.Update();
  EXPECT_FALSE(watched.ended());
  // Nobody waits for more of one run.
  WatchedRuns one(folder_.path() / "bf16-seed1.h5");
  one.Update();
  EXPECT_TRUE(one.ended());
}

TEST_F(Watching, ATerminalsRunsHaveTheirCurvesAlone) {
  compare::Run run = test_support::SyntheticRun(false, 1, 0);
  run.log.tensors.step = {1};
  run.log.tensors.count = 1;
  run.log.tensors.names = {"w_weight"};
  run.log.tensors.digest = {7};
  run.log.events = {{1, "finish", "done"}};
  runlog::WriteRunLog(run.log, folder_.path() / "bf16-seed1.h5");
  WatchedRuns watched(folder_.path());

  watched.Update();

  const runlog::RunLog& all = run.log;
  const report::LiveRun seen = watched.Runs().at(0);
  EXPECT_TRUE(seen.log.tensors.step.empty());
  EXPECT_TRUE(seen.log.eval.step.empty());
  EXPECT_EQ(seen.log.steps.loss_nats, all.steps.loss_nats);
  EXPECT_EQ(seen.log.events.size(), all.events.size());
  EXPECT_EQ(seen.log.provenance.steps_planned, all.provenance.steps_planned);
  EXPECT_EQ(seen.state, RunState::kFinished);
}

}  // namespace
}  // namespace isoloss::campaign::watched_runs_test
