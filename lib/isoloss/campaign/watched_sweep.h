// How far the runs are that many processes share among them (isoloss submit),
// by the files that they leave.
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "isoloss/campaign/run_list.h"
#include "isoloss/report/live_view.h"

namespace isoloss::campaign {

/// Where `isoloss submit` keeps what it needs, below a results folder.
inline constexpr const char* kSweepFolder = "sweep";
/// The list of all runs in it.
inline constexpr const char* kRunsFile = "runs.json";

class WatchedSweep {
 public:
  /// The sweep of a results folder; empty if it has none.
  /// Errors   as ReadRunList.
  static std::optional<WatchedSweep> In(const std::filesystem::path& folder);

  /// Looks for what has begun and finished. Of many runs not at each call: to
  /// ask a shared file system for 10,000 files takes it seconds.
  void Update();

  /// Files of a run that is under way.
  struct Begun {
    std::filesystem::path folder;
    std::string file;  ///< without extension
    std::string name;  ///< in the list
  };
  const std::vector<Begun>& begun() const { return begun_; }

  /// Times are by what has finished since the sweep was submitted.
  report::LiveJob Job() const;
  bool AllFinished() const { return finished_count_ == list_.runs.size(); }

 private:
  WatchedSweep(RunList list, const std::filesystem::path& file);

  using Clock = std::chrono::steady_clock;

  RunList list_;
  std::filesystem::file_time_type submitted_;
  std::vector<bool> finished_;
  size_t finished_count_ = 0;
  double seconds_in_all_ = 0;
  double seconds_done_ = 0;
  double seconds_done_since_ = 0;  // of these, since the submission
  std::vector<Begun> begun_;
  std::vector<std::string> waiting_;
  std::optional<Clock::time_point> looked_;
};

}  // namespace isoloss::campaign
