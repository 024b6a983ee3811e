#include "isoloss/campaign/job_queue.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <mutex>

#include "isoloss/base/job_pool.h"
#include "isoloss/report/heartbeat.h"

namespace isoloss::campaign {
namespace {

using Clock = std::chrono::steady_clock;

/// Shows on standard error how many jobs are done.
class Progress {
 public:
  Progress(const std::string& title, size_t jobs)
      : title_(title), jobs_(jobs), terminal_(report::DrawsOnErrors()) {}
  ~Progress() {
    if (terminal_ && jobs_ > 0) fmt::print(stderr, "\r\x1b[K");
  }

  void OneIsDone() {
    const std::lock_guard lock(mutex_);
    ++done_;
    // Short work needs no progress.
    if (Seconds(Clock::now() - start_) < kQuiet) return;
    if (terminal_) {
      fmt::print(stderr, "\r\x1b[K{}", Line());
      std::fflush(stderr);
    } else if (done_ == jobs_) {
      fmt::print(stderr, "{}\n", Line());
    }
  }
  bool AllAreDone() const { return done_ == jobs_; }

 private:
  /// Returns a text such as "members: 3 of 40, 1:20 left".
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

  const std::string& title_;
  const size_t jobs_;
  const bool terminal_;
  const Clock::time_point start_ = Clock::now();
  std::mutex mutex_;
  size_t done_ = 0;
  const report::Heartbeat heartbeat_{[this] { return Beat(); }};  // last
};

}  // namespace

Crew OneThreadEach(size_t jobs, int workers) {
  if (workers == 0) workers = AvailableProcessors();
  workers = std::min(workers, static_cast<int>(std::max<size_t>(jobs, 1)));
  return {workers, workers};
}

bool RunJobs(const std::string& title, size_t jobs, const Crew& crew,
             const std::atomic<bool>& stop,
             const std::function<void(size_t job, Executor& executor)>& job) {
  Progress progress(title, jobs);
  JobPool().Run(
      jobs, crew, [&stop] { return stop.load(); },
      [&](size_t next, Executor& executor) {
        job(next, executor);
        progress.OneIsDone();
      });
  return progress.AllAreDone();
}

}  // namespace isoloss::campaign
