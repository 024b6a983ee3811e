#include "isoloss/campaign/job_queue.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "isoloss/report/heartbeat.h"

namespace isoloss::campaign {
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
        terminal_(report::DrawsOnErrors()) {}

  bool Run(int workers) {
    const report::Heartbeat heartbeat([this] { return Beat(); });
    std::vector<std::thread> threads;
    for (int i = 1; i < workers; ++i) threads.emplace_back([this] { Work(); });
    Work();
    for (std::thread& thread : threads) thread.join();
    if (terminal_ && jobs_ > 0) fmt::print(stderr, "\r\x1b[K");
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
    const bool last = done_ == jobs_;
    // Short work needs no progress.
    if (Seconds(Clock::now() - start_) < kQuiet) return;
    if (terminal_) {
      fmt::print(stderr, "\r\x1b[K{}", Line());
      std::fflush(stderr);
    } else if (last) {
      fmt::print(stderr, "{}\n", Line());
    }
  }

  /// "members: 3 of 40, 1:20 left".
  std::string Line() const {
    const std::string left = report::TimeLeft(
        Seconds(Clock::now() - start_), static_cast<double>(done_),
        static_cast<double>(jobs_ - done_));
    return fmt::format("{}: {} of {}{}{}", title_, done_, jobs_,
                       left.empty() ? "" : ", ", left);
  }

  std::string Beat() {
    const std::lock_guard lock(mutex_);
    return done_ < jobs_ ? Line() : "";
  }

  static constexpr double kQuiet = 2;
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

}  // namespace isoloss::campaign
