#include "isoloss/base/threads.h"

#include <sched.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "isoloss/base/error.h"

namespace isoloss {
namespace {

/// How long a thread looks for a change before it sleeps. To be woken costs
/// some 50 microseconds; what threads of a training step wait for each other
/// within a loop, and the serial work between loops, is mostly below 200.
constexpr std::chrono::microseconds kPatience{200};
constexpr size_t kCacheLine = 64;

/// Tells the processor that this thread only waits.
inline void Pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// Returns the value of `word` once it differs from `old`. Looks at it for
/// `patience`, then sleeps until whoever changes it notifies.
uint32_t AwaitChange(const std::atomic<uint32_t>& word, uint32_t old,
                     std::chrono::microseconds patience) {
  constexpr int kLooksPerClock = 64;  // reading the clock costs as much as one
  const auto changed = [&] {
    for (int look = 0; look < kLooksPerClock; ++look) {
      if (word.load(std::memory_order_acquire) != old) return true;
      Pause();
    }
    return false;
  };
  if (!changed() && patience.count() > 0) {
    const auto end = std::chrono::steady_clock::now() + patience;
    while (!changed() && std::chrono::steady_clock::now() < end) {
    }
  }
  word.wait(old, std::memory_order_acquire);
  return word.load(std::memory_order_acquire);
}

}  // namespace

struct ThreadTeam::Shared {
  explicit Shared(int size)
      : patience(size <= AvailableProcessors() ? kPatience : kPatience.zero()) {
    errors.resize(static_cast<size_t>(size));
  }

  /// Here, not in ~ThreadTeam: the constructor may fail with threads running.
  ~Shared() {
    stopping = true;
    Announce();
    for (std::thread& thread : threads) thread.join();
  }

  /// Lets the threads see what was written before.
  void Announce() {
    generation.fetch_add(1);
    generation.notify_all();
  }

  /// Runs the share of thread `index` and reports it done.
  void RunShare(size_t index) {
    const size_t size = errors.size();
    try {
      loop.run(loop.body, loop.tasks * index / size,
               loop.tasks * (index + 1) / size);
    } catch (...) {
      errors[index] = std::current_exception();
      failed.store(true, std::memory_order_relaxed);
    }
    if (busy.fetch_sub(1) == 1) busy.notify_one();
  }

  void Work(size_t index) {
    for (uint32_t seen = 0;;) {
      seen = AwaitChange(generation, seen, patience);
      if (stopping) return;
      RunShare(index);
    }
  }

  void AwaitEnd() {
    for (uint32_t left = busy.load(std::memory_order_acquire); left != 0;) {
      left = AwaitChange(busy, left, patience);
    }
  }

  void RethrowFirst() {
    failed.store(false, std::memory_order_relaxed);
    std::exception_ptr first;
    for (std::exception_ptr& error : errors) {
      if (first == nullptr) first = error;
      error = nullptr;
    }
    std::rethrow_exception(first);
  }

  /// Written by the caller while no thread is busy; `generation` publishes it.
  alignas(kCacheLine) Loop loop{};
  std::atomic<uint32_t> generation{0};
  bool stopping = false;
  /// None if there are more threads than processors: to look for work would
  /// keep others from it.
  const std::chrono::microseconds patience;
  std::vector<std::exception_ptr> errors;  // one per thread

  /// Threads that have not finished the loop, the caller included.
  alignas(kCacheLine) std::atomic<uint32_t> busy{0};
  std::atomic<bool> failed{false};
  std::vector<std::thread> threads;
};

ThreadTeam::ThreadTeam(int size) : size_(size) {
  if (size < 1) {
    ThrowError(ErrorKind::kConfig,
               "ThreadTeam: size is {}, but a team has at least 1 thread. Pass "
               "a positive number.",
               size);
  }
  shared_ = std::make_unique<Shared>(size);
  try {
    for (size_t i = 1; i < static_cast<size_t>(size); ++i) {
      shared_->threads.emplace_back(
          [shared = shared_.get(), i] { shared->Work(i); });
    }
  } catch (const std::system_error& error) {
    ThrowError(ErrorKind::kConfig,
               "ThreadTeam: {} threads are wanted, but the system gives no "
               "more after {}: {}. Use fewer or raise the limit.",
               size, shared_->threads.size() + 1, error.code().message());
  }
}

ThreadTeam::~ThreadTeam() = default;

void ThreadTeam::Run(const Loop& loop) {
  Shared& shared = *shared_;
  ISOLOSS_ASSERT(shared.busy.load(std::memory_order_relaxed) == 0);
  shared.loop = loop;
  shared.busy.store(static_cast<uint32_t>(size_), std::memory_order_relaxed);
  shared.Announce();
  shared.RunShare(0);
  shared.AwaitEnd();
  if (shared.failed.load(std::memory_order_relaxed)) shared.RethrowFirst();
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
