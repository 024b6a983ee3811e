// Records leading indicators of a run while it trains.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "isoloss/estimators/indicator_judge.h"
#include "isoloss/runlog/run_log.h"
#include "isoloss/train/experiment.h"
#include "isoloss/train/run_hooks.h"

namespace isoloss::treatments {

/// A study's folder holds indicators/CELL/RUN.csv.
inline constexpr const char* kIndicatorFolder = "indicators";
std::filesystem::path IndicatorFile(const std::filesystem::path& study,
                                    const std::string& cell,
                                    const std::string& run);

/// Returns `hooks` of one run of one process, extended so that they record
/// indicators of step 1 and every `every`-th into `file`
/// (indicators/record.h). They change no bit of the run, which computes whole
/// batches (train/batch_shares.h). Gradient noise and routing flips come from a
/// second pass of recipe `bf16`, with the weights, biases, batch and experts of
/// the run, where the run computes. If its gradient equals the run's to the
/// bit, neither is measured.
///
/// Errors   IoError if the file can't be written; FormatError if it is there
///          and damaged.
/// Cost     a step in BF16 and statistics of the activations, for each recorded
///          step; nothing is computed before the first of them.
/// Exact    the file does not depend on where a run was resumed.
train::RunHooks RecordIndicators(train::RunHooks hooks,
                                 const train::Experiment& experiment,
                                 int64_t every,
                                 const std::filesystem::path& file);

/// Reads what `file` recorded of a run, and adds what the run's log knows.
/// Errors   as estimators::ReadRecords; FormatError if a record is of a step
///          that the log lacks.
estimators::IndicatorRun ReadIndicators(const std::string& mode,
                                        const runlog::RunLog& log,
                                        const std::filesystem::path& file);

}  // namespace isoloss::treatments
