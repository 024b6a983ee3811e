// isoloss study widths: do quantisation errors of narrow models foretell those
// of a wide one?

#include "isoloss/report/widths.h"

#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "arguments.h"
#include "commands.h"
#include "isoloss/base/atomic_file.h"
#include "isoloss/base/error.h"
#include "isoloss/campaign/log_files.h"
#include "isoloss/compare/width_transfer.h"
#include "json_output.h"
#include "study_arguments.h"

namespace isoloss::cli {
namespace {

namespace fs = std::filesystem;

struct WidthsArguments {
  std::vector<fs::path> logs;
  std::string arm;
  std::string out;
  bool json = false;
};

std::vector<compare::Run> RunsOfChosenArm(const WidthsArguments& arguments) {
  std::vector<compare::Run> runs = campaign::ReadRuns(arguments.logs);
  if (arguments.arm.empty()) return runs;
  std::erase_if(runs, [&](const compare::Run& run) {
    return run.log.provenance.arm != arguments.arm;
  });
  if (runs.empty()) {
    ThrowError(ErrorKind::kConfig,
               "--arm {}: no log is of that arm. Give one that the logs have.",
               ShownValue(arguments.arm));
  }
  return runs;
}

ExitCode Widths(const WidthsArguments& arguments) {
  const compare::WidthTransfer transfer =
      compare::CompareWidths(RunsOfChosenArm(arguments));
  const std::string json = report::RenderWidthsJson(transfer);
  if (!arguments.out.empty()) {
    fs::create_directories(arguments.out);
    const fs::path folder = arguments.out;
    WriteFileAtomically(folder / "widths.json", json);
    WriteFileAtomically(folder / "widths.svg",
                        report::RenderWidthsSvg(transfer));
  }
  if (arguments.json) {
    PrintJsonText(json);
    return ExitCode::kPass;
  }
  PrintProse(stdout, report::RenderWidths(transfer));
  if (!arguments.out.empty()) {
    fmt::print("Wrote {}/widths.json, widths.svg\n", arguments.out);
  }
  return ExitCode::kPass;
}

Action DeclareWidths(CLI::App& app) {
  auto arguments = std::make_shared<WidthsArguments>();
  AddOption(app, "logs", arguments->logs,
            "Run logs of one arm at several widths, or folders of them; the "
            "widest is predicted from the others")
      .Required();
  AddOption(app, "--arm", arguments->arm,
            "Take the logs of this arm (default: all)");
  AddOption(app, "--out", arguments->out,
            "Folder for widths.json and widths.svg (default: none is written)")
      .TypeName("FOLDER");
  DeclareJson(app, arguments->json, "the content of widths.json");
  return [arguments] { return Widths(*arguments); };
}

}  // namespace

extern constinit const Command kCommand_widths = {
    "widths", "Predict the errors of wide models from narrow ones",
    "isoloss study widths runs/width_128 runs/width_256 runs/width_512 "
    "runs/layer_of_16b --arm mxfp8",
    &DeclareWidths};

}  // namespace isoloss::cli
