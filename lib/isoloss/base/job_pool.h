// Runs many jobs side by side on a few threads.
#pragma once

#include <atomic>
#include <cstddef>
#include <exception>
#include <functional>
#include <mutex>

#include "isoloss/base/executor.h"

namespace isoloss {

/// Says how many threads there are in all, and how many jobs share them.
struct Crew {
  int workers = 1;
  int side_by_side = 1;
};

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
  /// Special  an empty crew is one worker; the first few executors share the
  ///          threads that do not divide evenly.
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
