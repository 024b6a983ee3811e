// isoloss compare: two logs or two dumps side by side; differences, no verdict.

#include <fmt/format.h>

#include <memory>
#include <optional>

#include "commands.h"
#include "compare_dumps.h"
#include "compare_text.h"
#include "compare_zoom.h"
#include "isoloss/base/error.h"
#include "open_log.h"

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
  OpenedLog opened = OpenLog(file);
  if (!opened.note.empty()) {
    fmt::print(stderr, "isoloss: {}\n", opened.note);
  }
  return {file.string(), std::move(opened.log)};
}

/// True for two dumps, false for two logs.
bool AreDumps(const std::vector<fs::path>& files) {
  const bool first = IsTensorDump(files[0]);
  const bool second = IsTensorDump(files[1]);
  if (first == second) return first;
  ThrowError(ErrorKind::kFormat,
             "compare: {} is a dump of tensors, {} is none, but both must be "
             "run logs or both dumps. Give two of one kind.",
             files[first ? 0 : 1].string(), files[first ? 1 : 0].string());
}

ExitCode Compare(const CompareArguments& arguments) {
  if (AreDumps(arguments.files)) {
    if (arguments.zoom.zoom) {
      ThrowError(ErrorKind::kConfig,
                 "compare: --zoom is given with 2 dumps, but it makes dumps of "
                 "2 run logs. Leave it out.");
    }
    return CompareDumpFiles(arguments.files[0], arguments.files[1],
                            arguments.json);
  }
  const compare::Run a = OpenRun(arguments.files[0]);
  const compare::Run b = OpenRun(arguments.files[1]);
  const LogComparison comparison = CompareLogs(a, b, {arguments.tolerance});
  if (!arguments.json) {
    PrintComparison(comparison);
  } else if (!arguments.zoom.zoom) {
    PrintComparisonJson(comparison);
  }
  if (arguments.zoom.zoom) {
    return Zoom(comparison, arguments.zoom, arguments.json);
  }
  return comparison.Equal() ? ExitCode::kPass : ExitCode::kFail;
}

}  // namespace

Action DeclareCompare(CLI::App& app) {
  auto arguments = std::make_shared<CompareArguments>();
  app.add_option("logs", arguments->files,
                 "Two run logs (HDF5 or journals), or two dumps of tensors")
      ->required()
      ->expected(2);
  app.add_option("--tolerance", arguments->tolerance,
                 "Values agree if they differ by no more than this share of "
                 "the larger; without it, to the bit. Of tensors it looks at "
                 "l2_norm, mean (share of the root mean square), cur_amax, "
                 "std, and if both runs quantise at mse, underflows% and "
                 "saturated% (share of 100), scale_inv_min and scale_inv_max "
                 "(always exact)")
      ->check(CLI::Range(0.0, 1.0));
  app.add_flag("--json", arguments->json,
               "Print a JSON object: of the logs, or with --zoom of the dumps "
               "if there is anything to zoom into");
  arguments->zoom.Declare(app);
  app.description(
      "Compare two run logs; names the first step and, in the order of "
      "computation, the first tensor that differs. Exit code 0 if equal, 1 if "
      "not");
  return [arguments] { return Compare(*arguments); };
}

}  // namespace isoloss::cli
