#include "isoloss/goldens/golden_suite.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "isoloss/kernels/targets.h"
#include "support/expect_refused.h"
#include "support/temporary_folder.h"

namespace isoloss::goldens::golden_suite_test {
namespace {

using ::testing::ElementsAre;

class GoldenSuite : public ::testing::Test {
 protected:
  Suite Read(const std::string& text) const {
    std::ofstream(folder_.path() / kGoldenSuite) << text;
    return ReadSuite(folder_.path());
  }
  void ExpectRefusedText(const std::string& text,
                         const std::string& words) const {
    SCOPED_TRACE(text);
    test_support::ExpectRefused([&] { Read(text); }, words);
  }

  test_support::TemporaryFolder folder_;
};

TEST_F(GoldenSuite, IsEmptyWithoutAFile) {
  const Suite suite = ReadSuite(folder_.path());
  EXPECT_FALSE(suite.aborts);
  EXPECT_TRUE(suite.probe_equal_bits);
  EXPECT_TRUE(suite.lanes.empty());
}

TEST_F(GoldenSuite, LanesStandInTheirOrder) {
  const Suite suite = Read(R"(aborts = true
[lanes.threads]
set = ["parallel.workers=2"]
[lanes.killed]
stops = [1, 3]
loses = ["checkpoint"]
resumes = [0, 2]
[lanes.stopped]
stops = [2, 4]
mesh_after_stop = ["parallel.ranks_per_node=2"]
)");
  EXPECT_TRUE(suite.aborts);
  ASSERT_EQ(suite.lanes.size(), 3);
  EXPECT_THAT(suite.lanes[0].overrides, ElementsAre("parallel.workers=2"));
  EXPECT_THAT(suite.lanes[1].resumes, ElementsAre(0, 2));
  // Without losses runs go on where they stopped.
  EXPECT_THAT(suite.lanes[2].resumes, ElementsAre(2, 4));
  EXPECT_THAT(suite.lanes[2].mesh_after_stop,
              ElementsAre("parallel.ranks_per_node=2"));
}

TEST_F(GoldenSuite, ALaneOfKernelsIsOneForEachOtherTarget) {
  const Suite suite = Read("[lanes.kernel]\neach_kernel = true\n");
  EXPECT_EQ(suite.lanes.size() + 1, kernels::SupportedTargets().size());
  for (const Lane& lane : suite.lanes) {
    EXPECT_NE(lane.kernel, kernels::ActiveTarget());
    EXPECT_EQ(lane.name, "kernel-" + lane.kernel);
  }
}

TEST_F(GoldenSuite, RefusesLanesThatWouldTestNothing) {
  ExpectRefusedText("[lanes.x]\n", "executes the runs as they are");
  ExpectRefusedText("[lanes.x]\nstops = [3, 2]\n", "must ascend");
  ExpectRefusedText("[lanes.x]\nset = ['a=1']\nloses = ['record']\n",
                    "needs `stops`");
  ExpectRefusedText("[lanes.x]\nstops = [1]\nloses = ['checkpoint']\n",
                    "must name one for each of the 1 of `stops`");
  ExpectRefusedText("[lanes.x]\nstops = [1]\nloses = ['journals']\n",
                    "Did you mean `journal`?");
  ExpectRefusedText(
      "[lanes.x]\nstops = [1]\nloses = []\n",
      "suite.toml:3:9: `lanes.x.loses` is [], but must be a list of "
      "some of checkpoint, record");
  ExpectRefusedText("[lanes.x]\nstops = [1, 2]\nresumes = [1, 1]\n",
                    "`lanes.x.resumes` holds 1 twice");
}

/// A run of 4 steps with /exchange rows of each.
compare::Run ExchangedRun() {
  compare::Run run;
  run.log.steps.step = {1, 2, 3, 4};
  run.log.exchange.step = {1, 2, 3, 4};
  run.log.provenance.ranks_per_node = 1;
  return run;
}

TEST_F(GoldenSuite, AnotherMeshEndsTheExchange) {
  compare::Run found = ExchangedRun();
  found.log.provenance.ranks_per_node = 2;
  const Lane same = {.name = "same", .stops = {2}};
  EXPECT_THAT(
      ExpectedOfLane(same, {ExchangedRun()}, {found}).front().log.exchange.step,
      ElementsAre(1, 2, 3, 4));
  Lane other = same;
  other.mesh_after_stop = {"parallel.ranks_per_node=2"};
  const runlog::RunLog log =
      ExpectedOfLane(other, {ExchangedRun()}, {found}).front().log;
  EXPECT_THAT(log.exchange.step, ElementsAre(1, 2));
  EXPECT_THAT(log.steps.step, ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(log.provenance.ranks_per_node, 2);
}

}  // namespace
}  // namespace isoloss::goldens::golden_suite_test
