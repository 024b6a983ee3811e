#include "isoloss/base/executor.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "isoloss/base/error.h"

namespace isoloss {
namespace {

using Clock = std::chrono::steady_clock;

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
    const auto end = Clock::now() + patience;
    while (!changed() && Clock::now() < end) {
    }
  }
  word.wait(old, std::memory_order_acquire);
  return word.load(std::memory_order_acquire);
}

/// Keeps account of what waiting for other threads costs and of what they do
/// meanwhile. On a busy machine the system lets a thread wait for milliseconds
/// with its share half done. Then the caller works alone for a multiple of the
/// time that was lost: an executor loses 1 / kTimesAlone of its time at most.
class Account {
 public:
  bool IsAlone(Clock::time_point now) const { return now < alone_until_; }

  /// A loop that ended at `now` lost time on threads that were announced to and
  /// waited for, and gained the time for which they worked.
  void Add(Clock::duration lost, Clock::duration gained,
           Clock::time_point now) {
    debt_ = std::max(debt_ + lost - gained, -kReserve);
    if (debt_ <= kPatience) return;
    alone_until_ = now + kTimesAlone * debt_;
    debt_ = {};
  }

 private:
  static constexpr int kTimesAlone = 8;
  /// Good times save up this reserve for an interruption now and then.
  static constexpr Clock::duration kReserve = std::chrono::milliseconds(1);

  Clock::duration debt_{};
  Clock::time_point alone_until_;
};

}  // namespace

struct Executor::Shared {
  /// One of the parts of a loop. Part i is thread i's unless the caller is done
  /// before that thread has begun: then the caller takes it.
  struct alignas(kCacheLine) Share {
    /// Generation of the last loop whose share someone took.
    std::atomic<uint32_t> taken{0};
    /// How long thread i worked on it; none if the caller took it.
    Clock::duration time{};
    std::exception_ptr error = nullptr;
  };

  explicit Shared(int size)
      : patience(size <= AvailableProcessors() ? kPatience : kPatience.zero()),
        shares(static_cast<size_t>(size)) {}

  /// Here, not in ~Executor: the constructor may fail with threads running.
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

  void RunShare(size_t index) {
    const size_t size = shares.size();
    try {
      loop.run(loop.body, loop.tasks * index / size,
               loop.tasks * (index + 1) / size);
    } catch (...) {
      shares[index].error = std::current_exception();
      failed.store(true, std::memory_order_relaxed);
    }
  }

  /// False if someone else has it already, or the loop is over. All shares of a
  /// loop are taken before the next one begins.
  bool Take(size_t index, uint32_t loop_generation) {
    uint32_t before = loop_generation - 1;
    return shares[index].taken.compare_exchange_strong(before, loop_generation);
  }

  void ReportDone() {
    if (busy.fetch_sub(1) == 1) busy.notify_one();
  }

  void Work(size_t index) {
    for (uint32_t seen = 0;;) {
      seen = AwaitChange(generation, seen, patience);
      if (stopping) return;
      if (!Take(index, seen)) continue;
      const auto start = Clock::now();
      RunShare(index);
      shares[index].time = Clock::now() - start;
      ReportDone();
    }
  }

  void RunAlone() {
    for (size_t i = 0; i < shares.size(); ++i) RunShare(i);
  }

  void RunTogether(Clock::time_point start) {
    busy.store(static_cast<uint32_t>(shares.size()), std::memory_order_relaxed);
    Announce();
    const uint32_t mine = generation.load(std::memory_order_relaxed);
    const auto announced = Clock::now();
    RunShare(0);
    const auto own_end = Clock::now();
    ReportDone();
    for (size_t i = shares.size() - 1; i > 0; --i) {
      if (!Take(i, mine)) continue;
      RunShare(i);
      shares[i].time = {};
      ReportDone();
    }
    const auto wait = Clock::now();
    AwaitEnd();
    const auto end = Clock::now();
    // A thread that was kept from its share did no more than the caller.
    Clock::duration gained{};
    for (size_t i = 1; i < shares.size(); ++i) {
      gained += std::min(shares[i].time, own_end - announced);
    }
    account.Add((announced - start) + (end - wait), gained, end);
  }

  void AwaitEnd() {
    for (uint32_t left = busy.load(std::memory_order_acquire); left != 0;) {
      left = AwaitChange(busy, left, patience);
    }
  }

  void RethrowFirst() {
    failed.store(false, std::memory_order_relaxed);
    std::exception_ptr first;
    for (Share& share : shares) {
      if (first == nullptr) first = share.error;
      share.error = nullptr;
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
  Account account;  // the caller's
  std::vector<Share> shares;

  /// Shares of the loop that are not done.
  alignas(kCacheLine) std::atomic<uint32_t> busy{0};
  std::atomic<bool> failed{false};
  std::vector<std::thread> threads;
};

Executor::Executor(int size) : size_(size) {
  if (size < 1) {
    ThrowError(ErrorKind::kConfig,
               "Executor: size is {}, but it needs at least 1 thread. Pass "
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
               "Executor: {} threads are wanted, but the system gives no "
               "more after {}: {}. Use fewer or raise the limit.",
               size, shared_->threads.size() + 1, error.code().message());
  }
}

Executor::~Executor() = default;

void Executor::Run(const Loop& loop) {
  Shared& shared = *shared_;
  ISOLOSS_ASSERT(shared.busy.load(std::memory_order_relaxed) == 0);
  shared.loop = loop;
  const auto start = Clock::now();
  if (shared.account.IsAlone(start)) {
    shared.RunAlone();
  } else {
    shared.RunTogether(start);
  }
  if (shared.failed.load(std::memory_order_relaxed)) shared.RethrowFirst();
}

int AvailableProcessors() {
  cpu_set_t set;
  int count = 1;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) {
    count = std::max(1, CPU_COUNT(&set));
  }
  const char* const text = std::getenv("ISOLOSS_PROCESSORS");
  if (text == nullptr) return count;
  int most = 0;
  const auto parsed = std::from_chars(text, text + std::strlen(text), most);
  if (parsed.ec != std::errc() || *parsed.ptr != '\0' || most < 1) {
    ThrowError(ErrorKind::kConfig,
               "ISOLOSS_PROCESSORS is `{}`, but it must be a whole number from "
               "1 on: the most processors that a process uses. Correct or "
               "unset it.",
               text);
  }
  return std::min(count, most);
}

}  // namespace isoloss
