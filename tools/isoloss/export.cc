// isoloss export: a run log or probe log as CSV or JSON lines.

#include <memory>
#include <string>

#include "arguments.h"
#include "commands.h"
#include "isoloss/campaign/export_tables.h"
#include "value_words.h"

namespace isoloss::cli {

namespace {

Action Declare(CLI::App& app) {
  struct Arguments {
    campaign::ExportPlan plan;
    std::string format = "csv";
  };
  auto arguments = std::make_shared<Arguments>();
  AddOption(app, "log", arguments->plan.log,
            "Run log or probe log (HDF5), journal, or a folder of run logs")
      .Required()
      .TypeName(kLogFile);
  AddOption(app, "--format", arguments->format, "How rows are written")
      .OneOf({"csv", "jsonl"})
      .ShowDefault();
  AddOption(app, "--group", arguments->plan.group,
            "Group of the log: steps, parameters, tensors, moe, exchange, "
            "exchange_pairs, eval or events; of a probe log cases, tensors, "
            "plain_steps, oracle, routing, precision or routing_flips; "
            "without it steps or oracle, or with --out all that have rows");
  AddOption(app, "--out", arguments->plan.out,
            "File to write in place of standard output; a folder if no "
            "--group is given")
      .TypeName(kAnyFile);
  Describe(
      app,
      "Write a run log as CSV or JSON lines, one row per step; in CSV, tensors "
      "and parameters have one per step and name. Numbers read back to the "
      "same bits; NaN and infinities are NaN, Infinity and "
      "-Infinity, in JSON as strings");
  return [arguments] {
    arguments->plan.format = arguments->format == "csv"
                                 ? runlog::ExportFormat::kCsv
                                 : runlog::ExportFormat::kJsonl;
    campaign::ExportLog(arguments->plan);
    return ExitCode::kPass;
  };
}

}  // namespace

extern constinit const Command kCommand_export = {
    "export", "Write a run log as CSV or JSON lines",
    "isoloss export runs/mxfp8_vs_bf16/mxfp8-seed1.h5 --format csv "
    "--group parameters",
    &Declare};

}  // namespace isoloss::cli
