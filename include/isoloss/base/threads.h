// Shares loops among a fixed team of worker threads.
#pragma once

#include <cstddef>
#include <memory>

namespace isoloss {

/// Runs loops of independent tasks on a fixed number of threads, the calling
/// one included. What a task computes must depend on its index only: no bit of
/// a result may depend on the team.
///
/// Cost     below a microsecond per loop while loops follow each other closely:
///          threads that wait look for work for 0.2 ms before they sleep,
///          unless there are more threads than processors. Where the machine is
///          so busy that waiting costs more than other threads do meanwhile,
///          the caller runs loops alone for a while: a team is at most 1.3
///          times as slow as one thread. No memory is allocated.
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
  /// done. Share i of n is tasks [tasks * i / n, tasks * (i + 1) / n), which
  /// one thread runs in ascending order: thread i, or the caller (thread 0) if
  /// thread i is late. So give tasks about equal work, and let none wait for
  /// another. If a body throws, the rest of its share is skipped; of several
  /// exceptions that of the lowest task is rethrown here. Not reentrant: a body
  /// may not call it on the same team.
  template <typename Body>
  void ParallelFor(size_t tasks, const Body& body) {
    if (size_ == 1 || tasks <= 1) {
      for (size_t task = 0; task < tasks; ++task) body(task);
      return;
    }
    Run({tasks, &body, [](const void* erased, size_t first, size_t end) {
           const Body& typed = *static_cast<const Body*>(erased);
           for (size_t task = first; task < end; ++task) typed(task);
         }});
  }

 private:
  struct Loop {
    size_t tasks;
    const void* body;
    void (*run)(const void* body, size_t first, size_t end);
  };
  struct Shared;

  void Run(const Loop& loop);

  int size_;
  std::unique_ptr<Shared> shared_;
};

/// Number of processors this process may run on (its affinity mask), >= 1, or
/// the environment's ISOLOSS_PROCESSORS if that is less.
/// Errors   ConfigError if that is no whole number from 1 on.
int AvailableProcessors();

}  // namespace isoloss
