#include "verdict_arguments.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

#include "isoloss/base/printable.h"
#include "isoloss/campaign/train_arms.h"
#include "isoloss/document/brief.h"
#include "isoloss/document/text.h"
#include "isoloss/logs/log_files.h"
#include "isoloss/report/json.h"
#include "isoloss/report/terminal_width.h"
#include "isoloss/report/verdict_document.h"
#include "isoloss/report/verdict_result.h"
#include "isoloss/verdicts/judge_arms.h"
#include "json_output.h"
#include "value_names.h"

namespace isoloss::cli {
void EvidenceArguments::Declare(CLI::App& app) {
  AddOption(app, "--probe", probes,
            "Probe logs (isoloss lab probe) of the judged runs, or folders of "
            "them")
      .TypeName(kHdf5File);
  AddOption(app, "--ensemble", ensembles,
            "Null ensembles (isoloss lab ensemble build), or folders of them: "
            "benign ones judge regression, those of seeds precision")
      .TypeName(kHdf5File);
}

logs::EvidenceFiles EvidenceArguments::Read() const {
  logs::EvidenceFiles evidence;
  logs::ReadProbes(logs::ProbeFiles(probes), evidence);
  logs::ReadEnsembles(logs::EnsembleFiles(ensembles), evidence);
  return evidence;
}

void PolicyArguments::Declare(CLI::App& app, const std::string& in_place) {
  AddOption(app, "--policy", file, "Policy file (TOML)" + in_place)
      .TypeName(kTomlFile);
  AddOption(app, "--margin", margin_percent,
            "Largest difference that is accepted, percent of the baseline's "
            "loss, in place of the policy's margin_percent (default: 0.1 for "
            "precision of isoloss' own runs, else 0.25)")
      .NumberIn(1e-6, 99);
}

gate::Policy PolicyArguments::Chosen(gate::Policy policy) const {
  if (!margin_percent) return policy;
  return gate::WithMargin(std::move(policy), *margin_percent, "--margin");
}

Option ReportArguments::Declare(CLI::App& app, const std::string& command) {
  AddFlag(app, "--ascii", ascii, "Draw with 7-bit characters only");
  AddFlag(
      app, "--verbose", verbose,
      "Print every check, figure, chart and warning, not only what decided");
  const Option option = DeclareJson(app, json, "that of verdict.json");
  ci.Declare(app, command);
  return option;
}

namespace {

document::Report CiReportOf(const std::vector<gate::Judgement>& judgements,
                            const CiArguments& ci, ExitCode code,
                            const std::filesystem::path& file) {
  std::vector<document::Result> results;
  for (const gate::Judgement& judgement : judgements) {
    results.push_back(
        report::ResultOf(judgement, verdicts::RepositoryPath(file)));
  }
  return document::MakeReport(ci.command(), static_cast<int>(code),
                              std::move(results));
}

void PrintVerdicts(const std::vector<gate::Judgement>& judgements,
                   const ReportArguments& arguments) {
  const document::TextStyle style = report::TerminalStyle(arguments.ascii);
  if (!arguments.verbose) {
    std::vector<document::Result> results;
    for (const gate::Judgement& judgement : judgements) {
      results.push_back(report::BriefResultOf(judgement, style));
    }
    fmt::print("{}", document::RenderBriefs(results, style));
    return;
  }
  for (const gate::Judgement& judgement : judgements) {
    if (&judgement != &judgements.front()) fmt::print("\n");
    fmt::print("{}",
               document::RenderText(report::DocumentOf(judgement), style));
  }
}

}  // namespace

ExitCode ReportVerdicts(const std::vector<gate::Judgement>& judgements,
                        const verdicts::JudgedRuns& judged,
                        const ReportArguments& arguments,
                        const std::filesystem::path& folder,
                        const std::filesystem::path& file) {
  const auto code =
      static_cast<ExitCode>(gate::ExitCode(gate::Severest(judgements)));
  const document::Report ci = CiReportOf(judgements, arguments.ci, code, file);
  // Files come first: a verdict that can't be written must not be printed.
  std::vector<std::string> files;
  if (!folder.empty()) {
    files = verdicts::WriteVerdicts(judgements, judged, folder);
  }
  arguments.ci.Write(ci);
  if (arguments.json) {
    PrintJsonText(report::RenderJson(judgements));
  } else {
    PrintVerdicts(judgements, arguments);
  }
  if (!folder.empty()) {
    std::fflush(stdout);
    fmt::print(stderr, "isoloss: results are in {}: {}.\n",
               Printable(folder.string()), fmt::join(files, ", "));
  }
  arguments.ci.Annotate(ci);
  return code;
}

ExitCode ReportUnjudged(const std::string& why,
                        const ReportArguments& arguments) {
  constexpr ExitCode kCode = ExitCode::kPass;
  if (!campaign::SpeaksForTheJob()) return kCode;
  const document::Report ci = {
      arguments.ci.command(),
      static_cast<int>(kCode),
      {{.name = arguments.ci.command(),
        .file = "",
        .status = document::Status::kSkipped,
        .outcome = "NOT JUDGED",
        .headline = fmt::format("{}, so there is no verdict.", why)}}};
  arguments.ci.Write(ci);
  if (arguments.json) {
    PrintJson({{"judged", false},
               {"reason", why},
               {"exit_code", static_cast<int>(kCode)}});
  }
  arguments.ci.Annotate(ci);
  return kCode;
}

}  // namespace isoloss::cli
