#include "isoloss/campaign/job_queue.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <vector>

namespace isoloss::campaign::job_queue_test {
namespace {

const std::atomic<bool> kGoOn{false};

TEST(JobQueue, DoesEveryJobOnce) {
  for (const int workers : {1, 3}) {
    std::vector<std::atomic<int>> done(20);
    EXPECT_TRUE(RunJobs("jobs", done.size(),
                        OneThreadEach(done.size(), workers), kGoOn,
                        [&](size_t job, Executor&) { ++done[job]; }));
    for (const std::atomic<int>& count : done) EXPECT_EQ(count, 1);
  }
}

TEST(JobQueue, BeginsNoJobOnceItIsToStop) {
  std::atomic<bool> stop{false};
  int begun = 0;
  EXPECT_FALSE(
      RunJobs("jobs", 5, OneThreadEach(5, 1), stop, [&](size_t, Executor&) {
        ++begun;
        stop = true;
      }));
  EXPECT_EQ(begun, 1);
}

TEST(JobQueue, TheFirstExceptionEndsTheOthers) {
  int begun = 0;
  EXPECT_THROW(RunJobs("jobs", 5, OneThreadEach(5, 1), kGoOn,
                       [&](size_t, Executor&) {
                         ++begun;
                         throw std::runtime_error("first");
                       }),
               std::runtime_error);
  EXPECT_EQ(begun, 1);
}

TEST(JobQueue, HasNothingToDoWithoutJobs) {
  EXPECT_TRUE(RunJobs("jobs", 0, OneThreadEach(0, 2), kGoOn,
                      [](size_t, Executor&) { FAIL() << "there is no job"; }));
}

}  // namespace
}  // namespace isoloss::campaign::job_queue_test
