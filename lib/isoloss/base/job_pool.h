// Runs many jobs side by side on a few threads.
#pragma once

#include <atomic>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>

#include "isoloss/base/executor.h"

namespace isoloss {

/// Makes the executor of a worker: which of them it is, and its threads.
using ExecutorMaker =
    std::function<std::unique_ptr<Executor>(int worker, int threads)>;

/// Says how many threads there are in all, and how many jobs share them.
struct Crew {
  int workers = 1;
  int side_by_side = 1;
  /// Empty: executors are threads of the host and nothing else.
  ExecutorMaker make_executor = {};
};

/// Makes the executor of a crew's worker: threads are divided evenly, the first
/// few workers taking those that are left over. An empty crew is one worker.
std::unique_ptr<Executor> MakeExecutor(const Crew& crew, int worker = 0);

/// Runs jobs that are handed out one by one. The calling thread is one of the
/// workers.
class JobPool {
 public:
  using Job = std::function<void(size_t job, Executor& executor)>;

  /// Calls job(i, executor) once for each i in [0, jobs), in ascending order on
  /// each worker, until `no_more` says so or a job throws. Returns when all
  /// that began have ended, and rethrows the first exception. To be called
  /// once.
  ///
  /// Errors   what a job throws; std::system_error if the system gives no more
  ///          threads: no further job begins then.
  /// Exact    nothing may depend on which worker runs a job, or when.
  void Run(size_t jobs, const Crew& crew, const std::function<bool()>& no_more,
           const Job& job);

  /// Has a job thrown? Those that are under way may end early. Callable from
  /// any thread.
  bool failed() const { return failed_.load(); }

 private:
  void Fail();

  std::atomic<size_t> next_{0};
  std::atomic<bool> failed_{false};
  std::mutex mutex_;
  std::exception_ptr error_;  // guarded by mutex_ until the threads have joined
};

}  // namespace isoloss
