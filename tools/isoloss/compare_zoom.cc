#include "compare_zoom.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "arguments.h"
#include "compare_dumps.h"
#include "json_output.h"
#include "value_names.h"

namespace isoloss::cli {

void ZoomArguments::Declare(CLI::App& app) {
  const Option flag = AddFlag(
      app, "--zoom", zoom,
      "Run both again up to the first step that differs and show the first "
      "tensor, block and elements that do, and which operation adds error");
  AddOption(app, "--experiment", plan.source.file,
            "Experiment that the logs were made with, for --zoom")
      .TypeName(kTomlFile)
      .Needs("--zoom");
  flag.Needs("--experiment");
  AddOption(app, "--set", plan.source.overrides,
            "section.key=value; overrides the experiment; repeatable")
      .Repeatable()
      .TypeName(kSetting)
      .Needs("--zoom");
  AddOption(app, "--tensors", plan.tensors,
            "Look at tensors whose name holds this; `*` stands for any "
            "characters; repeatable; without it at all")
      .Repeatable()
      .TypeName("PATTERN")
      .Needs("--zoom");
  AddOption(app, "--step", plan.step, "Look at this step")
      .IntegerIn(1, kMostSteps)
      .Needs("--zoom");
  AddOption(app, "--out", plan.out,
            "Folder for the dumps (default: zoom beside the first log)")
      .TypeName(kFolder)
      .Needs("--zoom");
}

ExitCode Zoom(const inspection::LogComparison& comparison,
              const ZoomArguments& arguments, bool json) {
  const inspection::ZoomPlan& plan = arguments.plan;
  inspection::CheckPatterns(comparison, plan.tensors);
  if (!plan.step && !comparison.report.first) {
    if (json) {
      PrintJson(inspection::ComparisonJson(comparison));
    } else {
      fmt::print("No step differs, so there is nothing to zoom into\n");
    }
    return comparison.Equal() ? ExitCode::kPass : ExitCode::kFail;
  }
  const auto dumps = inspection::DumpBothSides(comparison, plan);
  if (!dumps) return ExitCode::kInterrupted;
  if (!json) fmt::print("\n");
  return CompareDumpFiles(dumps->first, dumps->second, json);
}

}  // namespace isoloss::cli
