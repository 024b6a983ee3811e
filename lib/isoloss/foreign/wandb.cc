// Reads W&B's own record of a run: run-ID.wandb, or its folder. Each record is
// a protobuf message Record of wandb, proto/wandb_internal.proto. A row of the
// history has the keys of one call of log, each with a value in JSON.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "isoloss/base/error.h"
#include "isoloss/foreign/folders.h"
#include "isoloss/foreign/format.h"
#include "isoloss/foreign/json.h"
#include "isoloss/foreign/json_rows.h"
#include "isoloss/foreign/protobuf.h"
#include "isoloss/foreign/record_log.h"

namespace isoloss::foreign {

extern const Format kFormat_wandb;

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kWandbHead = ":W&B\xE1\xBE";

// The message Record and its parts have these field numbers.
constexpr uint64_t kRecordHistory = 2;
constexpr uint64_t kRecordConfig = 5;
constexpr uint64_t kRecordRun = 17;
constexpr uint64_t kRecordExit = 18;
constexpr uint64_t kHistoryItem = 1;
constexpr uint64_t kHistoryStep = 2;
constexpr uint64_t kStepNumber = 1;
constexpr uint64_t kItemKey = 1;
constexpr uint64_t kItemNestedKey = 2;
constexpr uint64_t kItemValue = 16;
constexpr uint64_t kRunConfig = 4;
constexpr uint64_t kRunStartingStep = 14;
constexpr uint64_t kRunResumed = 18;
constexpr uint64_t kConfigUpdate = 1;
constexpr uint64_t kExitCode = 1;

constexpr std::string_view kLogCalls = "_step";

struct Item {
  std::string key;  ///< parts of a nested one are joined: "train/loss"
  std::string_view value;
};

Item ItemOf(std::string_view message) {
  Item item;
  std::string nested;
  ProtobufFields fields(message);
  while (fields.Next()) {
    if (fields.Is(kItemKey, WireType::kBytes)) item.key = fields.bytes();
    if (fields.Is(kItemValue, WireType::kBytes)) item.value = fields.bytes();
    if (!fields.Is(kItemNestedKey, WireType::kBytes)) continue;
    if (!nested.empty()) nested += '/';
    nested += fields.bytes();
  }
  if (item.key.empty()) item.key = std::move(nested);
  return item;
}

/// Returns the value; discarded if it is no number or small object. A picture
/// or a table may be large.
nlohmann::json ValueOf(const Item& item) {
  constexpr size_t kMostBytes = 4096;
  return ParseJson(item.value.size() > kMostBytes ? "" : item.value);
}

/// Returns the number of a message's field; `unless` if it is left out.
int64_t WholeIn(std::string_view message, uint64_t number, int64_t unless) {
  ProtobufFields fields(message);
  while (fields.Next()) {
    if (fields.Is(number, WireType::kVarint)) {
      unless = static_cast<int64_t>(fields.value());
    }
  }
  return unless;
}

class WandbFile {
 public:
  explicit WandbFile(std::string_view step_name) : rows_("wandb", step_name) {}

  void Read(std::string_view bytes);
  std::vector<ForeignRun> Finish();

 private:
  void TakeRecord(std::string_view record);
  void TakeRow(std::string_view history);
  void TakeConfig(std::string_view config);

