// The file that keeps figures of one experiment over commits
// (report/history_file.h).
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include "isoloss/compare/figure_history.h"

namespace isoloss::campaign {

/// Its records, as report::ParseHistory gives them. Bounds: 16 MiB.
/// Errors   as ReadTextFile and report::ParseHistory.
std::vector<compare::FigureRecord> ReadHistory(
    const std::filesystem::path& path);

struct HistoryUpdate {
  size_t added = 0;
  size_t replaced = 0;
  size_t known = 0;    ///< were there with the same values
  std::string commit;  ///< that the runs are of
};

/// Appends `records` to the file, which it makes if need be. Lines that are
/// there stay as they are, but for those that `replace` lets go.
/// Errors   as ReadHistory; ConfigError if a run is there with other values and
///          not `replace`; IoError if it can't be written. The file is then as
///          it was.
HistoryUpdate AddToHistory(const std::filesystem::path& path,
                           const std::vector<compare::FigureRecord>& records,
                           bool replace);

}  // namespace isoloss::campaign
