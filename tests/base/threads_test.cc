#include "isoloss/base/threads.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <vector>

#include "isoloss/base/error.h"

namespace isoloss {
namespace {

class ThreadTeamTest : public ::testing::TestWithParam<int> {};

TEST_P(ThreadTeamTest, RunsEveryTaskOnce) {
  ThreadTeam team(GetParam());

  for (const size_t tasks : {0, 1, 2, 3, 1000}) {
    std::vector<std::atomic<int>> runs(tasks);
    team.ParallelFor(tasks, [&](size_t task) { ++runs[task]; });
    for (const auto& count : runs) ASSERT_EQ(count, 1);
  }
}

TEST_P(ThreadTeamTest, RethrowsAndStaysUsable) {
  ThreadTeam team(GetParam());

  EXPECT_THROW(team.ParallelFor(100,
                                [](size_t task) {
                                  if (task == 13) throw std::logic_error("13");
                                }),
               std::logic_error);

  std::atomic<int> runs{0};
  team.ParallelFor(10, [&](size_t) { ++runs; });
  EXPECT_EQ(runs, 10);
}

INSTANTIATE_TEST_SUITE_P(Sizes, ThreadTeamTest, ::testing::Values(1, 2, 5));

TEST(ThreadTeam, RefusesAnEmptyTeam) { EXPECT_THROW(ThreadTeam(0), Error); }

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
/// Exits with 0 if a team that is too large for the address space left ends in
/// an Error: room for a few stacks, not for a thousand.
[[noreturn]] void AskForTooManyThreads() {
  size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const size_t bytes =
      pages * static_cast<size_t>(sysconf(_SC_PAGESIZE)) + (32 << 20);
  const rlimit limit = {bytes, bytes};
  setrlimit(RLIMIT_AS, &limit);
  try {
    const ThreadTeam team(1000);
  } catch (const Error&) {
    std::exit(0);
  }
  std::exit(1);
}

TEST(ThreadTeam, EndsItsThreadsWhenTheSystemGivesNoMore) {
  EXPECT_EXIT(AskForTooManyThreads(), ::testing::ExitedWithCode(0), "");
}
#endif

}  // namespace
}  // namespace isoloss
