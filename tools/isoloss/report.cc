// Implements `isoloss report`, which shows runs, verdicts and evidence as one
// HTML page.

#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "arguments.h"
#include "commands.h"
#include "isoloss/base/error.h"
#include "isoloss/base/printable.h"
#include "isoloss/verdicts/report_files.h"
#include "isoloss/verdicts/report_page.h"
#include "json_output.h"

namespace isoloss::cli {
namespace {

namespace fs = std::filesystem;

struct ReportPageArguments {
  verdicts::ReportPlan plan;
  fs::path out = "report.html";
  bool json = false;
};

/// Returns every file or folder that the report reads.
std::vector<fs::path> Inputs(const verdicts::ReportPlan& plan) {
  std::vector<fs::path> inputs = plan.paths;
  inputs.insert(inputs.end(), plan.against.begin(), plan.against.end());
  inputs.push_back(plan.verdict);
  return inputs;
}

ExitCode Report(const ReportPageArguments& arguments) {
  verdicts::CheckReportPage(arguments.out, Inputs(arguments.plan));
  const verdicts::ReportFiles files = verdicts::ReadReportFiles(arguments.plan);
  const size_t bytes =
      verdicts::WriteReportPage(files.Content(), arguments.out);
  if (arguments.json) {
    PrintJson({{"page", arguments.out.string()},
               {"bytes", bytes},
               {"runs", files.runs.size()},
               {"verdicts", files.verdicts.size()},
               {"probes", files.evidence.probes.size()},
               {"ensembles", files.evidence.ensembles.size()},
               {"notes", files.notes}});
    return ExitCode::kPass;
  }
  for (const std::string& note : files.notes) {
    fmt::print(stderr, "isoloss: {}\n", Printable(note));
  }
  fmt::print(
      "{}: runs {}, verdicts {}, probe logs {}, null ensembles {}; {} "
      "bytes\n",
      Printable(arguments.out.string()), files.runs.size(),
      files.verdicts.size(), files.evidence.probes.size(),
      files.evidence.ensembles.size(), bytes);
  return ExitCode::kPass;
}

Action DeclareReport(CLI::App& app) {
  auto arguments = std::make_shared<ReportPageArguments>();
  verdicts::ReportPlan& plan = arguments->plan;
  AddOption(app, "paths", plan.paths,
            "Run logs, journals, probe logs, null ensembles, two dumps of "
            "tensors, or folders of them; of a folder that `isoloss verify` "
            "wrote, its verdicts, probes and dumps, too")
      .Required();
  AddOption(app, "--out", arguments->out, "File that gets the page")
      .ShowDefault();
  AddOption(app, "--baseline", plan.baseline,
            "Arm that the others are compared with, where no verdict says "
            "(default: the experiment's first arm, as the logs say)");
  AddOption(app, "--against", plan.against,
            "Approved logs, or folders of them, that a verdict on a "
            "regression was given against");
  AddOption(app, "--verdict", plan.verdict,
            "A verdict.json, in place of those that lie in folders");
  DeclareJson(app, arguments->json, "of what was read and where the page is");
  Describe(app,
           "Write one HTML page that shows runs, verdicts and their evidence. "
           "It needs no other file and no network");
  return [arguments] { return Report(*arguments); };
}

}  // namespace

extern constinit const Command kCommand_report = {
    "report", "Write an HTML page of runs and verdicts",
    "isoloss report runs/demo --out demo.html", &DeclareReport};

}  // namespace isoloss::cli
