#include "isoloss/foreign/read.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <system_error>

#include "isoloss/base/error.h"
#include "isoloss/base/printable.h"
#include "isoloss/foreign/format.h"
#include "isoloss/foreign/plan.h"
#include "isoloss/foreign/printed_log.h"
#include "isoloss/foreign/refusals.h"
#include "isoloss/foreign/table_names.h"

namespace isoloss::foreign {

#define ISOLOSS_LOG_FORMAT(name) extern const Format kFormat_##name;
#include "isoloss/foreign/formats.def"
#undef ISOLOSS_LOG_FORMAT

std::span<const Format* const> AllFormats() {
  static constexpr const Format* kFormats[] = {
#define ISOLOSS_LOG_FORMAT(name) &kFormat_##name,
#include "isoloss/foreign/formats.def"
#undef ISOLOSS_LOG_FORMAT
  };
  return kFormats;
}

namespace {

/// An error message considers at most this many names.
constexpr size_t kMostNamesOfError = 100;

/// Only tables, and lines of fields, have their steps under a name.
void RequireTable(const std::vector<ForeignRun>& runs,
                  std::string_view step_name) {
  if (step_name.empty() || !runs.front().step_name.empty()) return;
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
    std::string no_loss;
    // A column of only words is no loss.
    for (Series& series : run.series) {
      if (series.unreadable != std::ssize(series.step)) continue;
      if (series.quantity == Quantity::kLoss && !series.step.empty()) {
        no_loss = fmt::format(
            "{}: what is written is no number at any step, the first is `{}`, "
            "so it was left out. Decimals need a point, not a comma.",
            series.name, series.unreadable_text);
        run.notes.push_back(no_loss);
      }
      series.step.clear();
      series.value.clear();
    }
    run.Finish();
    if (run.series.empty() && !no_loss.empty()) {
      ThrowError(ErrorKind::kFormat,
                 "{} No other number is left. Write the log with points.",
                 no_loss);
    }
    RefuseSeveralRuns(run);
    TakePlan(run);
  }
  std::erase_if(runs, [](const ForeignRun& run) { return run.series.empty(); });
  return runs;
}

[[noreturn]] void RefuseFolder(const std::filesystem::path& folder) {
  ThrowError(ErrorKind::kConfig,
             "{}: the folder holds no run that is known: 0 event files "
             "(NAME.tfevents.NAME), files of W&B (NAME.wandb) or SwanLab "
             "(NAME.swanlab), and folders of MLflow (`metrics` beside "
             "meta.yaml). Give the folder of one run, or its files one by one.",
             folder.string());
}

/// Puts the name of a file before what an error says of it. Some errors have it
/// in them.
Error WithName(const std::string& name, const Error& error) {
  const std::string message = Printable(error.what());
  return Error(error.kind(),
               message.starts_with(name) ? message : name + ": " + message);
}

std::vector<ForeignRun> RunsOf(Source& log, std::string_view step_name) {
  for (const Format* format : AllFormats()) {
    if (format->read == nullptr) continue;
    if (log.is_folder() &&
        (format->has_folder == nullptr || !format->has_folder(log.path()))) {
      continue;
    }
    std::vector<ForeignRun> runs = format->read(log, step_name);
    if (!runs.empty()) return runs;
  }
  if (log.is_folder()) RefuseFolder(log.path());
  return ReadPrintedLog(log.text(), step_name);
}

std::vector<ForeignRun> ReadSource(Source& log, const ReadOptions& options) {
  std::vector<ForeignRun> runs = Finished(RunsOf(log, options.step));
  if (runs.empty()) RefuseUnknown(log, options.step);
  RequireTable(runs, options.step);
  ChooseLoss(options.loss, runs);
  return runs;
}

}  // namespace

ForeignRun ReadOneOf(const std::filesystem::path& file, const Format& format,
                     std::string_view step_name) {
  const std::string name = Printable(file.string());
  try {
    Source log = Source::OfPath(file);
    std::vector<ForeignRun> runs = format.read(log, step_name);
    if (!runs.empty()) return std::move(runs.front());
  } catch (const Error& error) {
    throw WithName(name, error);
  }
  ThrowError(ErrorKind::kFormat,
             "{}: the file is named like one of the format {}, but does not "
             "begin as one. Give the whole file.",
             name, format.name);
}

bool IsLogFolder(const std::filesystem::path& folder) {
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder, error), end;
       !error && entry != end; entry.increment(error)) {
    if (entry->path().extension() == ".h5") return false;
  }
  return std::ranges::any_of(AllFormats(), [&folder](const Format* format) {
    return format->has_folder != nullptr && format->has_folder(folder);
  });
}

std::vector<ForeignRun> ParseLog(std::string_view content,
                                 const ReadOptions& options) {
  Source log = Source::OfContent(content);
  return ReadSource(log, options);
}

std::vector<ForeignRun> ReadLog(const std::filesystem::path& path,
                                const ReadOptions& options) {
  const std::string name = Printable(path.string());
  try {
    Source log = Source::OfPath(path);
    return ReadSource(log, options);
  } catch (const Error& error) {
    throw WithName(name, error);
  }
}

}  // namespace isoloss::foreign
