// The independent runs that a command consists of, so that others can divide
// them among machines.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "isoloss/train/experiment.h"
#include "isoloss/train/runner.h"

namespace isoloss::campaign {

/// One run, which the command makes by itself with `--only` and its name.
struct ListedRun {
  std::string name;  ///< "mxfp8-seed1"; of a study "1.3M-4/mxfp8-seed1"
  /// What it leaves once it has finished, below the folder of the list.
  std::filesystem::path file;
  double thread_seconds = 0;  ///< that it takes on one thread of this machine
};

struct RunList {
  std::filesystem::path folder;
  std::vector<ListedRun> runs;  ///< in the order in which they begin

  bool IsFinished(const ListedRun& run) const;
};

inline constexpr size_t kMostListedRuns = 50'000;

/// JSON, which ReadRunList reads.
/// Errors   as CheckOutput; ConfigError for more than kMostListedRuns.
void WriteRunList(const RunList& list, const std::filesystem::path& file);

/// Errors   as JsonFile; FormatError if a name is not plain or occurs twice, a
///          file lies outside of the folder, or a number is out of range.
RunList ReadRunList(const std::filesystem::path& file);

/// The runs that `--only` names; all if it names none.
class RunChoice {
 public:
  RunChoice() = default;
  explicit RunChoice(std::vector<std::string> names)
      : names_(std::move(names)) {}

  bool all() const { return names_.empty(); }
  bool Has(const std::string& name) const;
  /// Errors   ConfigError if a name is none of `known`.
  void Check(const std::vector<std::string>& known) const;
  /// Leaves those that it has.
  /// Errors   as Check.
  void Keep(std::vector<train::Run>& runs) const;

 private:
  std::vector<std::string> names_;
};

/// The list of an experiment's runs, of which each leaves its log; without the
/// time that they take.
RunList PlannedFiles(const std::vector<train::Run>& runs,
                     const std::filesystem::path& folder);

/// PlannedFiles with times, for which it measures how fast each arm trains
/// here.
RunList ListRuns(const train::Experiment& experiment,
                 const std::vector<train::Run>& runs,
                 const std::filesystem::path& folder);

}  // namespace isoloss::campaign
