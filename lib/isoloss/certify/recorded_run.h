// Collects what was recorded of each run: the logs of its ranks and the files
// of its operations.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "isoloss/compare/pair.h"

namespace isoloss::certify {

/// Stands for a log that holds all ranks.
inline constexpr int64_t kAllRanks = -1;

struct StepAndRank {
  int64_t step = 0;
  int64_t rank = 0;
  auto operator<=>(const StepAndRank&) const = default;
};

/// Files are of one run if they are in one folder and have one name, up to
/// `.rank-R` and `.operations-STEP`.
struct RecordedRun {
  std::string name;  ///< the first path that was given, for people
  std::map<int64_t, compare::Run> logs = {};  ///< by rank
  std::map<StepAndRank, std::filesystem::path> operations = {};

  /// Any of the logs; there must be one.
  const runlog::RunLog& log() const { return logs.begin()->second.log; }
  /// Another program wrote the log, which has printed numbers only.
  bool has_printed_log() const;
  /// Ranks of the run that no log holds.
  std::vector<int64_t> MissingRanks() const;
  std::vector<int64_t> OperationSteps() const;
};

/// Reads all logs. A folder stands for the logs and operation files in it.
/// Operation files beside a log that have its name are found unasked. Runs
/// have the order in which they are named first.
/// Errors   those of logs::OpenLog; ConfigError for a file that is given twice,
///          a folder without files of a run, and an operation file that is of
///          none of several runs.
std::vector<RecordedRun> ReadRecordedRuns(
    const std::vector<std::filesystem::path>& paths);

}  // namespace isoloss::certify
