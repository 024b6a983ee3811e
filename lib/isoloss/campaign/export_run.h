// A run log in the forms of training programs: event files of TensorBoard,
// W&B's tables, torchtitan's lines.
#pragma once

#include <filesystem>

#include "isoloss/foreign/run_export.h"

namespace isoloss::campaign {

struct RunExportPlan {
  /// Run log, journal, or a folder of run logs.
  std::filesystem::path log;
  foreign::RunForm form = foreign::RunForm::kTensorBoard;
  std::filesystem::path out = {};  ///< "": standard output
};

/// Of one log: text goes to `out` or to standard output, an event file into the
/// folder `out`. Of several logs: "NAME.csv" and the like, or the folder NAME
/// with an event file, in the folder `out`. Says which files it wrote to a
/// folder.
/// Errors   as OpenLog and CheckOutput; ConfigError if several logs or an event
///          file are to go to standard output, or if a folder holds another
///          event file, which TensorBoard would take for a part of this run.
void ExportRun(const RunExportPlan& plan);

}  // namespace isoloss::campaign
