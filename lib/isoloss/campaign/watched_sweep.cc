#include "isoloss/campaign/watched_sweep.h"

#include <algorithm>
#include <system_error>
#include <utility>

namespace isoloss::campaign {
namespace {

namespace fs = std::filesystem;

/// A shared file system is asked for at most this many files in a second.
constexpr double kLooksPerSecond = 500;

/// A run that takes no time according to the list counts with a little time.
double SecondsOf(const ListedRun& run) {
  constexpr double kLeast = 1e-3;
  return std::max(run.thread_seconds, kLeast);
}

}  // namespace

std::optional<WatchedSweep> WatchedSweep::In(const fs::path& folder) {
  const fs::path file = folder / kSweepFolder / kRunsFile;
  std::error_code error;
  if (!fs::exists(file, error)) return std::nullopt;
  RunList list = ReadRunList(file);
  // The folder may have been moved, or be mounted elsewhere here.
  list.folder = folder;
  return WatchedSweep(std::move(list), file);
}

WatchedSweep::WatchedSweep(RunList list, const fs::path& file)
    : list_(std::move(list)), finished_(list_.runs.size()) {
  std::error_code error;
  submitted_ = fs::last_write_time(file, error);
  for (const ListedRun& run : list_.runs) seconds_in_all_ += SecondsOf(run);
}

void WatchedSweep::Update() {
  const Clock::time_point now = Clock::now();
  const std::chrono::duration<double> pause(
      static_cast<double>(list_.runs.size() - finished_count_) /
      kLooksPerSecond);
  if (looked_ && now - *looked_ < pause) return;
  looked_ = now;
  begun_.clear();
  waiting_.clear();
  for (size_t i = 0; i < list_.runs.size(); ++i) {
    if (finished_[i]) continue;
    const ListedRun& run = list_.runs[i];
    const fs::path file = list_.folder / run.file;
    std::error_code error;
    const fs::file_time_type time = fs::last_write_time(file, error);
    if (!error) {
      finished_[i] = true;
      ++finished_count_;
      seconds_done_ += SecondsOf(run);
      if (time > submitted_) seconds_done_since_ += SecondsOf(run);
      continue;
    }
    fs::path journal = file;
    journal.replace_extension(".journal");
    if (fs::exists(journal, error)) {
      begun_.push_back({file.parent_path(), file.stem().string(), run.name});
    } else {
      waiting_.push_back(run.name);
    }
  }
}

report::LiveJob WatchedSweep::Job() const {
  report::LiveJob job{.runs = list_.runs.size(), .finished = finished_count_};
  job.waiting = waiting_;
  job.done = seconds_in_all_ > 0 ? seconds_done_ / seconds_in_all_ : 1;
  if (seconds_done_since_ > 0) {
    const double elapsed = std::chrono::duration<double>(
                               fs::file_time_type::clock::now() - submitted_)
                               .count();
    job.seconds_left =
        elapsed * (seconds_in_all_ - seconds_done_) / seconds_done_since_;
  }
  return job;
}

}  // namespace isoloss::campaign
