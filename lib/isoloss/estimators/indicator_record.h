// Recorded indicators of one run, as a text file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "isoloss/estimators/indicator.h"

namespace isoloss::estimators {

/// One step. NaN: not measured.
struct IndicatorRecord {
  int64_t step = 0;
  std::array<double, kRecorded> values = {};
};

/// CSV with one line for each step and a first line of names. Numbers are
/// shortest decimals that give the same FP64 again, "nan" or "inf".
std::string FormatRecords(const std::vector<IndicatorRecord>& records);

/// `where` names the text in messages.
/// Errors   FormatError unless FormatRecords could have written it, and steps
///          ascend from 1 on.
std::vector<IndicatorRecord> ParseRecords(std::string_view text,
                                          std::string_view where);

/// Reads a file. Errors   as ParseRecords and ReadTextFile.
std::vector<IndicatorRecord> ReadRecords(const std::filesystem::path& file);

}  // namespace isoloss::estimators
