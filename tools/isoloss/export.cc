// isoloss export: a run log or probe log as CSV or JSON lines.

#include "isoloss/runlog/export.h"

#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "arguments.h"
#include "commands.h"
#include "isoloss/base/atomic_file.h"
#include "isoloss/base/error.h"
#include "isoloss/base/printable.h"
#include "isoloss/runlog/probe_log.h"
#include "isoloss/runlog/sealed_file.h"
#include "log_files.h"
#include "open_log.h"
#include "output_file.h"

namespace isoloss::cli {
namespace {

namespace fs = std::filesystem;

struct ExportArguments {
  fs::path log;
  std::string format = "csv";
  std::string group;
  fs::path out;

  runlog::ExportFormat Format() const {
    return format == "csv" ? runlog::ExportFormat::kCsv
                           : runlog::ExportFormat::kJsonl;
  }
};

/// Returns how many rows it wrote.
template <typename Log>
size_t ExportToFile(const Log& log, const std::string& group,
                    const ExportArguments& arguments, const fs::path& file) {
  std::string text;
  const size_t rows =
      runlog::ExportGroup(log, group, arguments.Format(),
                          [&](std::string_view line) { text += line; });
  CheckOutput(file, {arguments.log}, "table of this group",
              arguments.Format() == runlog::ExportFormat::kCsv
                  ? HasFirstLineOf(text)
                  : HasFirstKeysOf(text));
  WriteFileAtomically(file, std::as_bytes(std::span(text)));
  return rows;
}

template <typename Log>
void ExportAll(const Log& log, const fs::path& folder,
               const ExportArguments& arguments) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) {
    ThrowError(
        ErrorKind::kIo,
        "{}: the folder for the tables can't be made: {}. Choose another "
        "one with --out.",
        folder.string(), error.message());
  }
  for (const runlog::GroupRows& group : runlog::GroupsOf(log)) {
    const fs::path file =
        folder / fmt::format("{}.{}", group.name, arguments.format);
    if (group.rows == 0) continue;
    const size_t rows = ExportToFile(log, group.name, arguments, file);
    fmt::print("{}: {} rows\n", Printable(file.string()), rows);
  }
}

/// `usual` is the group that is printed if none is named.
template <typename Log>
void ExportOne(const Log& log, const char* usual,
               const ExportArguments& arguments) {
  if (!arguments.out.empty() && arguments.group.empty()) {
    ExportAll(log, arguments.out, arguments);
    return;
  }
  const std::string group = arguments.group.empty() ? usual : arguments.group;
  if (!arguments.out.empty()) {
    ExportToFile(log, group, arguments, arguments.out);
    return;
  }
  runlog::ExportGroup(log, group, arguments.Format(),
                      [](std::string_view line) {
                        std::fwrite(line.data(), 1, line.size(), stdout);
                      });
}

/// Each log of a folder gets a folder of its own in --out.
void ExportFolder(const ExportArguments& arguments) {
  const std::vector<compare::Run> runs = ReadRuns({arguments.log});
  if (runs.size() == 1) return ExportOne(runs.front().log, "steps", arguments);
  if (arguments.out.empty() || !arguments.group.empty()) {
    ThrowError(ErrorKind::kConfig,
               "{}: the folder holds {} run logs, but a table is of one. Give "
               "one log, or --out without --group for a folder of tables each.",
               arguments.log.string(), runs.size());
  }
  for (const compare::Run& run : runs) {
    ExportAll(run.log, arguments.out / fs::path(run.file).stem(), arguments);
  }
}

ExitCode Export(const ExportArguments& arguments) {
  std::error_code error;
  if (fs::is_directory(arguments.log, error)) {
    ExportFolder(arguments);
    return ExitCode::kPass;
  }
  try {
    const OpenedLog opened = OpenLog(arguments.log);
    if (!opened.note.empty()) {
      fmt::print(stderr, "isoloss: {}\n", opened.note);
    }
    ExportOne(opened.log, "steps", arguments);
  } catch (const runlog::WrongKindError& reason) {
    if (&reason.found() != &runlog::kProbeLogFile) throw;
    ExportOne(runlog::ReadProbeLog(arguments.log), "oracle", arguments);
  }
  return ExitCode::kPass;
}

}  // namespace

Action DeclareExport(CLI::App& app) {
  auto arguments = std::make_shared<ExportArguments>();
  app.add_option(
         "log", arguments->log,
         "Run log or probe log (HDF5), journal, or a folder of run logs")
      ->required();
  app.add_option("--format", arguments->format, "How rows are written")
      ->check(OneOf({"csv", "jsonl"}))
      ->capture_default_str();
  app.add_option(
      "--group", arguments->group,
      "Group of the log: steps, parameters, tensors, moe, exchange, "
      "exchange_pairs, eval or events; of a probe log cases, tensors, "
      "plain_steps, oracle, routing, precision or routing_flips; "
      "without it steps or oracle, or with --out all that have rows");
  app.add_option("--out", arguments->out,
                 "File to write in place of standard output; a folder if no "
                 "--group is given");
  app.description(
      "Write a run log as CSV or JSON lines, one row per step; in CSV, tensors "
      "and parameters have one per step and name. Numbers read back to the "
      "same bits; NaN and infinities are NaN, Infinity and "
      "-Infinity, in JSON as strings");
  return [arguments] { return Export(*arguments); };
}

}  // namespace isoloss::cli
