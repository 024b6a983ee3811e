// What a process finds on its own machine: each fault is named, and nothing is
// left behind.
#include "isoloss/doctor/node_health.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <thread>

#include "isoloss/base/temporary_folder.h"

namespace isoloss::doctor::node_health_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(NodeHealth, NamesBitsThatAreNotTheKnownOnes) {
  const KnownNumerics right[] = {AllKnownNumerics().front()};
  const KnownNumerics damaged[] = {{right[0].recipe, right[0].digest ^ 1}};

  EXPECT_EQ(ExamineNumerics(right).problem, "");
  EXPECT_GT(ExamineNumerics(right).trainings, 0);
  EXPECT_THAT(ExamineNumerics(damaged).problem,
              HasSubstr("differ from the known bits"));
}

TEST(NodeHealth, MeasuresMemoryAndNamesTooLittle) {
  const MemoryHealth enough = ExamineMemory({.memory = 1e6}, 2);
  EXPECT_EQ(enough.problem, "");
  EXPECT_GT(enough.available_bytes, 1e6);
  EXPECT_GT(enough.bytes_per_second, 0);

  // Each process alone would fit, the two do not.
  EXPECT_THAT(
      ExamineMemory({.memory = enough.available_bytes * 0.9}, 2).problem,
      AllOf(HasSubstr("of memory are available"),
            HasSubstr("2 of this job's processes need at least")));
}

TEST(NodeHealth, MeasuresADiskAndLeavesNothing) {
  const TemporaryFolder folder;
  // The folder of results is made by the run: it need not be there.
  const DiskHealth disk = WriteAndReadBack(folder.path() / "a/b", {.disk = 1});

  EXPECT_EQ(disk.problem, "");
  EXPECT_GT(disk.write_bytes_per_second, 0);
  EXPECT_GT(disk.read_bytes_per_second, 0);
  // The same machine's clock, whose file times may be a timer tick old.
  EXPECT_LT(std::abs(disk.seconds_ahead), 1);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(NodeHealth, NamesADiskWithTooLittleRoom) {
  const TemporaryFolder folder;

  EXPECT_THAT(WriteAndReadBack(folder.path(), {.disk = 1e18}).problem,
              AllOf(HasSubstr("are free, but the results need up to"),
                    HasSubstr(folder.path().string())));
}

TEST(NodeHealth, NamesADiskThatTakesNoMoreAndLeavesNothing) {
  const TemporaryFolder folder;
  std::signal(SIGXFSZ, SIG_IGN);  // as the program does
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit little{1 << 20, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &little), 0);
  const DiskHealth disk = WriteAndReadBack(folder.path(), {});
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);

  EXPECT_THAT(disk.problem, AllOf(HasSubstr("a file of 8 MiB can't be written"),
                                  HasSubstr("File too large")));
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(NodeHealth, NamesAFileSystemThatDoesNotAnswer) {
  const auto slow = [] {
    std::this_thread::sleep_for(std::chrono::seconds(2));
    return DiskHealth();
  };

  EXPECT_THAT(
      ExamineDiskWithin(std::chrono::duration<double>(0.2), slow).problem,
      HasSubstr("has not answered for 0.2 s"));
  EXPECT_EQ(ExamineDiskWithin(std::chrono::duration<double>(60), slow).problem,
            "");
}

}  // namespace
}  // namespace isoloss::doctor::node_health_test
