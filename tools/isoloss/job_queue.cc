#include "job_queue.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace isoloss::cli {
namespace {

using Clock = std::chrono::steady_clock;

class JobQueue {
 public:
  JobQueue(std::string title, size_t jobs, const std::atomic<bool>& stop,
           const std::function<void(size_t, ThreadTeam&)>& job)
      : title_(std::move(title)),
        jobs_(jobs),
        stop_(stop),
        job_(job),
        terminal_(isatty(STDERR_FILENO) == 1) {}

  bool Run(int workers) {
    std::vector<std::thread> threads;
    for (int i = 1; i < workers; ++i) threads.emplace_back([this] { Work(); });
    Work();
    for (std::thread& thread : threads) thread.join();
    if (terminal_ && jobs_ > 0) fmt::print(stderr, "\r\033[K");
    if (error_ != nullptr) std::rethrow_exception(error_);
    return done_ == jobs_;
  }

 private:
  void Work() {
    try {
      ThreadTeam team(1);
      while (!failed_.load() && !stop_.load()) {
        const size_t next = next_.fetch_add(1);
        if (next >= jobs_) return;
        job_(next, team);
        Show();
      }
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (error_ == nullptr) error_ = std::current_exception();
      failed_.store(true);
    }
  }

  void Show() {
    const std::lock_guard lock(mutex_);
    ++done_;
    const auto now = Clock::now();
    const double seconds = Seconds(now - start_);
    constexpr double kQuiet = 2;  // short work needs no progress
    constexpr double kLine = 30;  // between lines of a file
    if (seconds < kQuiet && done_ < jobs_) return;
    if (!terminal_ && Seconds(now - shown_) < kLine && done_ < jobs_) return;
    shown_ = now;
    const auto left =
        static_cast<int64_t>(seconds * static_cast<double>(jobs_ - done_) /
                             static_cast<double>(done_));
    fmt::print(stderr, "{}{}: {} of {}, {}:{:02} left{}",
               terminal_ ? "\r\033[K" : "", title_, done_, jobs_, left / 60,
               left % 60, terminal_ ? "" : "\n");
    std::fflush(stderr);
  }

  static double Seconds(Clock::duration duration) {
    return std::chrono::duration<double>(duration).count();
  }

  const std::string title_;
  const size_t jobs_;
  const std::atomic<bool>& stop_;
  const std::function<void(size_t, ThreadTeam&)>& job_;
  const bool terminal_;
  const Clock::time_point start_ = Clock::now();
  std::atomic<size_t> next_{0};
  std::atomic<bool> failed_{false};
  std::mutex mutex_;
  size_t done_ = 0;
  Clock::time_point shown_ = start_;
  std::exception_ptr error_;
};

}  // namespace

bool RunJobs(const std::string& title, size_t jobs, int workers,
             const std::atomic<bool>& stop,
             const std::function<void(size_t job, ThreadTeam& team)>& job) {
  if (workers == 0) workers = AvailableProcessors();
  const auto most = static_cast<int>(std::max<size_t>(jobs, 1));
  return JobQueue(title, jobs, stop, job).Run(std::min(workers, most));
}

}  // namespace isoloss::cli
