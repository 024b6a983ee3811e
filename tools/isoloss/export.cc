// isoloss lab export: a run log or probe log as CSV or JSON lines, or a run log
// as what training programs leave behind.

#include <map>
#include <memory>
#include <string>

#include "arguments.h"
#include "commands.h"
#include "isoloss/base/error.h"
#include "isoloss/campaign/export_run.h"
#include "isoloss/campaign/export_tables.h"
#include "value_names.h"

namespace isoloss::cli {

namespace {

struct ExportArguments {
  campaign::ExportPlan plan;
  std::string format = "csv";
};

void Export(const ExportArguments& arguments) {
  using foreign::RunForm;
  static const std::map<std::string, RunForm> kForms = {
      {"tensorboard", RunForm::kTensorBoard},
      {"wandb-csv", RunForm::kWandbCsv},
      {"wandb-jsonl", RunForm::kWandbJsonl},
      {"torchtitan", RunForm::kTorchtitan}};
  const auto form = kForms.find(arguments.format);
  campaign::ExportPlan plan = arguments.plan;
  if (form == kForms.end()) {
    plan.format = arguments.format == "csv" ? runlog::ExportFormat::kCsv
                                            : runlog::ExportFormat::kJsonl;
    campaign::ExportLog(plan);
    return;
  }
  if (!plan.group.empty()) {
    ThrowError(ErrorKind::kConfig,
               "export: --group {} is given with --format {}, which holds the "
               "whole run. Leave --group out, or give --format csv or jsonl.",
               ShownValue(plan.group), arguments.format);
  }
  campaign::ExportRun({plan.log, form->second, plan.out});
}

Action DeclareExport(CLI::App& app) {
  auto arguments = std::make_shared<ExportArguments>();
  AddOption(app, "log", arguments->plan.log,
            "Run log or probe log (HDF5), journal, or a folder of run logs")
      .Required()
      .TypeName(kLogFile);
  AddOption(
      app, "--format", arguments->format,
      "csv and jsonl are tables of the log. The others have losses, gradient "
      "norms, speeds and held-out losses only. tensorboard: an event "
      "file in the folder --out, numbers in FP32. wandb-csv, "
      "wandb-jsonl: a history as W&B has it, numbers to the bit. "
      "torchtitan: its lines, losses with 5 decimals, gradient norms and "
      "held-out losses with 4, no learning rate, no memory")
      .OneOf({"csv", "jsonl", "tensorboard", "wandb-csv", "wandb-jsonl",
              "torchtitan"})
      .ShowDefault();
  AddOption(app, "--group", arguments->plan.group,
            "Group of the log: steps, parameters, tensors, moe, exchange, "
            "exchange_pairs, eval or events; of a probe log cases, tensors, "
            "plain_steps, oracle, routing, precision or routing_flips; "
            "without it steps or oracle, or with --out all that have rows");
  AddOption(app, "--out", arguments->plan.out,
            "File to write in place of standard output; a folder for all "
            "groups, for an event file and for several logs")
      .TypeName(kAnyFile);
  Describe(
      app,
      "Write a run log as CSV or JSON lines, one row per step; in CSV, tensors "
      "and parameters have one per step and name. Numbers read back to the "
      "same bits; NaN and infinities are NaN, Infinity and "
      "-Infinity, in JSON as strings. Or write it as TensorBoard, W&B or "
      "torchtitan leave a run, with torchtitan's names");
  return [arguments] {
    Export(*arguments);
    return ExitCode::kPass;
  };
}

}  // namespace

extern constinit const Command kCommand_export = {
    "export", "Write a run log as a table or for other programs",
    "isoloss lab export runs/mxfp8_vs_bf16/mxfp8-seed1.h5 --format csv "
    "--group parameters",
    &DeclareExport};

}  // namespace isoloss::cli
