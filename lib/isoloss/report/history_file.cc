#include "isoloss/report/history_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "isoloss/base/error.h"
#include "isoloss/base/printable.h"
#include "isoloss/document/json.h"

namespace isoloss::report {
namespace {

using document::Json;
using document::PutNumber;

using compare::FigureRecord;

constexpr int64_t kHistoryVersion = 1;
constexpr size_t kMostLine = 4096;
constexpr size_t kMostName = 200;

/// Each field that is text, in the order of the line.
constexpr std::pair<const char*, std::string FigureRecord::*> kTexts[] = {
    {"commit", &FigureRecord::commit},
    {"date", &FigureRecord::date},
    {"experiment", &FigureRecord::experiment},
    {"arm", &FigureRecord::arm},
    {"program", &FigureRecord::program},
    {"config", &FigureRecord::config},
    {"recipe", &FigureRecord::recipe},
    {"numerics", &FigureRecord::numerics},
    {"content", &FigureRecord::content},
    {"outcome", &FigureRecord::outcome}};
constexpr std::pair<const char*, int64_t FigureRecord::*> kIntegers[] = {
    {"seed", &FigureRecord::seed},
    {"steps", &FigureRecord::steps},
    {"window", &FigureRecord::window}};

bool IsCommit(std::string_view text) {
  return text.size() >= 7 && text.size() <= 64 &&
         text.find_first_not_of("0123456789abcdef") == text.npos;
}

/// What is wrong with a text of the line; "" if nothing.
std::string FaultOf(std::string_view key, const std::string& text) {
  if (text.size() > kMostName) {
    return fmt::format("`{}` has {} bytes, but at most {} are taken", key,
                       text.size(), kMostName);
  }
  if (Printable(text) != text) {
    return fmt::format("`{}` has characters that control a terminal", key);
  }
  if (key == "commit" && !IsCommit(text)) {
    return fmt::format("`commit` is `{}`, but must be 7 to 64 digits of 0-9a-f",
                       text);
  }
  return "";
}

/// Reads one line of a file.
class LineReader {
 public:
  LineReader(const std::string& file, size_t line) : file_(file), line_(line) {}

  FigureRecord Read(std::string_view text) const {
    const Json json = Parse(text);
    FigureRecord record;
    size_t keys = 1;
    for (const auto& [key, member] : kTexts) {
      record.*member = TextOf(json, key);
      ++keys;
    }
    for (const auto& [key, member] : kIntegers) {
      record.*member = IntegerOf(json, key);
      ++keys;
    }
    for (size_t i = 0; i < compare::kFigureCount; ++i) {
      record.figures[i] = NumberOf(json, compare::kFigures[i].name, keys);
    }
    if (json.size() != keys) {
      Reject(
          fmt::format("has {} keys, but {} are known. A later version of "
                      "isoloss wrote it: use that one",
                      json.size(), keys));
    }
    return record;
  }

  [[noreturn]] void Reject(const std::string& what) const {
    ThrowError(ErrorKind::kFormat, "{}:{}: the line {}.", file_, line_, what);
  }

 private:
  Json Parse(std::string_view text) const {
    if (text.starts_with("<<<<<<<") || text.starts_with("=======") ||
        text.starts_with(">>>>>>>") || text.starts_with("|||||||")) {
      Reject(
          "is git's mark of a conflict. Remove the marks and keep the lines "
          "of both sides");
    }
    if (text.size() > kMostLine) {
      Reject(
          fmt::format("has {} bytes, but a run's has at most {}. Restore "
                      "the file",
                      text.size(), kMostLine));
    }
    // What nests is no record: its values are dropped while it is parsed.
    size_t keys = 0;
    Json json = Json::parse(
        text,
        [&](int depth, Json::parse_event_t event, const Json&) {
          if (event == Json::parse_event_t::key) ++keys;
          return depth < 2;
        },
        /*allow_exceptions=*/false);
    if (!json.is_object() || !json.contains("history")) {
      Reject(
          "is no record of isoloss lab history, an object of JSON. Restore the "
          "file");
    }
    if (keys != json.size()) {
      Reject("has a key twice, or values that nest. Restore the file");
    }
    if (json["history"] != kHistoryVersion) {
      Reject(fmt::format("is of another version than {}. Use a later isoloss",
                         kHistoryVersion));
    }
    return json;
  }

