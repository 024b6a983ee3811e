#include "isoloss/foreign/read.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <memory>
#include <string>
#include <system_error>
#include <tuple>
#include <utility>

#include "isoloss/base/error.h"
#include "isoloss/base/printable.h"
#include "isoloss/base/text_file.h"
#include "isoloss/foreign/csv.h"
#include "isoloss/foreign/event_file.h"
#include "isoloss/foreign/event_runs.h"
#include "isoloss/foreign/json_lines.h"
#include "isoloss/foreign/json_logs.h"
#include "isoloss/foreign/line_format.h"
#include "isoloss/foreign/plan.h"
#include "isoloss/foreign/refusals.h"
#include "isoloss/foreign/table_names.h"
#include "isoloss/foreign/text.h"
#include "isoloss/foreign/told.h"

namespace isoloss::foreign {

#define ISOLOSS_LINE_FORMAT(name) extern const LineFormat kLineFormat_##name;
#include "isoloss/foreign/formats.def"
#undef ISOLOSS_LINE_FORMAT

bool LineReader::has_loss() const {
  return run_.Main(Quantity::kLoss) != nullptr ||
         run_.Main(Quantity::kEvalLoss) != nullptr;
}

namespace {

constexpr const LineFormat* kLineFormats[] = {
#define ISOLOSS_LINE_FORMAT(name) &kLineFormat_##name,
#include "isoloss/foreign/formats.def"
#undef ISOLOSS_LINE_FORMAT
};

/// An error message considers at most this many names.
constexpr size_t kMostNamesOfError = 100;

/// Returns whether the line is quoted. Sources and documents show logs in
/// comments, strings and lists. No program prints a line that begins so.
bool IsQuoted(std::string_view line) {
  constexpr std::string_view kMarks[] = {"//", "#", "*", "\"", ">", "- ", "`"};
  line = Trimmed(line);
  return std::ranges::any_of(
      kMarks, [line](std::string_view mark) { return line.starts_with(mark); });
}

/// Counts steps from 1 if the training losses of printed lines begin at step 0.
void CountFromOne(ForeignRun& run) {
  const Series* loss = run.Main(Quantity::kLoss);
  if (run.step_base != 1 || loss == nullptr || loss->step.empty() ||
      std::ranges::min(loss->step) != 0) {
    return;
  }
  run.step_base = 0;
  for (Series& series : run.series) {
    // An evaluation keeps its step, since it has seen that number of updates.
    if (series.quantity == Quantity::kEvalLoss) continue;
    for (int64_t& step : series.step) ++step;
  }
}

/// Lets the formats, in turn, read each line of a printed log.
class PrintedLog {
 public:
  PrintedLog() {
    for (const LineFormat* format : kLineFormats) {
      candidates_.push_back({format, format->make()});
    }
  }

  void Read(std::string_view line);
  /// Returns the runs; empty if no format knows a line.
  std::vector<ForeignRun> Finish();

 private:
  struct Candidate {
    const LineFormat* format;
    std::unique_ptr<LineReader> reader;
    int64_t lines = 0;
    int64_t last_line = 0;

    /// DeepSpeed prints lines between those of the trainer that uses it. So a
    /// format with a loss goes before one with more lines.
    std::tuple<bool, bool, int64_t> rank() const {
      return {lines > 0 && reader->has_loss(), !format->last_resort, lines};
    }
  };

  void ReadFailure(std::string_view line);

