// Reads and writes the recorded indicators of one run as a text file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "isoloss/estimators/indicator.h"

namespace isoloss::estimators {

/// A record belongs to one step. NaN means that a value was not measured.
struct IndicatorRecord {
  int64_t step = 0;
  std::array<double, kRecorded> values = {};
};

/// Returns CSV with a first line of names and one line for each step. Numbers
/// are the shortest decimals that give the same FP64 again, "nan" or "inf".
std::string FormatRecords(const std::vector<IndicatorRecord>& records);

/// Parses the text of FormatRecords. `where` names the text in messages.
/// Errors   FormatError unless FormatRecords could have written the text, and
///          unless steps ascend from 1 on.
std::vector<IndicatorRecord> ParseRecords(std::string_view text,
                                          std::string_view where);

/// Reads a file.
/// Errors   as ParseRecords and ReadTextFile.
std::vector<IndicatorRecord> ReadRecords(const std::filesystem::path& file);

}  // namespace isoloss::estimators
