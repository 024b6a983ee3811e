// Lists the independent runs that a command consists of, so that users can
// divide them among machines.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "isoloss/device/devices.h"
#include "isoloss/train/experiment.h"
#include "isoloss/train/runner.h"

namespace isoloss::campaign {

/// A command makes this run by itself with `--only` and its name.
struct ListedRun {
  std::string name;  ///< "mxfp8-seed1"; of a study "1.3M-4/mxfp8-seed1"
  /// A finished run leaves this file, below the folder of the list.
  std::filesystem::path file;
  double thread_seconds = 0;  ///< that it takes on one thread of this machine
};

struct RunList {
  std::filesystem::path folder;
  std::vector<ListedRun> runs;    ///< in the order in which they begin
  std::string on = device::kCpu;  ///< the device that they compute on

  bool IsFinished(const ListedRun& run) const;
};

inline constexpr size_t kMostListedRuns = 50'000;

/// Writes JSON that ReadRunList reads.
/// Errors   as CheckOutput; ConfigError for more than kMostListedRuns.
void WriteRunList(const RunList& list, const std::filesystem::path& file);

/// Reads a list.
/// Errors   as JsonFile; FormatError if a name is not plain or occurs twice, a
///          file lies outside of the folder, or a number is out of range.
RunList ReadRunList(const std::filesystem::path& file);

/// Has the runs that `--only` names; all if it names none.
class RunChoice {
 public:
  RunChoice() = default;
  explicit RunChoice(std::vector<std::string> names)
      : names_(std::move(names)) {}

  bool all() const { return names_.empty(); }
  bool Has(const std::string& name) const;
  /// Checks the names.
  /// Errors   ConfigError if a name is none of `known`.
  void Check(const std::vector<std::string>& known) const;
  /// Leaves the chosen runs in `runs`.
  /// Errors   as Check.
  void Keep(std::vector<train::Run>& runs) const;

 private:
  std::vector<std::string> names_;
};

/// Returns the list of an experiment's runs, each of which leaves its log. The
/// list has no times.
RunList PlannedFiles(const std::vector<train::Run>& runs,
                     const std::filesystem::path& folder);

/// Returns PlannedFiles with times. For them it measures how fast each arm
/// trains here; without the device of the runs, times are 0.
RunList ListRuns(const train::Experiment& experiment,
                 const std::vector<train::Run>& runs,
                 const std::filesystem::path& folder);

}  // namespace isoloss::campaign
