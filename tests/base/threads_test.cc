#include "isoloss/base/threads.h"

#include <gtest/gtest.h>

#include <atomic>
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

}  // namespace
}  // namespace isoloss
