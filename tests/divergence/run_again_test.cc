// A step of a recorded run computed once more has the tensors that it had.
#include "isoloss/train/run_again.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "isoloss/base/error.h"
#include "isoloss/probes/dump.h"
#include "isoloss/runlog/reader.h"
#include "isoloss/runlog/tensor_dump.h"
#include "kept_runs.h"
#include "support/temporary_folder.h"

namespace isoloss::train::run_again_test {
namespace {

namespace fs = std::filesystem;
using isoloss::test_support::TemporaryFolder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

const Manner kManner = {.ranks = 4};

/// A whole run that stored all tensors of three steps itself.
class RunAgainTest : public ::testing::TestWithParam<int64_t> {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TemporaryFolder;
    Execute({.folder = folder_->path(),
             .manner = kManner,
             .overrides = {"log.dump_tensors=[\"*\"]",
                           "log.dump_steps=[1, 5, 6]"}});
  }
  static void TearDownTestSuite() {
    delete folder_;
    folder_ = nullptr;
  }

  static fs::path Log() { return PathsIn(folder_->path()).Log(); }
  static fs::path DumpOfRun(int64_t step) {
    return folder_->path() / "dumps" / probes::DumpFileName("kept", step);
  }

  /// Repeats a step; counts those that it takes.
  fs::path Again(int64_t step, const Manner& manner = kManner,
                 const std::vector<std::string>& patterns = {"*"},
                 const std::vector<std::string>& overrides = {}) {
    const Experiment experiment = KeptExperiment(manner, overrides);
    RunAgainHooks hooks;
    hooks.on_step = [this](int64_t now) { steps_.push_back(now); };
    return RunAgain(experiment, CorpusOf(experiment),
                    runlog::ReadRunLog(Log()).provenance, Log(), step, patterns,
                    zoom_.path(), hooks);
  }

  static TemporaryFolder* folder_;
  TemporaryFolder zoom_;
  std::vector<int64_t> steps_;
};

TemporaryFolder* RunAgainTest::folder_ = nullptr;

TEST_P(RunAgainTest, GivesTheTensorsThatTheRunHad) {
  const runlog::TensorDump expected =
      runlog::ReadTensorDump(DumpOfRun(GetParam()));

  const runlog::TensorDump found =
      runlog::ReadTensorDump(Again(GetParam(), kManner));

  EXPECT_GT(found.tensors.size(), 100u);
  EXPECT_TRUE(found == expected);
  EXPECT_EQ(steps_.front(), (GetParam() - 1) / 3 * 3 + 1);
  EXPECT_EQ(steps_.back(), GetParam());
}

TEST_P(RunAgainTest, StartsAtTheBeginningWithoutCheckpoints) {
  const fs::path checkpoints = PathsIn(folder_->path()).Checkpoints();
  const fs::path aside = folder_->path() / "aside";
  fs::rename(checkpoints, aside);

  const fs::path dump = Again(GetParam());
  fs::rename(aside, checkpoints);

  EXPECT_TRUE(runlog::ReadTensorDump(dump) ==
              runlog::ReadTensorDump(DumpOfRun(GetParam())));
  EXPECT_EQ(steps_.front(), 1);
}

TEST_P(RunAgainTest, TakesAnyRanksTransportAndWorkers) {
  const fs::path dump = Again(GetParam(), {.ranks = 2, .transport = "threads"},
                              {"*"}, {"parallel.workers=3"});

  EXPECT_TRUE(runlog::ReadTensorDump(dump) ==
              runlog::ReadTensorDump(DumpOfRun(GetParam())));
}

INSTANTIATE_TEST_SUITE_P(Steps, RunAgainTest, ::testing::Values(1, 5, 6));

TEST_F(RunAgainTest, StoresOnlyWhatIsAskedForAndLeavesTheRunAlone) {
  const auto read = [] { return runlog::ReadRunLog(Log()); };
  const size_t events = read().events.size();

  const fs::path dump = Again(5, kManner, {"lm_head"});

  std::vector<std::string> names;
  for (const auto& tensor : runlog::ReadTensorDump(dump).tensors) {
    names.push_back(tensor.name);
  }
  EXPECT_THAT(names, ElementsAre("lm_head_weight", "lm_head_activation",
                                 "lm_head_output", "lm_head_gradient",
                                 "lm_head_dgrad", "lm_head_wgrad",
                                 "lm_head_parameter", "lm_head_update"));
  EXPECT_THAT(zoom_.Entries(), ElementsAre("dumps"));
  EXPECT_EQ(read().events.size(), events);
  EXPECT_TRUE(fs::exists(PathsIn(folder_->path()).Checkpoints()));
}

TEST_F(RunAgainTest, RefusesWhatIsNotTheRun) {
  EXPECT_THAT(
      [&] { Again(5, kManner, {"*"}, {"train.lr=0.02"}); },
      ThrowsMessage<Error>(HasSubstr("train.lr: 0.01 before, 0.02 now")));
  EXPECT_THAT([&] { Again(5, kManner, {"*"}, {"data.seed=7"}); },
              ThrowsMessage<Error>(HasSubstr("data.seed: 0 before, 7 now")));
  EXPECT_THAT([&] { Again(9); },
              ThrowsMessage<Error>(HasSubstr("has steps 1 to 8")));
}

}  // namespace
}  // namespace isoloss::train::run_again_test
