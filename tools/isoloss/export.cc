// Implements `isoloss lab export`, which writes a run log or probe log as CSV
// or JSON lines.

#include <memory>
#include <string>

#include "arguments.h"
#include "commands.h"
#include "isoloss/inspection/export_tables.h"
#include "value_names.h"

namespace isoloss::cli {

namespace {

struct ExportArguments {
  inspection::ExportPlan plan;
  std::string format = "csv";
};

Action DeclareExport(CLI::App& app) {
  auto arguments = std::make_shared<ExportArguments>();
  AddOption(app, "log", arguments->plan.log,
            "Run log or probe log (HDF5), journal, or a folder of run logs")
      .Required()
      .TypeName(kLogFile);
  AddOption(app, "--format", arguments->format, "Format of the tables")
      .OneOf({"csv", "jsonl"})
      .ShowDefault();
  AddOption(app, "--group", arguments->plan.group,
            "Group of the log: steps, parameters, tensors, moe, exchange, "
            "exchange_pairs, eval or events; of a probe log cases, tensors, "
            "plain_steps, oracle, routing, precision or routing_flips; "
            "without it steps or oracle, or with --out all that have rows");
  AddOption(app, "--out", arguments->plan.out,
            "File to write in place of standard output; a folder for all "
            "groups and for several logs")
      .TypeName(kAnyFile);
  Describe(
      app,
      "Write a run log as CSV or JSON lines, one row per step; in CSV, tensors "
      "and parameters have one per step and name. Numbers read back to the "
      "same bits; NaN and infinities are NaN, Infinity and "
      "-Infinity, in JSON as strings");
  return [arguments] {
    inspection::ExportPlan plan = arguments->plan;
    plan.format = arguments->format == "csv" ? runlog::ExportFormat::kCsv
                                             : runlog::ExportFormat::kJsonl;
    inspection::ExportLog(plan);
    return ExitCode::kPass;
  };
}

}  // namespace

extern constinit const Command kCommand_export = {
    "export", "Write a run log as a table",
    "isoloss lab export runs/demo/mxfp8-seed1.h5 --format csv "
    "--group parameters",
    &DeclareExport};

}  // namespace isoloss::cli
