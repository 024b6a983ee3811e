// isoloss export: a run log as CSV or JSON lines.

#include "isoloss/runlog/export.h"

#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <system_error>

#include "commands.h"
#include "isoloss/base/atomic_file.h"
#include "isoloss/base/error.h"
#include "open_log.h"

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
size_t ExportToFile(const runlog::RunLog& log, const std::string& group,
                    runlog::ExportFormat format, const fs::path& file) {
  std::string text;
  const size_t rows = runlog::ExportGroup(
      log, group, format, [&](std::string_view line) { text += line; });
  WriteFileAtomically(file, std::as_bytes(std::span(text)));
  return rows;
}

void ExportAll(const runlog::RunLog& log, const ExportArguments& arguments) {
  std::error_code error;
  fs::create_directories(arguments.out, error);
  if (error) {
    ThrowError(
        ErrorKind::kIo,
        "{}: the folder for the tables can't be made: {}. Choose another "
        "one with --out.",
        arguments.out.string(), error.message());
  }
  for (const runlog::GroupRows& group : runlog::GroupsOf(log)) {
    const fs::path file =
        arguments.out / fmt::format("{}.{}", group.name, arguments.format);
    if (group.rows == 0) continue;
    const size_t rows = ExportToFile(log, group.name, arguments.Format(), file);
    fmt::print("{}: {} rows\n", file.string(), rows);
  }
}

ExitCode Export(const ExportArguments& arguments) {
  const OpenedLog opened = OpenLog(arguments.log);
  if (!opened.note.empty()) {
    fmt::print(stderr, "isoloss: {}\n", opened.note);
  }
  if (arguments.group.empty() && !arguments.out.empty()) {
    ExportAll(opened.log, arguments);
    return ExitCode::kPass;
  }
  const std::string group = arguments.group.empty() ? "steps" : arguments.group;
  if (!arguments.out.empty()) {
    ExportToFile(opened.log, group, arguments.Format(), arguments.out);
    return ExitCode::kPass;
  }
  runlog::ExportGroup(opened.log, group, arguments.Format(),
                      [](std::string_view line) {
                        std::fwrite(line.data(), 1, line.size(), stdout);
                      });
  return ExitCode::kPass;
}

}  // namespace

Action DeclareExport(CLI::App& app) {
  auto arguments = std::make_shared<ExportArguments>();
  app.add_option("log", arguments->log, "Run log (HDF5) or journal")
      ->required();
  app.add_option("--format", arguments->format, "csv or jsonl")
      ->check(CLI::IsMember({"csv", "jsonl"}))
      ->capture_default_str();
  app.add_option("--group", arguments->group,
                 "Group of the log: steps, parameters, tensors, moe, exchange, "
                 "exchange_pairs, eval or events; without it steps, or with "
                 "--out all that have rows");
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
