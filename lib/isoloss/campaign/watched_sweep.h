// Follows runs that many processes share (isoloss submit), by the files that
// they leave.
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "isoloss/campaign/run_list.h"
#include "isoloss/report/live_view.h"

namespace isoloss::campaign {

/// `isoloss submit` keeps its files in this folder, below a results folder.
inline constexpr const char* kSweepFolder = "sweep";
/// The file has a list of all runs of the sweep.
inline constexpr const char* kRunsFile = "runs.json";

class WatchedSweep {
 public:
  /// Returns the sweep of a results folder; nothing if it has none.
  /// Errors   as ReadRunList.
  static std::optional<WatchedSweep> In(const std::filesystem::path& folder);

  /// Looks which runs have begun and finished. With many runs not every call
  /// looks, since asking a shared file system for 10,000 files takes seconds.
  void Update();

  /// These are the files of a run that is under way.
  struct Begun {
    std::filesystem::path folder;
    std::string file;  ///< without extension
    std::string name;  ///< in the list
  };
  const std::vector<Begun>& begun() const { return begun_; }

  /// The time left follows from the runs that have finished since the sweep was
  /// submitted.
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
