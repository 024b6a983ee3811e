#include "isoloss/inspection/export_tables.h"

#include <fmt/format.h>

#include <cstdio>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "isoloss/base/atomic_file.h"
#include "isoloss/base/error.h"
#include "isoloss/base/printable.h"
#include "isoloss/hdf5/sealed_file.h"
#include "isoloss/logs/log_files.h"
#include "isoloss/logs/open_log.h"
#include "isoloss/runlog/probe_log.h"
#include "isoloss/system/output_file.h"

namespace isoloss::inspection {
namespace {

namespace fs = std::filesystem;

const char* Extension(runlog::ExportFormat format) {
  return format == runlog::ExportFormat::kCsv ? "csv" : "jsonl";
}

/// Returns the table of a group and its number of rows, if it may be written to
/// `file`.
template <typename Log>
std::pair<std::string, size_t> TableFor(const Log& log,
                                        const std::string& group,
                                        const ExportPlan& plan,
                                        const fs::path& file) {
  std::string text;
  const size_t rows = runlog::ExportGroup(
      log, group, plan.format, [&](std::string_view line) { text += line; });
  system::CheckOutput(file, {plan.log}, "table of this group",
                      plan.format == runlog::ExportFormat::kCsv
                          ? system::HasFirstLineOf(text)
                          : system::HasFirstKeysOf(text));
  return {std::move(text), rows};
}

template <typename Log>
size_t ExportToFile(const Log& log, const std::string& group,
                    const ExportPlan& plan, const fs::path& file) {
  const auto [text, rows] = TableFor(log, group, plan, file);
  WriteFileAtomically(file, std::as_bytes(std::span(text)));
  return rows;
}

template <typename Log>
void ExportAll(const Log& log, const fs::path& folder, const ExportPlan& plan) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) {
    ThrowError(
        ErrorKind::kIo,
        "{}: the folder for the tables can't be made: {}. Choose another "
        "one with --out.",
        folder.string(), error.message());
  }
  const auto file_of = [&](const std::string& group) {
    return folder / fmt::format("{}.{}", group, Extension(plan.format));
  };
  // If a file may not be replaced, nothing is written.
  for (const runlog::GroupRows& group : runlog::GroupsOf(log)) {
    const fs::path file = file_of(group.name);
    if (group.rows > 0 && fs::exists(file)) {
      TableFor(log, group.name, plan, file);
    }
  }
  for (const runlog::GroupRows& group : runlog::GroupsOf(log)) {
    const fs::path file = file_of(group.name);
    if (group.rows == 0) continue;
    const size_t rows = ExportToFile(log, group.name, plan, file);
    fmt::print("{}: {} rows\n", Printable(file.string()), rows);
  }
}

/// `usual` is the group that is printed if none is named.
template <typename Log>
void ExportOne(const Log& log, const char* usual, const ExportPlan& plan) {
  if (!plan.out.empty() && plan.group.empty()) {
    ExportAll(log, plan.out, plan);
    return;
  }
  const std::string group = plan.group.empty() ? usual : plan.group;
  if (!plan.out.empty()) {
    ExportToFile(log, group, plan, plan.out);
    return;
  }
  runlog::ExportGroup(log, group, plan.format, [](std::string_view line) {
    std::fwrite(line.data(), 1, line.size(), stdout);
  });
}

/// Each log of a folder gets a folder of its own in --out.
void ExportFolder(const ExportPlan& plan) {
  const std::vector<compare::Run> runs = logs::ReadRuns({plan.log});
  if (runs.size() == 1) return ExportOne(runs.front().log, "steps", plan);
  if (plan.out.empty() || !plan.group.empty()) {
    ThrowError(ErrorKind::kConfig,
               "{}: the folder holds {} run logs, but a table is of one. Give "
               "one log, or --out without --group for a folder of tables each.",
               plan.log.string(), runs.size());
  }
  for (const compare::Run& run : runs) {
    ExportAll(run.log, plan.out / fs::path(run.file).stem(), plan);
  }
}

}  // namespace

void ExportLog(const ExportPlan& plan) {
  std::error_code error;
  if (fs::is_directory(plan.log, error)) {
    ExportFolder(plan);
    return;
  }
  try {
    const logs::OpenedLog opened = logs::OpenLog(plan.log);
    if (!opened.note.empty()) {
      fmt::print(stderr, "isoloss: {}\n", opened.note);
    }
    ExportOne(opened.log, "steps", plan);
  } catch (const hdf5::WrongKindError& reason) {
    if (&reason.found() != &hdf5::kProbeLogFile) throw;
    ExportOne(runlog::ReadProbeLog(plan.log), "oracle", plan);
  }
}

}  // namespace isoloss::inspection
