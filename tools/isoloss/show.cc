// Implements `isoloss show`, which summarises logs, probes and ensembles.

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "arguments.h"
#include "commands.h"
#include "isoloss/base/error.h"
#include "isoloss/base/printable.h"
#include "isoloss/document/text.h"
#include "isoloss/foreign/read.h"
#include "isoloss/inspection/what_if.h"
#include "isoloss/logs/foreign_logs.h"
#include "isoloss/logs/log_files.h"
#include "isoloss/logs/open_log.h"
#include "isoloss/precision/recipe.h"
#include "isoloss/report/foreign_log.h"
#include "isoloss/report/live_view.h"
#include "isoloss/report/log_document.h"
#include "isoloss/report/run_summary.h"
#include "isoloss/report/schema_document.h"
#include "isoloss/report/terminal_width.h"
#include "isoloss/runlog/tensor_dump.h"
#include "json_output.h"
#include "value_names.h"

namespace isoloss::cli {
namespace {

namespace fs = std::filesystem;

using document::Document;

/// On narrower terminals lines are cut.
constexpr int kNarrow = 60;

struct ShowArguments {
  std::vector<fs::path> logs;
  bool ascii = false;
  bool recipe = false;
  bool schema = false;
  bool json = false;
  std::vector<std::string> tensors;
  std::optional<int64_t> step;
  std::vector<std::string> what_if;
};

/// Returns an empty function if all tensors are wanted.
std::function<bool(std::string_view)> WantedTensors(
    const ShowArguments& arguments) {
  if (arguments.tensors.empty()) return {};
  return [&arguments](std::string_view name) {
    return precision::FirstMatch(arguments.tensors, name) != nullptr;
  };
}

report::RunSummaryOptions SummaryOptions(const ShowArguments& arguments) {
  report::RunSummaryOptions options;
  options.step = arguments.step;
  options.wants_tensor = WantedTensors(arguments);
  return options;
}

/// Cuts lines in a narrow terminal, where a table of lines that wrap can't be
/// read. Everywhere else readers get all of each line.
void Print(const std::string& text, int columns) {
  if (columns >= kNarrow) {
    fmt::print("{}", text);
    return;
  }
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    fmt::print("{}\n", report::ClipLine(line, columns));
  }
}

Document ShowRun(const std::string& file, const logs::OpenedLog& opened,
                 const ShowArguments& arguments) {
  const report::RunSummary summary =
      report::SummarizeRun(opened.log, SummaryOptions(arguments));
  const report::ShownRun run = {file,           opened.log,  summary,
                                opened.journal, opened.note, arguments.recipe};
  return report::DocumentOf(run);
}

/// Refuses options that only a run log takes.
void RefuseRunOptions(const std::string& file, const ShowArguments& arguments) {
  const char* option = arguments.recipe             ? "--recipe"
                       : !arguments.tensors.empty() ? "--tensors"
                       : arguments.step             ? "--step"
                                                    : nullptr;
  if (option == nullptr) return;
  ThrowError(ErrorKind::kConfig,
             "{}: {} is given, but it is of a run log, and this is none. Leave "
             "it out.",
             file, option);
}

/// Shows what quantisation in other formats would lose of a dump's tensors.
Document ShowDump(const std::string& name, const fs::path& file,
                  const ShowArguments& arguments) {
  const runlog::TensorDump dump = runlog::ReadTensorDump(file);
  const auto rows =
      inspection::WhatIf(dump, arguments.what_if, WantedTensors(arguments));
  if (rows.empty()) {
    ThrowError(ErrorKind::kConfig,
               "{}: --tensors is given, but the dump has no tensor of numbers "
               "whose name holds one of its texts. Give another or leave it "
               "out.",
               name);
  }
  Document shown;
  shown.Put("file", name);
  shown.Put("run", dump.run);
  shown.Put("step", dump.step);
  shown.Say(
      fmt::format("{}: tensors of {} at step {}", name, dump.run, dump.step));
  shown.Append(inspection::WhatIfDocument(rows));
  return shown;
}

void RequireNoWhatIf(const std::string& name, const ShowArguments& arguments) {
  if (arguments.what_if.empty()) return;
  ThrowError(ErrorKind::kConfig,
             "{}: --what-if is given, but it needs whole tensors, and this "
             "file has none. Give a dump that `isoloss run --dump` wrote.",
             name);
}

Document ShowFile(const fs::path& file, const ShowArguments& arguments) {
  const std::string name = Printable(file.string());
  if (logs::IsForeignLog(file)) {
    RequireNoWhatIf(name, arguments);
    RefuseRunOptions(name, arguments);
    return report::DocumentOf(name, foreign::ReadLog(file), arguments.json);
  }
  try {
    const logs::OpenedLog opened = logs::OpenLog(file);
    RequireNoWhatIf(name, arguments);
    return ShowRun(name, opened, arguments);
  } catch (const hdf5::WrongKindError& error) {
    if (&error.found() == &hdf5::kTensorDumpFile &&
        !arguments.what_if.empty()) {
      return ShowDump(name, file, arguments);
    }
    const bool is_probe = &error.found() == &hdf5::kProbeLogFile;
    if (!is_probe && &error.found() != &hdf5::kEnsembleFile) throw;
    RequireNoWhatIf(name, arguments);
    RefuseRunOptions(name, arguments);
    return is_probe ? report::DocumentOf(runlog::ReadProbeLog(file), name)
                    : report::DocumentOf(runlog::ReadEnsemble(file), name);
  }
}

ExitCode ShowSchema(const ShowArguments& arguments,
                    const document::TextStyle& style, int columns) {
  if (arguments.json) {
    PrintJson(document::ToJson(report::SchemaDocument()));
  } else {
    Print(document::RenderText(report::SchemaDocument(), style), columns);
  }
  return ExitCode::kPass;
}

ExitCode Show(const ShowArguments& arguments) {
  document::TextStyle style = report::TerminalStyle(arguments.ascii);
  const int columns = report::TerminalWidth().value_or(style.width);
  style.width = std::min(style.width, columns);
  if (arguments.schema) return ShowSchema(arguments, style, columns);
  std::vector<Document> all;
  for (const fs::path& path : arguments.logs) {
    std::error_code error;
    if (!fs::is_directory(path, error) || logs::IsForeignLog(path)) {
      all.push_back(ShowFile(path, arguments));
      continue;
    }
    RequireNoWhatIf(Printable(path.string()), arguments);
    for (compare::Run& run : logs::ReadRuns({path})) {
      all.push_back(
          ShowRun(run.file, {std::move(run.log), false, ""}, arguments));
    }
  }
  if (arguments.json && all.size() == 1) {
    PrintJson(document::ToJson(all.front()));
  } else if (arguments.json) {
    Json json{{"logs", Json::array()}};
    for (const Document& shown : all) {
      json["logs"].push_back(document::ToJson(shown));
    }
    PrintJson(json);
  } else {
    for (const Document& shown : all) {
      if (&shown != &all.front()) fmt::print("\n");
      Print(document::RenderText(shown, style), columns);
    }
  }
  return ExitCode::kPass;
}

/// Call this function after all options that --schema excludes are declared.
void DeclareSchema(CLI::App& app, ShowArguments& arguments,
                   const Option& logs) {
  AddFlag(app, "--schema", arguments.schema,
          "Instead of a log: print the layout of run logs, every group and "
          "dataset with its type, shape, unit, meaning and sound values. "
          "Example: isoloss show --schema")
      .Waives(logs)
      .Excludes("logs")
      .Excludes("--recipe")
      .Excludes("--tensors")
      .Excludes("--step")
      .Excludes("--what-if");
}

Action DeclareShow(CLI::App& app) {
  auto arguments = std::make_shared<ShowArguments>();
  const Option logs =
      AddOption(app, "logs", arguments->logs,
                "Run logs, probe logs or null ensembles (HDF5), the journal "
                "of a run that has not ended, or a folder, which stands for "
                "the run logs in it; with --what-if dumps of tensors");
  logs.Required().TypeName(kLogFile);
  AddFlag(app, "--ascii", arguments->ascii, "Draw with 7-bit characters only");
  AddFlag(app, "--recipe", arguments->recipe, "Print what each GEMM got");
  DeclareJson(
      app, arguments->json,
      "of the log, or of several their list `logs`, or with --schema the "
      "list `groups`");
  AddOption(app, "--tensors", arguments->tensors,
            "List statistics of tensors whose name holds this; `*` stands "
            "for any characters; repeatable")
      .Repeatable()
      .TypeName("PATTERN");
  AddOption(app, "--step", arguments->step,
            "Parameters, MoE layers and tensors at this step; without it "
            "at the last one logged, tensors at the last one with "
            "statistics")
      .IntegerIn(0, kMostSteps);
  AddOption(app, "--what-if", arguments->what_if,
            "Of a dump instead of a log: what quantisation as each of these "
            "would lose, such as e5m2.rceil, e2m1.floor, nvfp4 "
            "(docs/run-log.md)")
      .TypeName(kFormatName)
      .SplitAtCommas();
  DeclareSchema(app, *arguments, logs);
  return [arguments] { return Show(*arguments); };
}

}  // namespace

extern constinit const Command kCommand_show = {
    "show", "Summarise run logs, probe logs and null ensembles",
    "isoloss show runs/demo/mxfp8-seed1.h5", &DeclareShow};

}  // namespace isoloss::cli
