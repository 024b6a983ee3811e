// What the recorded indicators of a stress study announced.
#pragma once

#include <filesystem>

#include "isoloss/indicators/judge.h"

namespace isoloss::studies {

/// Of the finished runs of all cells in the folder of a study that recorded
/// indicators. Runs without records, and cells without runs, are named in the
/// notes.
/// Errors   ConfigError if the folder holds no indicators; as
///          campaign::ReadRuns and indicators::ReadRecords; FormatError if a
///          record is of a step that its run does not have.
indicators::IndicatorStatement JudgeIndicatorsOf(
    const std::filesystem::path& folder);

/// Writes indicators.json and indicators.svg into the folder. Errors   IoError.
void WriteIndicators(const std::filesystem::path& folder,
                     const indicators::IndicatorStatement& statement);

}  // namespace isoloss::studies
