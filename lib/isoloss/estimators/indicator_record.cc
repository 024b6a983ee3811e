#include "isoloss/estimators/indicator_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "isoloss/base/error.h"
#include "isoloss/base/text_file.h"

namespace isoloss::estimators {
namespace {

constexpr std::string_view kRecordRemedy =
    "Remove the study's folder and train it anew.";

std::string FirstLine() {
  std::string line = "step";
  for (size_t i = 0; i < kRecorded; ++i) {
    line += fmt::format(",{}", AllIndicators()[i].name);
  }
  return line;
}

/// Takes the number in front of `end` from the front of `text`.
template <typename T>
bool TakeNumber(std::string_view& text, char end, T& number) {
  const std::string_view cell = text.substr(0, text.find(end));
  const char* last = cell.data() + cell.size();
  const auto [read, error] = std::from_chars(cell.data(), last, number);
  if (error != std::errc() || read != last) return false;
  text.remove_prefix(std::min(text.size(), cell.size() + 1));
  return true;
}

bool TakeRecord(std::string_view line, int64_t before,
                IndicatorRecord& record) {
  if (!TakeNumber(line, ',', record.step) || record.step <= before) {
    return false;
  }
  for (double& value : record.values) {
    // The last value ends the line.
    const bool last = &value == &record.values.back();
    if (!TakeNumber(line, last ? '\n' : ',', value)) return false;
  }
  return true;
}

/// Takes the next line. Returns false if none is left or it has no end.
bool TakeLine(std::string_view& text, std::string_view& line) {
  const size_t end = text.find('\n');
  if (end == text.npos) return false;
  line = text.substr(0, end);
  text.remove_prefix(end + 1);
  return true;
}

}  // namespace

std::string FormatRecords(const std::vector<IndicatorRecord>& records) {
  std::string text = FirstLine() + "\n";
  for (const IndicatorRecord& record : records) {
    text += fmt::format("{}", record.step);
    for (const double value : record.values) {
      text += fmt::format(",{}", value);
    }
    text += "\n";
  }
  return text;
}

std::vector<IndicatorRecord> ParseRecords(std::string_view text,
                                          std::string_view where) {
  std::vector<IndicatorRecord> records;
  std::string_view line;
  if (!TakeLine(text, line) || line != FirstLine()) {
    ThrowError(ErrorKind::kFormat,
               "{}: its first line is not that of recorded indicators, which "
               "is `{}`. {}",
               where, FirstLine(), kRecordRemedy);
  }
  while (!text.empty()) {
    const int64_t before = records.empty() ? 0 : records.back().step;
    IndicatorRecord& record = records.emplace_back();
    if (TakeLine(text, line) && TakeRecord(line, before, record)) continue;
    ThrowError(ErrorKind::kFormat,
               "{}: line {} is no step behind {} with {} numbers, but each "
               "line must be one. {}",
               where, records.size() + 1, before, kRecorded, kRecordRemedy);
  }
  return records;
}

std::vector<IndicatorRecord> ReadRecords(const std::filesystem::path& file) {
  return ParseRecords(ReadTextFile(file, kRecordRemedy), file.string());
}

}  // namespace isoloss::estimators