  JsonRows rows_;
  std::map<std::string, double, std::less<>> settings_;
  std::string note_;
  int64_t next_step_ = 0;
  int64_t row_count_ = 0;
  bool resumed_ = false;
  bool ended_ = false;
  int32_t exit_code_ = 0;
};

/// Adds the row with its number. Newer versions write no number unless the
/// caller gave one, and count the rows when the file is sent.
void WandbFile::TakeRow(std::string_view history) {
  nlohmann::json row = nlohmann::json::object();
  int64_t step = next_step_;
  ProtobufFields fields(history);
  while (fields.Next()) {
    if (fields.Is(kHistoryStep, WireType::kBytes)) {
      step = WholeIn(fields.bytes(), kStepNumber, 0);
    }
    if (!fields.Is(kHistoryItem, WireType::kBytes)) continue;
    Item item = ItemOf(fields.bytes());
    nlohmann::json value = ValueOf(item);
    if (!value.is_discarded()) row[std::move(item.key)] = std::move(value);
  }
  const auto told = row.find(kLogCalls);
  if (told == row.end() || !WholeOf(*told)) {
    row[std::string(kLogCalls)] = step;
  } else {
    step = *WholeOf(*told);
  }
  // Counted calls of log begin with 0 and leave no number out.
  if (step > next_step_ && (row_count_ > 0 || !resumed_)) rows_.CountsSteps();
  next_step_ = std::max(next_step_, step + 1);
  ++row_count_;
  rows_.Add(std::move(row));
}

/// Takes numbers, also those of an object: "optimizer/lr".
void WandbFile::TakeConfig(std::string_view config) {
  constexpr size_t kMostSettings = 10'000;
  ProtobufFields fields(config);
  while (fields.Next()) {
    if (!fields.Is(kConfigUpdate, WireType::kBytes)) continue;
    const Item item = ItemOf(fields.bytes());
    const nlohmann::json value = ValueOf(item);
    const auto add = [this](const std::string& key, const auto& number) {
      if (number.is_number() && settings_.size() < kMostSettings) {
        settings_[key] = number.template get<double>();
      }
    };
    add(item.key, value);
    if (!value.is_object()) continue;
    for (const auto& [key, inner] : value.items()) {
      add(item.key + "/" + key, inner);
    }
  }
}

void WandbFile::TakeRecord(std::string_view record) {
  ProtobufFields fields(record);
  while (fields.Next()) {
    if (fields.type() != WireType::kBytes) continue;
    const std::string_view part = fields.bytes();
    if (fields.number() == kRecordHistory) TakeRow(part);
    if (fields.number() == kRecordConfig) TakeConfig(part);
    if (fields.number() == kRecordExit) {
      ended_ = true;
      exit_code_ = static_cast<int32_t>(WholeIn(part, kExitCode, 0));
    }
    if (fields.number() != kRecordRun) continue;
    next_step_ =
        std::max(next_step_, WholeIn(part, kRunStartingStep, next_step_));
    resumed_ |= WholeIn(part, kRunResumed, 0) != 0;
    ProtobufFields run(part);
    while (run.Next()) {
      if (run.Is(kRunConfig, WireType::kBytes)) TakeConfig(run.bytes());
    }
  }
}

void WandbFile::Read(std::string_view bytes) {
  RecordLog log(bytes);
  constexpr uint8_t kNewest = 1;
  if (log.version() > kNewest) {
    ThrowError(ErrorKind::kFormat,
               "the file has version {} of W&B's format, and {} is the newest "
               "one that is known. Export a chart, or the history.",
               log.version(), kNewest);
  }
  while (log.Next()) TakeRecord(log.record());
  note_ = log.note();
  if (row_count_ > 0) return;
  ThrowError(ErrorKind::kFormat,
             "W&B's file has {} records, but no row of the history, as of a "
             "run that logged nothing. {}{}Give the file of a run that did.",
             log.count(), note_, note_.empty() ? "" : " ");
}

std::vector<ForeignRun> WandbFile::Finish() {
  std::vector<ForeignRun> runs = rows_.Finish(false);
  ForeignRun& run = runs.front();
  run.settings.merge(settings_);
  if (!note_.empty()) run.notes.push_back(note_);
  if (exit_code_ != 0) run.broke_off = fmt::format("exit code {}", exit_code_);
  if (!ended_) {
    run.notes.emplace_back(
        "The file has no record of an exit: the run is alive, or was killed.");
  }
  return runs;
}

constexpr std::string_view kWandbExtension = ".wandb";

bool HasWandbFiles(const fs::path& folder) {
  return !FilesOfRunsIn(folder, kWandbExtension).empty();
}

std::vector<ForeignRun> ReadWandbFile(std::string_view bytes,
                                      std::string_view step_name) {
  WandbFile file(step_name);
  file.Read(bytes);
  return file.Finish();
}

std::vector<ForeignRun> ReadWandb(Source& log, std::string_view step_name) {
  if (!log.is_folder()) {
    if (!log.head().starts_with(kWandbHead)) return {};
    return ReadWandbFile(log.bytes(), step_name);
  }
  std::vector<ForeignRun> runs;
  const std::vector<fs::path> files =
      FilesOfRunsIn(log.path(), kWandbExtension);
  for (const fs::path& file : files) {
    ForeignRun run = ReadOneOf(file, kFormat_wandb, step_name);
    if (files.size() > 1) run.name = file.stem().string();
    runs.push_back(std::move(run));
  }
  return runs;
}

}  // namespace

extern const Format kFormat_wandb = {
    .name = "wandb", .read = &ReadWandb, .has_folder = &HasWandbFiles};

}  // namespace isoloss::foreign
