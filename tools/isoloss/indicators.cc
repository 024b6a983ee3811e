// isoloss study indicators: what announced the divergences of a stress study.

#include "isoloss/report/indicators.h"

#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "arguments.h"
#include "commands.h"
#include "isoloss/base/printable.h"
#include "isoloss/studies/indicators.h"
#include "json_output.h"
#include "study_arguments.h"

namespace isoloss::cli {
namespace {

struct IndicatorArguments {
  std::filesystem::path folder;
  bool json = false;
};

/// It judges indicators, not recipes: whatever it finds, it passes. Without a
/// divergence that could have been announced it is inconclusive.
ExitCode ShowIndicators(const IndicatorArguments& arguments) {
  const indicators::IndicatorStatement statement =
      studies::JudgeIndicatorsOf(arguments.folder);
  studies::WriteIndicators(arguments.folder, statement);
  if (arguments.json) {
    PrintJsonText(report::RenderIndicatorsJson(statement));
  } else {
    PrintProse(stdout, report::RenderIndicators(statement));
    fmt::print("Wrote {}/indicators.json, indicators.svg\n",
               Printable(arguments.folder.string()));
  }
  return statement.Diverged(/*judged=*/true) > 0 ? ExitCode::kPass
                                                 : ExitCode::kInconclusive;
}

Action DeclareIndicators(CLI::App& app) {
  auto arguments = std::make_shared<IndicatorArguments>();
  AddOption(
      app, "folder", arguments->folder,
      "Folder of a study that `isoloss study stress --indicators` trained")
      .Required()
      .TypeName("FOLDER");
  DeclareJson(app, arguments->json, "the content of indicators.json");
  return [arguments] { return ShowIndicators(*arguments); };
}

}  // namespace

extern constinit const Command kCommand_indicators = {
    "indicators", "Say what announced divergences under stress",
    "isoloss study indicators runs/mxfp8_vs_bf16-stress", &DeclareIndicators};

}  // namespace isoloss::cli
