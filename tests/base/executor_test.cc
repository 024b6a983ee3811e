#include "isoloss/base/executor.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "isoloss/base/error.h"

namespace isoloss::executor_test {
namespace {

class ExecutorTest : public ::testing::TestWithParam<int> {};

TEST_P(ExecutorTest, RunsEveryTaskOnce) {
  Executor executor(GetParam());

  for (const size_t tasks : {0, 1, 2, 3, 1000}) {
    std::vector<std::atomic<int>> runs(tasks);
    executor.ParallelFor(tasks, [&](size_t task) { ++runs[task]; });
    for (const auto& count : runs) ASSERT_EQ(count, 1);
  }
}

TEST_P(ExecutorTest, RethrowsAndStaysUsable) {
  Executor executor(GetParam());

  EXPECT_THROW(executor.ParallelFor(100,
                                    [](size_t task) {
                                      if (task == 13)
                                        throw std::logic_error("13");
                                    }),
               std::logic_error);

  std::atomic<int> runs{0};
  executor.ParallelFor(10, [&](size_t) { ++runs; });
  EXPECT_EQ(runs, 10);
}

TEST_P(ExecutorTest, RunsEachShareOnOneThreadInOrder) {
  constexpr size_t kTasks = 103;
  const auto size = static_cast<size_t>(GetParam());
  Executor executor(GetParam());
  std::vector<std::thread::id> thread(kTasks);
  std::vector<size_t> earlier(kTasks);

  executor.ParallelFor(kTasks, [&](size_t task) {
    static thread_local size_t done = 0;
    thread[task] = std::this_thread::get_id();
    earlier[task] = done++;
  });

  // The other shares are the caller's as well if their threads are late.
  EXPECT_EQ(thread[0], std::this_thread::get_id());
  for (size_t i = 0; i < size; ++i) {
    const size_t first = kTasks * i / size;
    for (size_t task = first + 1; task < kTasks * (i + 1) / size; ++task) {
      EXPECT_EQ(thread[task], thread[first]);
      EXPECT_EQ(earlier[task], earlier[task - 1] + 1);
    }
  }
}

TEST(Executor, WorksWhileTheCallerDoes) {
  // Each share waits for the other one: only a second thread can end it. The
  // first loops find it asleep, or the machine busy.
  Executor executor(2);
  bool together = false;
  for (int loop = 0; loop < 1000 && !together; ++loop) {
    std::atomic<int> begun{0};
    std::atomic<int> met{0};
    executor.ParallelFor(2, [&](size_t) {
      ++begun;
      const auto end =
          std::chrono::steady_clock::now() + std::chrono::milliseconds(20);
      while (begun < 2 && std::chrono::steady_clock::now() < end) {
        std::this_thread::yield();
      }
      if (begun == 2) ++met;
    });
    together = met == 2;
  }
  EXPECT_TRUE(together);
}

TEST(Executor, TakesTheShareOfAThreadThatIsLate) {
  // More threads than processors: not all begin before the caller is done.
  Executor executor(64);
  std::atomic<int> by_caller{0};
  const auto caller = std::this_thread::get_id();
  for (int loop = 0; loop < 50; ++loop) {
    std::atomic<int> runs{0};
    executor.ParallelFor(64, [&](size_t) {
      ++runs;
      if (std::this_thread::get_id() == caller) ++by_caller;
    });
    ASSERT_EQ(runs, 64);
  }
  EXPECT_GT(by_caller, 50);
}

TEST_P(ExecutorTest, RethrowsWhatTheLowestTaskThrew) {
  Executor executor(GetParam());
  const auto fail = [](size_t task) {
    if (task % 10 == 7) throw std::runtime_error(std::to_string(task));
  };

  for (int repetition = 0; repetition < 100; ++repetition) {
    try {
      executor.ParallelFor(50, fail);
      FAIL() << "nothing was thrown";
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "7");
    }
  }
}

TEST_P(ExecutorTest, SkipsTheRestOfTheShareThatThrew) {
  constexpr size_t kTasks = 100;
  const auto size = static_cast<size_t>(GetParam());
  Executor executor(GetParam());
  std::vector<char> ran(kTasks, 0);

  EXPECT_THROW(executor.ParallelFor(kTasks,
                                    [&](size_t task) {
                                      if (task == 1)
                                        throw std::logic_error("1");
                                      ran[task] = 1;
                                    }),
               std::logic_error);

  for (size_t task = 0; task < kTasks; ++task) {
    EXPECT_EQ(ran[task] == 1, task == 0 || task >= kTasks / size);
  }
}

TEST_P(ExecutorTest, RunsManyTinyLoops) {
  constexpr size_t kLoops = 3000;
  Executor executor(GetParam());
  // Not atomic: each loop sees what all threads wrote in the one before.
  std::vector<size_t> sums(7, 0);

  for (size_t loop = 0; loop < kLoops; ++loop) {
    const size_t shift = loop % sums.size();
    executor.ParallelFor(sums.size(), [&](size_t task) {
      sums[(task + shift) % sums.size()] += loop;
    });
  }

  for (const size_t sum : sums) EXPECT_EQ(sum, kLoops * (kLoops - 1) / 2);
}

TEST_P(ExecutorTest, WakesThreadsThatSleep) {
  Executor executor(GetParam());
  std::atomic<int> runs{0};

  for (int loop = 0; loop < 5; ++loop) {
    // Longer than any thread looks for work.
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    executor.ParallelFor(100, [&](size_t) { ++runs; });
  }

  EXPECT_EQ(runs, 500);
}

TEST_P(ExecutorTest, WaitsForASlowThread) {
  Executor executor(GetParam());
  const auto tasks = static_cast<size_t>(GetParam());
  std::vector<int> done(tasks, 0);

  executor.ParallelFor(tasks, [&](size_t task) {
    if (task + 1 == tasks) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    done[task] = 1;
  });

  EXPECT_EQ(done, std::vector<int>(tasks, 1));
}

// 33 is more than most machines that run tests have processors.
INSTANTIATE_TEST_SUITE_P(Sizes, ExecutorTest, ::testing::Values(1, 2, 5, 33));

TEST(Executor, RefusesToHaveNoThread) { EXPECT_THROW(Executor(0), Error); }

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
/// Exits with 0 if a executor that is too large for the address space left ends
/// in an Error: room for a few stacks, not for a thousand.
[[noreturn]] void AskForTooManyThreads() {
  size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const size_t bytes =
      pages * static_cast<size_t>(sysconf(_SC_PAGESIZE)) + (32 << 20);
  const rlimit limit = {bytes, bytes};
  setrlimit(RLIMIT_AS, &limit);
  try {
    const Executor executor(1000);
  } catch (const Error&) {
    std::exit(0);
  }
  std::exit(1);
}

TEST(Executor, EndsItsThreadsWhenTheSystemGivesNoMore) {
  EXPECT_EXIT(AskForTooManyThreads(), ::testing::ExitedWithCode(0), "");
}
#endif

}  // namespace
}  // namespace isoloss::executor_test