  std::vector<Candidate> candidates_;
  SettingsReader reader_;
  ForeignRun told_;
  ForeignRun told_on_steps_;  ///< in lines that the last resort takes for steps
  int64_t line_ = 0;
  bool ignored_ = false;  ///< in an error that the program ignores
  bool ended_ = false;    ///< a line after the last step says "complete"
  int64_t failure_line_ = 0;
  std::string failure_;  ///< the last one
};

void PrintedLog::ReadFailure(std::string_view line) {
  constexpr std::string_view kEnds[] = {"raining complete", "raining finished"};
  ended_ = ended_ || std::ranges::any_of(kEnds, [line](std::string_view end) {
             return line.find(end) != std::string_view::npos;
           });
  // An ignored exception lasts to the end of its traceback, which names it.
  if (std::exchange(ignored_, false)) {
    ignored_ = line.starts_with(' ') || line.starts_with("Traceback");
    return;
  }
  ignored_ = line.find("Exception ignored") != std::string_view::npos;
  if (ignored_ || ended_) return;
  std::string failure = FailureIn(line);
  if (failure.empty()) return;
  failure_ = std::move(failure);
  failure_line_ = line_;
}

void PrintedLog::Read(std::string_view line) {
  ++line_;
  if (IsQuoted(line)) {
    // A dump of settings has lines that look quoted, too.
    const bool lists = line.find_first_of("\"-") == line.find_first_not_of(" ");
    return lists ? reader_.Read(line, told_) : reader_.ReadHeading(line);
  }
  for (Candidate& one : candidates_) {
    if (!one.reader->Read(line)) continue;
    ++one.lines;
    one.last_line = line_;
    ended_ = false;
    if (one.format->last_resort) reader_.Read(line, told_on_steps_);
    return;
  }
  ReadFailure(line);
  reader_.Read(line, told_);
}

std::vector<ForeignRun> PrintedLog::Finish() {
  const auto best = std::ranges::max_element(candidates_, {}, &Candidate::rank);
  if (best->lines == 0) return {};
  best->reader->Finish();
  CountFromOne(best->reader->run());
  std::vector<ForeignRun> runs;
  runs.push_back(std::move(best->reader->run()));
  runs.back().format = best->format->name;
  runs.back().settings.merge(told_.settings);
  if (!best->format->last_resort) {
    runs.back().settings.merge(told_on_steps_.settings);
  }
  if (failure_line_ > best->last_line) runs.back().broke_off = failure_;
  return runs;
}

std::vector<ForeignRun> ReadLines(std::string_view text) {
  PrintedLog log;
  ForEachLine(text, [&log](std::string_view line) { log.Read(line); });
  return log.Finish();
}

/// Returns whether the format has its steps in a column or key.
bool IsTable(const ForeignRun& run) {
  constexpr std::string_view kTables[] = {"csv", "wandb_chart", "lightning",
                                          "tensorboard_csv", "json_lines"};
  return std::ranges::count(kTables, run.format) != 0;
}

std::vector<ForeignRun> ReadAny(std::string_view content,
                                std::string_view step_name) {
  const size_t first = content.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return {};
  if (content[first] == '{' || content[first] == '[') {
    std::vector<ForeignRun> runs = ReadJsonLog(content, step_name);
    if (runs.empty()) runs = ReadJsonLines(content, step_name);
    if (!runs.empty()) return runs;
  }
  std::vector<ForeignRun> runs;
  // No table begins with a brace.
  if (content[first] != '{') runs = ReadCsv(content, step_name);
  return runs.empty() ? ReadLines(content) : runs;
}

void RequireTable(const std::vector<ForeignRun>& runs,
                  std::string_view step_name) {
  if (step_name.empty() || runs.empty() || IsTable(runs.front())) return;
  ThrowError(ErrorKind::kFormat,
             "`{}` is named to count the steps, but a log of the format {} "
             "says itself which step a value is of. Leave that name out.",
             step_name, runs.front().format);
}

/// Makes the series of that name the only loss.
void ChooseLoss(std::string_view name, std::vector<ForeignRun>& runs) {
  if (name.empty()) return;
  std::vector<std::string> names;
  for (const ForeignRun& run : runs) {
    for (const Series& series : run.series) {
      if (std::ranges::count(names, series.name) == 0 &&
          names.size() < kMostNamesOfError) {
        names.push_back(series.name);
      }
    }
  }
  std::erase_if(runs, [name](const ForeignRun& run) {
    return run.Find(name) == nullptr;
  });
  if (runs.empty()) {
    ThrowError(ErrorKind::kFormat,
               "`{}` is named as the loss, but the log has no series of that "
               "name. It has {}. Name one of them.",
               name, NamesText(names));
  }
  for (ForeignRun& run : runs) {
    for (Series& series : run.series) {
      if (series.quantity == Quantity::kLoss) {
        series.quantity = Quantity::kOther;
      }
      if (series.name == name) series.quantity = Quantity::kLoss;
    }
  }
}

/// This many bytes tell an event file.
constexpr size_t kEventHead = 13;

bool IsEventFile(const std::filesystem::path& path) {
  std::array<char, kEventHead> head{};
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return false;
  std::ifstream stream(path, std::ios::binary);
  stream.read(head.data(), head.size());
  return LooksLikeEventFile(
      {head.data(), static_cast<size_t>(stream.gcount())});
}

/// Refuses steps that begin again. Steps within an epoch hide all epochs but
/// the last one, and a shorter run after another one makes a curve of both.
void RefuseSeveralRuns(const ForeignRun& run) {
  const Series* loss = run.Main(Quantity::kLoss);
  if (loss == nullptr || (loss->repeated == 0 && loss->attempts == 1)) return;
  if (loss->restarts > 0 || run.counts_within_epoch || !run.rising.empty()) {
    ThrowError(ErrorKind::kFormat,
               "{}: its steps {}, but a step must stand for one update of the "
               "run. {}",
               loss->name,
               loss->step.size() == 1
                   ? fmt::format("are all {}", loss->step.front())
                   : std::string("begin again with other values, as by a "
                                 "counter within an epoch"),
               run.rising.empty()
                   ? std::string("Log the number of updates since the start.")
                   : fmt::format("Name what counts all updates: {} (--step "
                                 "NAME).",
                                 NamesText(run.rising)));
  }
  if (loss->attempts == 1 || loss->last_attempt_ends >= loss->step.back()) {
    return;
  }
  ThrowError(
      ErrorKind::kFormat,
      "{}: its steps begin {} times with step {}, and the last time they "
      "end at {}, but before they went to {}. A file must hold one run. "
      "Put each run into a file of its own.",
      loss->name, loss->attempts, loss->step.front(), loss->last_attempt_ends,
      loss->step.back());
}

/// Finishes the runs and keeps those with values.
std::vector<ForeignRun> Finished(std::vector<ForeignRun> runs) {
  for (ForeignRun& run : runs) {
    // A column of only words is no loss.
    for (Series& series : run.series) {
      if (series.unreadable != std::ssize(series.step)) continue;
      series.step.clear();
      series.value.clear();
    }
    run.Finish();
    RefuseSeveralRuns(run);
    TakePlan(run);
  }
  std::erase_if(runs, [](const ForeignRun& run) { return run.series.empty(); });
  return runs;
}

std::vector<ForeignRun> RunsOfEvents(const EventFile& file) {
  std::vector<ForeignRun> runs = Finished({RunOfEvents(file)});
  if (!runs.empty()) return runs;
  ThrowError(ErrorKind::kFormat,
             "{} records of events hold no scalar, as of a run that logged "
             "nothing. Give the event file of a training.",
             file.records);
}

std::vector<ForeignRun> RunsOfFile(const std::filesystem::path& path,
                                   const ReadOptions& options) {
  std::error_code error;
  const bool folder = std::filesystem::is_directory(path, error);
  if (!folder && !IsEventFile(path)) {
    return ParseLog(
        ReadTextFile(path, "Give a smaller part of the log.", kMostLogBytes),
        options);
  }
  std::vector<ForeignRun> runs =
      RunsOfEvents(folder ? ReadEventFolder(path) : ReadEventFile(path));
  RequireTable(runs, options.step);
  ChooseLoss(options.loss, runs);
  return runs;
}

}  // namespace

std::vector<ForeignRun> ParseLog(std::string_view content,
                                 const ReadOptions& options) {
  std::vector<ForeignRun> runs;
  if (LooksLikeEventFile(content.substr(0, kEventHead))) {
    runs = RunsOfEvents(ParseEventFile(content, "the log"));
  } else {
    if (content.starts_with(kByteOrderMark)) {
      content.remove_prefix(kByteOrderMark.size());
    }
    RefuseBinary(content);
    runs = Finished(ReadAny(content, options.step));
    if (runs.empty()) RefuseUnknown(content, options.step);
  }
  RequireTable(runs, options.step);
  ChooseLoss(options.loss, runs);
  return runs;
}

std::vector<ForeignRun> ReadLog(const std::filesystem::path& path,
                                const ReadOptions& options) {
  const std::string name = Printable(path.string());
  try {
    return RunsOfFile(path, options);
  } catch (const Error& error) {
    // Some messages have the name in them.
    const std::string message = Printable(error.what());
    throw Error(error.kind(),
                message.starts_with(name) ? message : name + ": " + message);
  }
}

}  // namespace isoloss::foreign
