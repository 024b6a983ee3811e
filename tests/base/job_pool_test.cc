#include "isoloss/base/job_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>
#include <stdexcept>
#include <vector>

namespace isoloss::job_pool_test {
namespace {

const auto kGoOn = [] { return false; };

TEST(JobPool, DoesEveryJobOnce) {
  for (const int side_by_side : {1, 3}) {
    std::vector<std::atomic<int>> done(20);
    JobPool().Run(done.size(), {side_by_side, side_by_side}, kGoOn,
                  [&](size_t job, Executor&) { ++done[job]; });
    for (const std::atomic<int>& count : done) EXPECT_EQ(count, 1);
  }
}

TEST(JobPool, SharesItsThreadsAmongTheTeams) {
  // No job ends before all three have begun, so each worker has one.
  std::atomic<int> begun{0};
  std::mutex mutex;
  std::vector<int> sizes;
  JobPool().Run(3, {8, 3}, kGoOn, [&](size_t, Executor& executor) {
    ++begun;
    while (begun < 3) {
    }
    const std::lock_guard lock(mutex);
    sizes.push_back(executor.size());
  });
  std::sort(sizes.begin(), sizes.end());
  EXPECT_EQ(sizes, (std::vector<int>{2, 3, 3}));
}

TEST(JobPool, BeginsNoJobOnceThereShallBeNoMore) {
  int begun = 0;
  JobPool().Run(
      5, {1, 1}, [&] { return begun == 2; },
      [&](size_t, Executor&) { ++begun; });
  EXPECT_EQ(begun, 2);
}

TEST(JobPool, TheFirstExceptionEndsTheOthers) {
  JobPool pool;
  std::atomic<int> begun{0};
  EXPECT_THROW(pool.Run(50, {2, 2}, kGoOn,
                        [&](size_t job, Executor&) {
                          ++begun;
                          if (job == 0) throw std::runtime_error("first");
                          // One that is under way learns of it.
                          while (!pool.failed()) {
                          }
                        }),
               std::runtime_error);
  EXPECT_TRUE(pool.failed());
  EXPECT_LE(begun, 2);
}

TEST(JobPool, HasNothingToDoWithoutJobs) {
  // No more side by side than there are jobs.
  for (const int side_by_side : {0, 2}) {
    JobPool().Run(0, {2, side_by_side}, kGoOn,
                  [](size_t, Executor&) { FAIL() << "there is no job"; });
  }
}

}  // namespace
}  // namespace isoloss::job_pool_test
