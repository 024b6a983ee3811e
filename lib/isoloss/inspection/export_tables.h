// Writes a run log or probe log as tables of CSV or JSON lines.
#pragma once

#include <filesystem>
#include <string>

#include "isoloss/runlog/export.h"

namespace isoloss::inspection {

struct ExportPlan {
  /// May be a run log or probe log, a journal, or a folder of run logs.
  std::filesystem::path log;
  runlog::ExportFormat format = runlog::ExportFormat::kCsv;
  std::string group = {};          ///< "": the usual one, or with `out` all
  std::filesystem::path out = {};  ///< "": standard output
};

/// Writes one group to `out` or to standard output, or all groups to files of
/// the folder `out`. Each of several logs gets a folder of its own there.
/// Prints which files it wrote to a folder.
/// Errors   as logs::OpenLog, runlog::ExportGroup and system::CheckOutput;
/// ConfigError if a
///          folder of several logs is to become one table.
void ExportLog(const ExportPlan& plan);

}  // namespace isoloss::inspection
