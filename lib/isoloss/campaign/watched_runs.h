// Follows runs that another process makes, by reading their files again and
// again.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "isoloss/campaign/job_file.h"
#include "isoloss/campaign/watched_sweep.h"
#include "isoloss/report/live_view.h"

namespace isoloss::campaign {

/// Has the files of one run, and what was read of them last.
class WatchedRun {
 public:
  /// `shown` is the run's name as people see it.
  WatchedRun(std::filesystem::path folder, const std::string& name,
             const std::string& shown);

  /// Reads what has changed. A run that vanishes for a moment, between its
  /// journal and its log, stays as it was.
  void Update();

  /// The run's log holds what a terminal shows: attributes, /steps and events.
  const report::LiveRun& run() const { return run_; }
  /// Returns false for a probe log or an ensemble that has a name like a run's.
  bool is_run() const { return is_run_; }

 private:
  struct Stamp {
    std::filesystem::path file;
    uintmax_t size = 0;
    std::filesystem::file_time_type time;
    bool operator==(const Stamp&) const = default;
  };

  /// Reads NAME`extension` unless NAME`unless` is there.
  bool TryRead(const std::string& extension, const std::string& unless);
  /// Reads a path that has no size, which is no regular file but perhaps a
  /// pipe. Returns false if nothing is there.
  bool ReadAnyway(const std::filesystem::path& file, bool live);
  void Read(const std::filesystem::path& file, bool live);

  std::filesystem::path folder_;
  std::string name_;
  Stamp last_;
  report::LiveRun run_;
  bool is_run_ = true;
};

/// Follows everything below one path: the runs of a folder, or one run.
class WatchedRuns {
 public:
  explicit WatchedRuns(const std::filesystem::path& path);

  /// Reads what has changed, and finds runs that are new.
  void Update();

  std::vector<report::LiveRun> Runs() const;
  /// Returns the job that is at work there now.
  std::optional<report::LiveJob> Job() const;
  bool folder() const { return folder_; }
  /// Returns whether at the last Update there were runs, all had ended, and no
  /// more will come. A job says itself that it ends. If none was seen, a folder
  /// has ended when no journal has come for 5 seconds. All runs of a sweep must
  /// have finished, since missing runs may wait for a machine.
  bool ended() const { return ended_; }
  /// Returns whether files of a run can't be read; the run says why.
  bool unreadable() const;

 private:
  void Add(const std::filesystem::path& folder, const std::string& name,
           const std::string& shown);
  void FindRuns();
  bool HasEnded();

  std::filesystem::path path_;
  bool folder_ = false;
  bool saw_job_ = false;
  bool ended_ = false;
  std::chrono::steady_clock::time_point last_live_;
  std::optional<JobPlan> plan_;
  std::optional<WatchedSweep> sweep_;
  std::map<std::string, WatchedRun> runs_;
};

}  // namespace isoloss::campaign
