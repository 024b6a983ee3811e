#include "isoloss/base/job_pool.h"

#include <algorithm>
#include <thread>
#include <vector>

namespace isoloss {

std::unique_ptr<Executor> MakeExecutor(const Crew& crew, int worker) {
  // A crew that was measured by the jobs is empty if there are none.
  const int side_by_side = std::max(1, crew.side_by_side);
  const int threads =
      std::max(1, crew.workers / side_by_side +
                      (worker < crew.workers % side_by_side ? 1 : 0));
  return crew.make_executor ? crew.make_executor(worker, threads)
                            : std::make_unique<Executor>(threads);
}

void JobPool::Run(size_t jobs, const Crew& crew,
                  const std::function<bool()>& no_more, const Job& job) {
  const auto work = [&](int worker) {
    try {
      const std::unique_ptr<Executor> executor = MakeExecutor(crew, worker);
      while (!failed() && !no_more()) {
        const size_t next = next_.fetch_add(1);
        if (next >= jobs) return;
        job(next, *executor);
      }
    } catch (...) {
      Fail();
    }
  };
  std::vector<std::thread> threads;
  try {
    for (int i = 1; i < crew.side_by_side; ++i) threads.emplace_back(work, i);
  } catch (...) {  // the system gives no more threads
    Fail();
  }
  work(0);
  for (std::thread& thread : threads) thread.join();
  if (error_ != nullptr) std::rethrow_exception(error_);
}

/// Keeps the exception being handled, if it is the first.
void JobPool::Fail() {
  const std::lock_guard lock(mutex_);
  if (error_ == nullptr) error_ = std::current_exception();
  failed_.store(true);
}

}  // namespace isoloss
