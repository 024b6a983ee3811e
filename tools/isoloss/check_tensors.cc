// Implements `isoloss check-tensors`, which checks recorded operations of any
// trainer against the oracle.

#include "isoloss/inspection/check_tensors.h"

#include <fmt/format.h>

#include <filesystem>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "arguments.h"
#include "commands.h"
#include "isoloss/report/heartbeat.h"
#include "isoloss/report/terminal_width.h"
#include "json_output.h"
#include "module_arguments.h"
#include "value_names.h"

namespace isoloss::cli {
namespace {

struct CheckTensorsArguments {
  inspection::CheckTensorsRequest request;
  std::filesystem::path out;
  std::string sums = "found";
  std::string expect;
  bool all = false;
  bool json = false;
};

Json FindingJson(const inspection::CheckedTensors& checked,
                 const operations::Finding& finding) {
  const runlog::OracleRow row = finding.comparison.Row();
  const operations::OperationFile& file = checked.files[finding.file];
  Json json{{"file", file.path},
            {"step", file.step},
            {"rank", file.rank},
            {"operation", finding.operation},
            {"type", finding.type},
            {"module", finding.module},
            {"part", finding.part},
            {"tensor", finding.tensor},
            {"elements", row.elements},
            {"equal", row.equal},
            {"flips", row.flips},
            {"other", row.other},
            {"sums", finding.sums},
            {"unknown_order", finding.has_unknown_order},
            {"rounded_parts", finding.rounded_parts}};
  if (finding.is_right()) return json;
  json["worst_row"] = row.worst_row;
  json["worst_column"] = row.worst_column;
  document::PutNumber(json, "worst_value", row.worst_value);
  document::PutNumber(json, "worst_expected", row.worst_expected);
  json["text"] = inspection::Sentences(finding);
  if (!finding.explanation) {
    json["explanation"] = nullptr;
    return json;
  }
  const operations::Explanation& why = *finding.explanation;
  json["explanation"] = {
      {"name", why.name},           {"other", why.other},
      {"flips", why.flips},         {"ambiguous", why.is_ambiguous},
      {"runner_up", why.runner_up}, {"runner_up_other", why.runner_up_other}};
  return json;
}

/// Lists the tensors that have elements which are not finite.
Json NonFiniteJson(const inspection::CheckedTensors& checked) {
  Json json = Json::array();
  for (const inspection::NonFiniteTensor& found : checked.non_finite) {
    const operations::OperationFile& file = checked.files[found.file];
    json.push_back({{"file", file.path},
                    {"step", file.step},
                    {"operation", found.operation},
                    {"module", file.operations[found.operation].module},
                    {"tensor", found.tensor},
                    {"elements", found.elements},
                    {"of", found.of}});
  }
  return json;
}

/// Lists what could not be checked.
Json OpenPointsJson(const inspection::CheckedTensors& checked) {
  Json json = Json::array();
  for (const operations::OpenPoint& point : checked.open) {
    const operations::OperationFile& file = checked.files[point.file];
    json.push_back({{"file", file.path},
                    {"step", file.step},
                    {"rank", file.rank},
                    {"module", point.module},
                    {"text", point.text},
                    {"forbids_pass", point.forbids_pass}});
  }
  return json;
}

Json AuditJson(const operations::ModuleAudit& audit) {
  Json json = Json::object();
  for (const precision::GemmRole role : precision::kGemmRoles) {
    const operations::ProductAudit& product =
        audit.products[static_cast<size_t>(role)];
    json[std::string(GemmRoleName(role))] = {
        {"expected", product.is_expected},
        {"found", inspection::AuditName(audit, role)},
        {"evidence", inspection::EvidenceName(product.evidence)}};
  }
  return json;
}

Json CheckedJson(const inspection::CheckedTensors& checked, ExitCode code) {
  Json json{{"outcome", system::OutcomeName(code)},
            {"exit_code", static_cast<int>(code)},
            {"recipe", checked.recipe.name},
            {"findings", Json::array()},
            {"non_finite", NonFiniteJson(checked)},
            {"open", OpenPointsJson(checked)},
            {"modules", Json::array()}};
  for (const operations::Finding& finding : checked.findings) {
    json["findings"].push_back(FindingJson(checked, finding));
  }
  for (const operations::ModuleChoice& choice : checked.modules) {
    json["modules"].push_back({{"module", choice.module},
                               {"quantized", choice.quantized},
                               {"is_named", choice.is_named},
                               {"reason", choice.reason}});
  }
  // Both lists have all linear modules, by name.
  for (size_t i = 0; i < checked.audits.size(); ++i) {
    json["modules"][i]["products"] = AuditJson(checked.audits[i]);
  }
  if (!checked.audits.empty()) json["unexpected"] = checked.unexpected;
  return json;
}

ExitCode CheckTensors(const CheckTensorsArguments& arguments) {
  Executor executor(AvailableProcessors());
  inspection::CheckTensorsRequest request = arguments.request;
  request.options.demands_fp32 = arguments.sums == "fp32";
  request.expects_recipe = !arguments.expect.empty();
  report::Heartbeat heartbeat;
  request.options.progress = [&](const char* what, size_t done, size_t all) {
    heartbeat.Set(fmt::format("check-tensors: {} of {} {}", done, all, what));
  };
  const inspection::CheckedTensors checked =
      inspection::CheckTensors(request, executor);
  heartbeat.Clear();
  const ExitCode code = checked.Outcome();
  if (!arguments.out.empty()) {
    runlog::WriteProbeLog(inspection::ProbeLogOf(checked, arguments.request),
                          arguments.out);
  }
  if (!arguments.json) {
    fmt::print("{}", inspection::RenderChecked(
                         checked, arguments.all,
                         report::TerminalStyle(/*ascii=*/false)));
    return code;
  }
  PrintJson(CheckedJson(checked, code));
  return code;
}

Action DeclareCheckTensors(CLI::App& app) {
  auto arguments = std::make_shared<CheckTensorsArguments>();
  inspection::CheckTensorsRequest& request = arguments->request;
  AddOption(app, "dumps", request.dumps,
            "Files of recorded operations (HDF5), or mappings (TOML) that name "
            "tensors in safetensors or .npy files beside them. With the file "
            "of the step before, operands that are one step old are named")
      .Required()
      .TypeName(kAnyFile);
  AddOption(app, "--recipe", request.recipe,
            "Recipe that the trainer was to follow: a name, or a TOML file")
      .Required()
      .TypeName(kRecipeName);
  DeclareModulePatterns(app, request.options);
  AddFlag(app, "--audit", request.audits,
          "Say of each linear module in which products it was quantised, how "
          "that is known, and which pattern decided");
  AddOption(app, "--expect", arguments->expect,
            "Audit, and fail if a module is not as the recipe says, or if no "
            "pattern names it")
      .OneOf({"recipe"});
  AddOption(app, "--sums", arguments->sums,
            "How products were added up. found: by the tensor cores whose bits "
            "the results have, if there are any. fp32: in FP32, in some order")
      .OneOf({"found", "fp32"})
      .ShowDefault();
  AddOption(app, "--out", arguments->out, "Write a probe log for the gate")
      .TypeName(kHdf5File);
  AddOption(app, "--arm", request.arm,
            "Arm of the probe log, in place of the files'");
  AddOption(app, "--seed", request.seed,
            "Seed of the probe log, in place of the files'")
      .IntegerIn(0, std::numeric_limits<int64_t>::max());
  AddFlag(app, "--all", arguments->all,
          "Print the tensors without others, too, after those that have some");
  DeclareJson(app, arguments->json, "with every tensor that was checked");
  Describe(
      app,
      "Compare what any trainer recorded of a step with a scalar computation "
      "in double precision from the operation's own inputs: codes and scales, "
      "products, routers, exchanges, the loss and AdamW. Where elements differ "
      "that no order of summation explains, the known mistake is named that "
      "explains them best: exit code 1. 4: there was nothing to check");
  return [arguments] { return CheckTensors(*arguments); };
}

}  // namespace

extern constinit const Command kCommand_check_tensors = {
    "check-tensors", "Compare a trainer's recorded tensors with the oracle",
    "isoloss check-tensors run.rank-0.operations-1.h5 --recipe mxfp8_rceil "
    "--all",
    &DeclareCheckTensors};

}  // namespace isoloss::cli
