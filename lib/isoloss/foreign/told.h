// What a log tells of a run's batches, under the names that programs use.
#pragma once

#include <string_view>
#include <vector>

#include "isoloss/foreign/foreign_run.h"
#include "isoloss/runlog/run_log.h"

namespace isoloss::foreign {

/// "global batch size", "samples seen", ...: what runs of a pair must share, by
/// any of its usual names ("train/consumed-samples"); "" of all other names.
std::string_view BatchFactNamed(std::string_view name);

/// Adds the numbers of a line of settings to `run`:
///   global_batch_size ............ 128
///   ... global batch size 64, sequence length 2048, total steps 1000
void ReadSettings(std::string_view line, ForeignRun& run);

/// All that the run tells of its batches.
std::vector<runlog::Told::Number> BatchFactsOf(const ForeignRun& run);

}  // namespace isoloss::foreign
