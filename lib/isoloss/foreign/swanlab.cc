// Reads SwanLab's own record of a run: backup.swanlab, run-ID.swanlab, or its
// folder. Up to version 0.7 a record is a line of JSON (swanlab, proto/v0.py),
// and since 0.8 a protobuf message (swanlab/record/v1/record.proto).
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "isoloss/base/error.h"
#include "isoloss/foreign/folders.h"
#include "isoloss/foreign/format.h"
#include "isoloss/foreign/json.h"
#include "isoloss/foreign/protobuf.h"
#include "isoloss/foreign/record_log.h"
#include "isoloss/foreign/table_names.h"

namespace isoloss::foreign {

extern const Format kFormat_swanlab;

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSwanHead = ":SWL\xD6\xE1";
/// The clocks and loads of the machine have such names.
constexpr std::string_view kSystemKeys = "__swanlab__";

// The message Record and its parts have these field numbers.
constexpr uint64_t kRecordFinish = 11;
constexpr uint64_t kRecordScalar = 13;
constexpr uint64_t kFinishState = 1;
constexpr uint64_t kFinishError = 2;
constexpr uint64_t kScalarKey = 1;
constexpr uint64_t kScalarStep = 2;
constexpr uint64_t kScalarValue = 5;
constexpr uint64_t kValueNumber = 1;
constexpr uint64_t kStateFinished = 1;

class SwanLabFile {
 public:
  void Read(std::string_view bytes);
  ForeignRun Finish();

 private:
  void TakeMessage(std::string_view record);
  void TakeScalar(std::string_view message);
  void TakeFinish(std::string_view message);
  void TakeJson(const nlohmann::json& record);
  void Add(std::string_view key, int64_t step, double value);

  ForeignRun run_;
  int64_t negative_ = 0;
  bool ended_ = false;
};

void SwanLabFile::Add(std::string_view key, int64_t step, double value) {
  if (key.empty() || key.starts_with(kSystemKeys)) return;
  if (step < 0 || step > kMostWhole) {
    ++negative_;
    return;
  }
  AddShortest(run_.Of(key), step, value);
}

void SwanLabFile::TakeScalar(std::string_view message) {
  std::string_view key;
  int64_t step = 0;
  std::optional<double> value;
  ProtobufFields fields(message);
  while (fields.Next()) {
    if (fields.Is(kScalarKey, WireType::kBytes)) key = fields.bytes();
    if (fields.Is(kScalarStep, WireType::kVarint)) {
      step = static_cast<int64_t>(fields.value());
    }
    if (!fields.Is(kScalarValue, WireType::kBytes)) continue;
    value = 0;  // its number is left out
    ProtobufFields number(fields.bytes());
    while (number.Next()) {
      if (number.Is(kValueNumber, WireType::kFixed64)) {
        value = number.AsDouble();
      }
    }
  }
  if (fields.sound() && value) Add(key, step, *value);
}

void SwanLabFile::TakeFinish(std::string_view message) {
  ended_ = true;
  uint64_t state = 0;
  std::string_view fault;
  ProtobufFields fields(message);
  while (fields.Next()) {
    if (fields.Is(kFinishState, WireType::kVarint)) state = fields.value();
    if (fields.Is(kFinishError, WireType::kBytes)) fault = fields.bytes();
  }
  if (state <= kStateFinished) return;
  run_.broke_off = fault.empty() ? "state crashed or aborted"
                                 : std::string(fault.substr(0, 100));
}

void SwanLabFile::TakeMessage(std::string_view record) {
  ProtobufFields fields(record);
  while (fields.Next()) {
    if (fields.Is(kRecordScalar, WireType::kBytes)) TakeScalar(fields.bytes());
    if (fields.Is(kRecordFinish, WireType::kBytes)) TakeFinish(fields.bytes());
  }
}

/// Reads {"model_type": "Scalar", "data": {"key", "step", "metric": {"data"}}}.
void SwanLabFile::TakeJson(const nlohmann::json& record) {
  if (!record.is_object() || !record.contains("data")) return;
  const nlohmann::json& data = record["data"];
  const nlohmann::json type = record.value("model_type", nlohmann::json());
  if (!data.is_object()) return;
  if (type == "Footer") {
    ended_ = true;
    if (data.contains("success") && data["success"] == false) {
      run_.broke_off = "success: false";
    }
  }
  if (type != "Scalar" || !data.contains("key") || !data["key"].is_string() ||
      !data.contains("step") || !data.contains("metric") ||
      !data["metric"].is_object() || !data["metric"].contains("data")) {
    return;
  }
  const auto step = WholeOf(data["step"]);
  const auto value = NumberOf(data["metric"]["data"]);
  if (step && value) Add(data["key"].get<std::string>(), *step, *value);
}

void SwanLabFile::Read(std::string_view bytes) {
  RecordLog log(bytes);
  constexpr uint8_t kFirstOfProtobuf = 2;
  if (log.version() > kFirstOfProtobuf) {
    ThrowError(ErrorKind::kFormat,
               "the file has version {} of SwanLab's format, and {} is the "
               "newest one that is known. Export the run as CSV.",
               log.version(), kFirstOfProtobuf);
  }
  while (log.Next()) {
    if (log.version() == kFirstOfProtobuf) {
      TakeMessage(log.record());
    } else {
      TakeJson(ParseJson(log.record()));
    }
  }
  const std::string note = log.note();
  if (!note.empty()) run_.notes.push_back(note);
  if (!run_.series.empty()) return;
  ThrowError(ErrorKind::kFormat,
             "SwanLab's file has {} records, but no scalar, as of a run that "
             "logged nothing. {}{}Give the file of a run that did.",
             log.count(), note, note.empty() ? "" : " ");
}

ForeignRun SwanLabFile::Finish() {
  run_.format = "swanlab";
  if (negative_ > 0) {
    run_.notes.push_back(fmt::format(
        "Values with a negative step were left out: {}.", negative_));
  }
  // Without steps from the trainer, calls of log are counted for each key.
  if (std::ranges::all_of(run_.series, [](const Series& series) {
        return series.step.front() == 0 &&
               series.step.back() + 1 == std::ssize(series.step);
      })) {
    DescribeStep("_step", run_);
  }
  if (!ended_) {
    run_.notes.emplace_back(
        "The file has no record of an end: the run is alive, or was killed.");
  }
  return std::move(run_);
}

constexpr std::string_view kSwanExtension = ".swanlab";

bool HasSwanLabFiles(const fs::path& folder) {
  return !FilesOfRunsIn(folder, kSwanExtension).empty();
}

std::vector<ForeignRun> ReadSwanLab(Source& log, std::string_view step_name) {
  std::vector<ForeignRun> runs;
  if (!log.is_folder()) {
    if (!log.head().starts_with(kSwanHead)) return runs;
    SwanLabFile file;
    file.Read(log.bytes());
    runs.push_back(file.Finish());
    return runs;
  }
  const std::vector<fs::path> files = FilesOfRunsIn(log.path(), kSwanExtension);
  for (const fs::path& file : files) {
    runs.push_back(ReadOneOf(file, kFormat_swanlab, step_name));
    if (files.size() == 1) continue;
    runs.back().name = file.parent_path().filename().string();
  }
  return runs;
}

}  // namespace

extern const Format kFormat_swanlab = {
    .name = "swanlab", .read = &ReadSwanLab, .has_folder = &HasSwanLabFiles};

}  // namespace isoloss::foreign
