// Implements `isoloss layouts`, which compares recorded steps of two parallel
// layouts.

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "arguments.h"
#include "ci_arguments.h"
#include "commands.h"
#include "isoloss/layouts/comparison.h"
#include "isoloss/report/heartbeat.h"
#include "isoloss/report/terminal_width.h"
#include "json_output.h"
#include "module_arguments.h"
#include "value_names.h"

namespace isoloss::cli {
namespace {

struct LayoutsArguments {
  layouts::LayoutsRequest request;
  bool all = false;
  bool json = false;
  CiArguments ci;
};

Json TensorJson(const layouts::TensorResult& tensor) {
  Json json{{"step", tensor.step},
            {"type", tensor.type},
            {"module", tensor.module},
            {"tensor", tensor.tensor},
            {"status", layouts::StatusName(tensor.status)},
            {"elements", tensor.elements},
            {"different", tensor.different}};
  document::PutNumber(json, "relative", tensor.relative);
  document::PutNumber(json, "bound", tensor.bound);
  json["mistake"] = tensor.mistake;
  json["where"] = tensor.where;
  json["text"] = tensor.text;
  return json;
}

Json LayoutsJson(const layouts::LayoutsComparison& comparison, ExitCode code) {
  Json json{{"outcome", system::OutcomeName(code)},
            {"exit_code", static_cast<int>(code)},
            {"recipe", comparison.recipe},
            {"a", comparison.a.Layout()},
            {"b", comparison.b.Layout()},
            {"steps", comparison.steps},
            {"first", nullptr},
            {"tensors", Json::array()},
            {"notes", comparison.notes}};
  if (const layouts::TensorResult* first = comparison.First()) {
    json["first"] = TensorJson(*first);
  }
  for (const layouts::TensorResult& tensor : comparison.tensors) {
    json["tensors"].push_back(TensorJson(tensor));
  }
  return json;
}

document::Status StatusOf(layouts::Status status) {
  switch (status) {
    case layouts::Status::kNotExplained:
      return document::Status::kFailure;
    case layouts::Status::kNotJudged:
      return document::Status::kInconclusive;
    default:
      return document::Status::kPass;
  }
}

/// Returns a check for each tensor that is not explained or not judged.
document::Result ResultOf(const layouts::LayoutsComparison& comparison,
                          ExitCode code) {
  document::Result result = {
      .name = "layouts",
      .file = comparison.b.name,
      .status = system::StatusOf(code),
      .outcome = system::OutcomeName(code),
      .exit_code = static_cast<int>(code),
      .headline = layouts::SummaryOf(comparison),
      .subject =
          fmt::format("{} against {}", comparison.b.name, comparison.a.name)};
  for (const layouts::TensorResult& tensor : comparison.tensors) {
    const document::Status status = StatusOf(tensor.status);
    if (status == document::Status::kPass) continue;
    result.checks.push_back(
        {.group = fmt::format("step {}", tensor.step),
         .name = fmt::format("{} {}", tensor.module, tensor.tensor),
         .status = status,
         .outcome = layouts::StatusName(tensor.status),
         .statement = tensor.text,
         .numbers = {{"relative", tensor.relative, ""}}});
  }
  return result;
}

ExitCode CompareLayouts(LayoutsArguments& arguments) {
  arguments.ci.Begin();
  Executor executor(AvailableProcessors());
  layouts::LayoutsRequest request = arguments.request;
  report::Heartbeat heartbeat;
  request.options.progress = [&](const char* what, size_t done, size_t all) {
    heartbeat.Set(fmt::format("layouts: {} of {} {}", done, all, what));
  };
  const layouts::LayoutsComparison comparison =
      layouts::CompareLayouts(request, executor);
  heartbeat.Clear();
  const ExitCode code = comparison.Outcome();
  const document::Report result =
      document::MakeReport(arguments.ci.command(), static_cast<int>(code),
                           {ResultOf(comparison, code)});
  arguments.ci.Write(result);
  if (arguments.json) {
    PrintJson(LayoutsJson(comparison, code));
  } else {
    fmt::print("{}",
               layouts::RenderLayouts(comparison, arguments.all,
                                      report::TerminalStyle(/*ascii=*/false)));
  }
  arguments.ci.Annotate(result);
  return code;
}

Action DeclareLayouts(CLI::App& app) {
  auto arguments = std::make_shared<LayoutsArguments>();
  layouts::LayoutsRequest& request = arguments->request;
  constexpr const char* kPlace =
      "a folder with files of operations of one run, the run as FOLDER/NAME, "
      "or one file";
  AddOption(app, "a", request.a, fmt::format("Reference: {}", kPlace))
      .Required()
      .TypeName(kFolder);
  AddOption(app, "b", request.b,
            fmt::format("The other layout of the model and batch: {}", kPlace))
      .Required()
      .TypeName(kFolder);
  AddOption(app, "--recipe", request.recipe,
            "Recipe of both: a name, or a TOML file. Without it, that of the "
            "files, or bf16")
      .TypeName(kRecipeName);
  DeclareModulePatterns(app, request.options);
  AddFlag(app, "--all", arguments->all,
          "Print the tensors that are equal or explained, too");
  DeclareJson(app, arguments->json, "with every tensor that was compared");
  arguments->ci.Declare(app, "layouts");
  Describe(
      app,
      "Compare recorded steps of one model and batch in two layouts, such as "
      "1 device and tensor-parallel ranks, tensor by tensor. Names the first "
      "operation that no order of summation explains, the shard and the likely "
      "mistake: exit code 1. 4: a tensor could not be judged");
  return [arguments] { return CompareLayouts(*arguments); };
}

}  // namespace

extern constinit const Command kCommand_layouts = {
    "layouts", "Compare recorded steps of two parallel layouts",
    "isoloss layouts runs/one runs/tp2", &DeclareLayouts};

}  // namespace isoloss::cli
