#include "isoloss/base/threads.h"

#include <sched.h>

#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "isoloss/base/error.h"

namespace isoloss {

struct ThreadTeam::Shared {
  std::mutex mutex;
  std::condition_variable work_ready;
  std::condition_variable work_done;
  std::vector<std::thread> threads;

  // Guarded by mutex.
  const std::function<void(size_t)>* body = nullptr;
  size_t tasks = 0;
  uint64_t generation = 0;
  int busy = 0;
  bool stopping = false;
  std::exception_ptr error;

  std::atomic<size_t> next{0};

  /// Here, not in ~ThreadTeam: the constructor may fail with threads running.
  ~Shared() {
    {
      const std::lock_guard lock(mutex);
      stopping = true;
    }
    work_ready.notify_all();
    for (std::thread& thread : threads) thread.join();
  }

  void RunTasks(const std::function<void(size_t)>& loop_body, size_t count) {
    try {
      for (size_t task = next.fetch_add(1); task < count;
           task = next.fetch_add(1)) {
        loop_body(task);
      }
    } catch (...) {
      next.store(count);
      const std::lock_guard lock(mutex);
      if (error == nullptr) error = std::current_exception();
    }
  }

  void Work() {
    uint64_t seen = 0;
    for (;;) {
      const std::function<void(size_t)>* loop_body = nullptr;
      size_t count = 0;
      {
        std::unique_lock lock(mutex);
        work_ready.wait(lock, [&] { return stopping || generation != seen; });
        if (stopping) return;
        seen = generation;
        loop_body = body;
        count = tasks;
      }
      RunTasks(*loop_body, count);
      const std::lock_guard lock(mutex);
      if (--busy == 0) work_done.notify_one();
    }
  }
};

ThreadTeam::ThreadTeam(int size)
    : size_(size), shared_(std::make_unique<Shared>()) {
  if (size < 1) {
    ThrowError(ErrorKind::kConfig,
               "ThreadTeam: size is {}, but a team has at least 1 thread. Pass "
               "a positive number.",
               size);
  }
  try {
    for (int i = 1; i < size; ++i) {
      shared_->threads.emplace_back(
          [shared = shared_.get()] { shared->Work(); });
    }
  } catch (const std::system_error& error) {
    ThrowError(ErrorKind::kConfig,
               "ThreadTeam: {} threads are wanted, but the system gives no "
               "more after {}: {}. Use fewer or raise the limit.",
               size, shared_->threads.size() + 1, error.code().message());
  }
}

ThreadTeam::~ThreadTeam() = default;

void ThreadTeam::ParallelFor(size_t tasks,
                             const std::function<void(size_t)>& body) {
  if (size_ == 1 || tasks <= 1) {
    for (size_t task = 0; task < tasks; ++task) body(task);
    return;
  }
  Shared& shared = *shared_;
  {
    const std::lock_guard lock(shared.mutex);
    ISOLOSS_ASSERT(shared.busy == 0);
    shared.body = &body;
    shared.tasks = tasks;
    shared.busy = size_ - 1;
    shared.error = nullptr;
    shared.next.store(0);
    ++shared.generation;
  }
  shared.work_ready.notify_all();
  shared.RunTasks(body, tasks);
  std::unique_lock lock(shared.mutex);
  shared.work_done.wait(lock, [&] { return shared.busy == 0; });
  if (shared.error != nullptr) {
    std::rethrow_exception(std::exchange(shared.error, nullptr));
  }
}

int AvailableProcessors() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) {
    const int count = CPU_COUNT(&set);
    if (count > 0) return count;
  }
  return 1;
}

}  // namespace isoloss
