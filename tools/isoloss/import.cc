// Implements `isoloss import`, which shows what logs of other programs hold.

#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "arguments.h"
#include "commands.h"
#include "isoloss/document/text.h"
#include "isoloss/foreign/read.h"
#include "isoloss/report/foreign_log.h"
#include "json_output.h"
#include "value_names.h"

namespace isoloss::cli {
namespace {

struct ImportArguments {
  std::vector<std::filesystem::path> logs;
  foreign::ReadOptions names;
  bool json = false;
};

ExitCode Import(const ImportArguments& arguments) {
  Json json{{"logs", Json::array()}};
  for (const std::filesystem::path& log : arguments.logs) {
    const auto runs = foreign::ReadLog(log, arguments.names);
    const document::Document shown =
        report::DocumentOf(log.string(), runs, arguments.json);
    if (arguments.json) {
      json["logs"].push_back(document::ToJson(shown));
      continue;
    }
    if (&log != &arguments.logs.front()) fmt::print("\n");
    fmt::print("{}", document::RenderText(shown));
  }
  if (arguments.json) PrintJson(json);
  return ExitCode::kPass;
}

Action DeclareImport(CLI::App& app) {
  auto arguments = std::make_shared<ImportArguments>();
  AddOption(
      app, "logs", arguments->logs,
      "Logs of other programs: text, CSV, JSON, JSON lines, event files of "
      "TensorBoard, files of W&B or SwanLab, or folders of them or MLflow")
      .Required()
      .TypeName(kAnyFile);
  AddOption(app, "--step", arguments->names.step,
            "Column, key or field that counts the steps, of tables (CSV, TSV, "
            "JSON lines) and lines of fields. Default: step, iteration, "
            "global_step and the like");
  AddOption(app, "--loss", arguments->names.loss,
            "Series that is the run's loss, of any log. Default: by the names "
            "that programs use. Of a chart, runs without it are left out");
  DeclareJson(app, arguments->json, "`logs`, each with all values");
  Describe(app,
           "Show what logs of other programs hold: series, steps, digits, and "
           "what one must know before one compares them. The format is told by "
           "the content: torchtitan, Megatron-LM, NeMo, MaxText, DeepSpeed, "
           "OLMo, verl, MLPerf, nanoGPT and nanochat, llm.c, Hugging Face's "
           "Trainer, Lightning, TensorBoard, W&B, SwanLab, MLflow, or a table "
           "with a step. --step and --loss name what a table "
           "calls otherwise");
  return [arguments] { return Import(*arguments); };
}

}  // namespace

extern constinit const Command kCommand_import = {
    "import", "Show what logs of other programs hold",
    "isoloss import train.log metrics.csv", &DeclareImport};

}  // namespace isoloss::cli
