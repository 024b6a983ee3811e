// Where kernels run: memory, and threads of the host.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "isoloss/base/memory.h"

namespace isoloss {

/// The address of a kernel, whatever its arguments are.
using ErasedKernel = void (*)();

/// Runs kernels on the host: their loops of independent tasks go to a fixed
/// number of threads, the calling one included. What a task computes must
/// depend on its index only: no bit of a result may depend on the executor.
///
/// An executor of a device derives from it. It gives its own memory, and a form
/// of its own to each kernel that it runs there; the threads are for what stays
/// on the host.
///
/// Cost     below a microsecond per loop while loops follow each other closely:
///          threads that wait look for work for 0.2 ms before they sleep,
///          unless there are more threads than processors. Where the machine is
///          so busy that waiting costs more than other threads do meanwhile,
///          the caller runs loops alone for a while: it is at most 1.3 times
///          as slow as one thread. No memory is allocated.
class Executor {
 public:
  /// `size` >= 1 threads in all; size 1 starts none and runs loops in place.
  /// Errors   ConfigError if size is below 1 or the system gives no more
  ///          threads.
  explicit Executor(int size);
  virtual ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  /// Where the matrices lie that its kernels read and write.
  virtual Memory& memory() { return kHostMemory; }
  /// The address of its own form of a kernel, a function of the same type.
  /// Null: it has none.
  virtual ErasedKernel FormOf(ErasedKernel /*kernel*/) const { return nullptr; }

  /// The device's name in logs. Empty: kernels run on the host's processor.
  virtual std::string device() const { return {}; }

  int size() const { return size_; }

  /// Calls body(task) once for each task in [0, tasks) and returns when all are
  /// done. Share i of n is tasks [tasks * i / n, tasks * (i + 1) / n), which
  /// one thread runs in ascending order: thread i, or the caller (thread 0) if
  /// thread i is late. So give tasks about equal work, and let none wait for
  /// another. If a body throws, the rest of its share is skipped; of several
  /// exceptions that of the lowest task is rethrown here. Not reentrant: a body
  /// may not call it on the same executor.
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
