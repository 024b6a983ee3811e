#include "isoloss/campaign/watched_sweep.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>

#include "isoloss/base/error.h"
#include "support/temporary_folder.h"

namespace isoloss::campaign::watched_sweep_test {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

/// A folder with the list of a sweep of four runs, of 10, 20, 30 and 40 s.
struct Folder {
  Folder() {
    RunList list{.folder = "/where it was made", .runs = {}};
    for (int i = 1; i <= 4; ++i) {
      const std::string name = "cell/run" + std::to_string(i);
      list.runs.push_back({.name = name,
                           .file = "cells/" + name + ".h5",
                           .thread_seconds = 10.0 * i});
    }
    fs::create_directories(path() / kSweepFolder);
    fs::create_directories(path() / "cells/cell");
    WriteRunList(list, path() / kSweepFolder / kRunsFile);
  }
  fs::path path() const { return folder.path(); }
  void Put(const std::string& name) const {
    std::ofstream(path() / "cells/cell" / name) << "x";
  }
  test_support::TemporaryFolder folder;
};

TEST(WatchedSweep, IsNoneWithoutAList) {
  const test_support::TemporaryFolder folder;
  EXPECT_FALSE(WatchedSweep::In(folder.path()).has_value());
}

TEST(WatchedSweep, CountsWhatTheRunsLeave) {
  const Folder folder;
  // Twenty seconds ago, so that what comes now is behind it.
  fs::last_write_time(
      folder.path() / kSweepFolder / kRunsFile,
      fs::file_time_type::clock::now() - std::chrono::seconds(20));
  folder.Put("run1.h5");
  fs::last_write_time(folder.path() / "cells/cell/run1.h5",
                      fs::file_time_type::clock::now() - std::chrono::hours(1));
  folder.Put("run2.h5");
  folder.Put("run3.journal");
  auto sweep = WatchedSweep::In(folder.path());
  ASSERT_TRUE(sweep.has_value());
  sweep->Update();

  const report::LiveJob job = sweep->Job();
  EXPECT_EQ(job.runs, 4u);
  EXPECT_EQ(job.finished, 2u);
  EXPECT_DOUBLE_EQ(job.done, 0.3);
  EXPECT_THAT(job.waiting, ElementsAre("cell/run4"));
  ASSERT_THAT(sweep->begun(), SizeIs(1));
  EXPECT_EQ(sweep->begun()[0].file, "run3");
  EXPECT_EQ(sweep->begun()[0].folder, folder.path() / "cells/cell");
  // In 20 s and what this test took, 20 s of run 2 were done; 70 are left.
  ASSERT_TRUE(job.seconds_left.has_value());
  EXPECT_GE(*job.seconds_left, 70);
  EXPECT_FALSE(sweep->AllFinished());
}

TEST(WatchedSweep, EndsWhenAllHaveFinished) {
  const Folder folder;
  for (int i = 1; i <= 4; ++i) folder.Put("run" + std::to_string(i) + ".h5");
  auto sweep = WatchedSweep::In(folder.path());
  sweep->Update();
  EXPECT_TRUE(sweep->AllFinished());
  EXPECT_THAT(sweep->begun(), IsEmpty());
  EXPECT_EQ(sweep->Job().done, 1);
}

TEST(WatchedSweep, RefusesADamagedList) {
  const Folder folder;
  std::ofstream(folder.path() / kSweepFolder / kRunsFile) << "{";
  EXPECT_THROW(WatchedSweep::In(folder.path()), Error);
}

}  // namespace
}  // namespace isoloss::campaign::watched_sweep_test
