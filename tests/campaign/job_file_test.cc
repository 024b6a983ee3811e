#include "isoloss/campaign/job_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "isoloss/base/error.h"
#include "support/temporary_folder.h"

namespace isoloss::campaign::job_file_test {
namespace {

using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

TEST(JobFile, IsThereWhileTheJobIs) {
  const test_support::TemporaryFolder folder;
  EXPECT_FALSE(LiveJob(folder.path()));
  {
    const JobFile job(folder.path(), {40, {"bf16-seed1", "mxfp8-seed1"}});
    const std::optional<JobPlan> live = LiveJob(folder.path());
    ASSERT_TRUE(live);
    EXPECT_EQ(live->steps, 40);
    EXPECT_THAT(live->runs, ElementsAre("bf16-seed1", "mxfp8-seed1"));
  }
  EXPECT_FALSE(LiveJob(folder.path()));
  EXPECT_TRUE(folder.Entries().empty());
}

TEST(JobFile, JobsOfOneFolderAreJoined) {
  const test_support::TemporaryFolder folder;
  const JobFile one(folder.path(), {40, {"bf16-seed1"}});
  const JobFile other(folder.path(), {40, {"bf16-seed2"}});
  EXPECT_THAT(LiveJob(folder.path())->runs,
              UnorderedElementsAre("bf16-seed1", "bf16-seed2"));
}

TEST(JobFile, WhatAKilledJobHasLeftIsPassedOver) {
  const test_support::TemporaryFolder folder;
  std::string text;
  {
    const JobFile job(folder.path(), {40, {"bf16-seed1"}});
    std::ifstream file(folder.path() / folder.Entries().front());
    text.assign(std::istreambuf_iterator<char>(file), {});
  }
  std::ofstream(folder.path() / ".bf16-seed1.job") << text;
  EXPECT_FALSE(LiveJob(folder.path()));
}

TEST(JobFile, NeedsAFolderThatCanHoldIt) {
  EXPECT_THROW(JobFile("/no/such/folder", {40, {"bf16-seed1"}}), Error);
  EXPECT_FALSE(LiveJob("/no/such/folder"));
}

}  // namespace
}  // namespace isoloss::campaign::job_file_test
