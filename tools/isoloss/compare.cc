// Implements `isoloss compare`, which shows differences of two logs or two
// dumps and gives no verdict.

#include <fmt/format.h>

#include <array>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "arguments.h"
#include "commands.h"
#include "compare_dumps.h"
#include "compare_zoom.h"
#include "isoloss/base/error.h"
#include "isoloss/base/printable.h"
#include "isoloss/foreign/align.h"
#include "isoloss/hdf5/sealed_file.h"
#include "isoloss/inspection/log_comparison.h"
#include "isoloss/logs/foreign_logs.h"
#include "isoloss/logs/open_log.h"
#include "json_output.h"
#include "value_names.h"

namespace isoloss::cli {
namespace {

namespace fs = std::filesystem;

struct CompareArguments {
  std::vector<fs::path> files;
  std::optional<double> tolerance;
  bool json = false;
  ZoomArguments zoom;
};

compare::Run OpenRun(const fs::path& file) {
  logs::OpenedLog opened = logs::OpenLog(file);
  if (!opened.note.empty()) {
    fmt::print(stderr, "isoloss: {}\n", opened.note);
  }
  return {Printable(file.string()), std::move(opened.log)};
}

/// Returns nothing if `file` is a dump of tensors.
std::optional<compare::Run> OpenUnlessDump(const fs::path& file) {
  try {
    return OpenRun(file);
  } catch (const hdf5::WrongKindError& error) {
    if (&error.found() != &hdf5::kTensorDumpFile) throw;
    return std::nullopt;
  }
}

/// Refuses to compare a dump with a run log.
void CheckSameKind(const std::vector<fs::path>& files, bool first,
                   bool second) {
  if (first == second) return;
  ThrowError(ErrorKind::kFormat,
             "compare: {} is a dump of tensors, {} is none, but both must be "
             "run logs or both dumps. Give two of one kind.",
             files[first ? 0 : 1].string(), files[first ? 1 : 0].string());
}

ExitCode CompareFolders(const CompareArguments& arguments) {
  const inspection::PairedFolders folders = inspection::PairFolders(
      arguments.files[0], arguments.files[1], {arguments.tolerance});
  if (arguments.json) {
    PrintJson(inspection::FoldersJson(folders));
  } else {
    fmt::print("{}", inspection::RenderFolders(folders));
  }
  return folders.Equal() ? ExitCode::kPass : ExitCode::kFail;
}

/// Returns true for two folders, false for two files.
bool AreFolders(const CompareArguments& arguments) {
  const std::vector<fs::path>& paths = arguments.files;
  // A folder of event files is one log.
  const auto is_folder = [](const fs::path& path) {
    std::error_code error;
    return fs::is_directory(path, error) && !logs::IsForeignLog(path);
  };
  const bool first = is_folder(paths[0]);
  const bool second = is_folder(paths[1]);
  if (first != second) {
    ThrowError(ErrorKind::kConfig,
               "compare: {} is a folder, {} is none, but both must be files or "
               "both folders. Give two logs, or the folders of both.",
               paths[first ? 0 : 1].string(), paths[first ? 1 : 0].string());
  }
  if (first && arguments.zoom.zoom) {
    ThrowError(ErrorKind::kConfig,
               "compare: --zoom is given with 2 folders, but it looks into 2 "
               "run logs. Give two of their logs.");
  }
  return first;
}

/// Drops steps that only one log has, since the intervals at which other
/// programs log may differ.
void KeepSharedSteps(compare::Run& a, compare::Run& b) {
  const size_t of_a = a.log.steps.step.size();
  const size_t of_b = b.log.steps.step.size();
  if (a.log.provenance.Knows(runlog::Fact::kEveryStep) ||
      b.log.provenance.Knows(runlog::Fact::kEveryStep) ||
      a.log.steps.step == b.log.steps.step) {
    return;
  }
  const std::array logs = {&a.log, &b.log};
  foreign::KeepSharedSteps(logs);
  fmt::print(stderr,
             "isoloss: A has {} steps and B has {}; the {} that both have are "
             "compared\n",
             of_a, of_b, a.log.steps.step.size());
}

ExitCode Compare(const CompareArguments& arguments) {
  if (AreFolders(arguments)) return CompareFolders(arguments);
  std::optional<compare::Run> first = OpenUnlessDump(arguments.files[0]);
  std::optional<compare::Run> second = OpenUnlessDump(arguments.files[1]);
  CheckSameKind(arguments.files, !first, !second);
  if (!first) {
    if (arguments.zoom.zoom) {
      ThrowError(ErrorKind::kConfig,
                 "compare: --zoom is given with 2 dumps, but it makes dumps of "
                 "2 run logs. Leave it out.");
    }
    return CompareDumpFiles(arguments.files[0], arguments.files[1],
                            arguments.json);
  }
  KeepSharedSteps(*first, *second);
  const inspection::LogComparison comparison =
      inspection::CompareLogs(*first, *second, {arguments.tolerance});
  if (!arguments.json) {
    fmt::print("{}", inspection::RenderComparison(comparison));
  } else if (!arguments.zoom.zoom) {
    PrintJson(inspection::ComparisonJson(comparison));
  }
  if (arguments.zoom.zoom) {
    return Zoom(comparison, arguments.zoom, arguments.json);
  }
  return comparison.Equal() ? ExitCode::kPass : ExitCode::kFail;
}

Action DeclareCompare(CLI::App& app) {
  auto arguments = std::make_shared<CompareArguments>();
  AddOption(app, "logs", arguments->files,
            "Two run logs (HDF5 or journals), two dumps of tensors, or two "
            "folders, whose logs of the same arm and seed are compared")
      .Required()
      .TypeName(kLogFile)
      .Count(2);
  AddOption(app, "--tolerance", arguments->tolerance,
            "Values agree if they differ by no more than this share of "
            "the larger; without it, to the bit. Of tensors it looks at "
            "l2_norm, mean (share of the root mean square), cur_amax, "
            "std, and if both runs quantise at mse, underflows% and "
            "saturated% (share of 100), scale_inv_min and scale_inv_max")
      .NumberIn(0.0, 1.0);
  DeclareJson(app, arguments->json,
              "of the logs, or with --zoom of the dumps if there is anything "
              "to zoom into");
  arguments->zoom.Declare(app);
  Describe(
      app,
      "Compare two run logs; names the first step and, in the order of "
      "computation, the first tensor that differs. Exit code 0 if equal, 1 if "
      "not");
  return [arguments] { return Compare(*arguments); };
}

}  // namespace

extern constinit const Command kCommand_compare = {
    "compare", "Find the first step at which two logs differ",
    "isoloss compare runs/demo/bf16-seed1.h5 "
    "runs/demo/mxfp8-seed1.h5",
    &DeclareCompare};

}  // namespace isoloss::cli