  const Json& ValueOf(const Json& json, const char* key) const {
    const auto found = json.find(key);
    if (found == json.end()) {
      Reject(fmt::format("has no key `{}`. Restore the file", key));
    }
    return *found;
  }

  std::string TextOf(const Json& json, const char* key) const {
    const Json& value = ValueOf(json, key);
    if (!value.is_string()) {
      Reject(fmt::format("has a `{}` that is no text. Restore the file", key));
    }
    std::string text = value;
    const std::string fault = FaultOf(key, text);
    if (!fault.empty()) {
      Reject(
          fmt::format("is no record: {}. Restore the file", Printable(fault)));
    }
    return text;
  }

  int64_t IntegerOf(const Json& json, const char* key) const {
    const Json& value = ValueOf(json, key);
    constexpr uint64_t kMost = std::numeric_limits<int64_t>::max();
    if (!value.is_number_unsigned() || value.get<uint64_t>() > kMost) {
      Reject(
          fmt::format("has a `{}` that is no whole number from 0 to {}. "
                      "Restore the file",
                      key, kMost));
    }
    return value;
  }

  /// Counts its keys.
  std::optional<double> NumberOf(const Json& json, const std::string& key,
                                 size_t& keys) const {
    const Json& value = ValueOf(json, key.c_str());
    ++keys;
    if (value.is_number()) return value.get<double>();
    if (!value.is_null()) {
      Reject(
          fmt::format("has a `{}` that is no number. Restore the file", key));
    }
    const auto text = json.find(key + "_text");
    if (text == json.end()) return std::nullopt;
    ++keys;
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    if (*text == "nan") return std::numeric_limits<double>::quiet_NaN();
    if (*text == "inf") return kInfinity;
    if (*text == "-inf") return -kInfinity;
    Reject(
        fmt::format("has a `{}_text` that is not nan, inf or -inf. Restore "
                    "the file",
                    key));
  }

  const std::string& file_;
  size_t line_;
};

void RequireOneExperiment(const std::vector<FigureRecord>& records,
                          const std::string& file) {
  for (const FigureRecord& record : records) {
    if (record.experiment == records.front().experiment) continue;
    ThrowError(ErrorKind::kFormat,
               "{}: it has records of the experiments `{}` and `{}`, but a "
               "history is of one. Give the other one a file of its own.",
               file, records.front().experiment, record.experiment);
  }
}

}  // namespace

std::string HistoryRunName(const FigureRecord& record) {
  return fmt::format("commit {}, arm {}, seed {}", record.commit, record.arm,
                     record.seed);
}

std::vector<FigureRecord> ParseHistory(const std::string& text,
                                       const std::string& name) {
  const std::string file = Printable(name);
  std::vector<FigureRecord> records;
  std::map<FigureRecord::RunKey, std::pair<size_t, size_t>>
      seen;  // place and line
  size_t number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view line(text.data() + begin, end - begin);
    begin = end + 1;
    const LineReader reader(file, ++number);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    FigureRecord record = reader.Read(line);
    const auto [found, is_new] =
        seen.emplace(record.Key(), std::pair(records.size(), number));
    if (is_new) {
      records.push_back(std::move(record));
    } else if (records[found->second.first] != record) {
      reader.Reject(
          fmt::format("contradicts line {}: both are of {}, with other values. "
                      "Keep the one "
                      "that is right",
                      found->second.second, HistoryRunName(record)));
    }
  }
  RequireOneExperiment(records, file);
  return records;
}

std::string HistoryLine(const FigureRecord& record) {
  Json json{{"history", kHistoryVersion}};
  for (const auto& [key, member] : kTexts) {
    const std::string fault = FaultOf(key, record.*member);
    if (!fault.empty()) {
      ThrowError(ErrorKind::kConfig,
                 "history record: {}. Rename it, or leave this run out.",
                 Printable(fault));
    }
    json[key] = record.*member;
    if (std::string_view(key) == "arm") json["seed"] = record.seed;
  }
  json["steps"] = record.steps;
  json["window"] = record.window;
  for (size_t i = 0; i < compare::kFigureCount; ++i) {
    PutNumber(json, compare::kFigures[i].name, record.figures[i]);
  }
  return json.dump();
}

}  // namespace isoloss::report
