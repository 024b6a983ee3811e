// A fixed team of worker threads.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

namespace isoloss {

/// Runs loops of independent tasks on a fixed number of threads, the calling
/// one included. What a task computes must depend on its index only: which
/// thread takes it is not defined, so no bit of a result may depend on the
/// team.
class ThreadTeam {
 public:
  /// `size` >= 1 threads in all; size 1 starts none and runs loops in place.
  /// Errors   ConfigError if size is below 1 or the system gives no more
  ///          threads.
  explicit ThreadTeam(int size);
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  int size() const { return size_; }

  /// Calls body(task) once for each task in [0, tasks) and returns when all are
  /// done. If a body throws, remaining tasks are skipped and the first
  /// exception is rethrown here. Not reentrant: a body may not call it on the
  /// same team.
  void ParallelFor(size_t tasks, const std::function<void(size_t)>& body);

 private:
  struct Shared;
  int size_;
  std::unique_ptr<Shared> shared_;
};

/// Number of processors this process may run on (its affinity mask), >= 1.
int AvailableProcessors();

}  // namespace isoloss
