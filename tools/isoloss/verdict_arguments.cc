#include "verdict_arguments.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>

#include "isoloss/base/printable.h"
#include "isoloss/campaign/judge_arms.h"
#include "isoloss/campaign/log_files.h"
#include "isoloss/report/json.h"
#include "isoloss/report/terminal.h"
#include "isoloss/report/terminal_width.h"
#include "json_output.h"
#include "value_words.h"

namespace isoloss::cli {
void EvidenceArguments::Declare(CLI::App& app) {
  AddOption(app, "--probe", probes,
            "Probe logs (isoloss probe) of the judged runs, or folders of "
            "them")
      .TypeName(kHdf5File);
  AddOption(app, "--ensemble", ensembles,
            "Null ensembles (isoloss ensemble build), or folders of them: "
            "benign ones judge regression, those of seeds precision")
      .TypeName(kHdf5File);
  AddOption(app, "--power", power,
            "What this gate was measured to catch (isoloss mutants run)")
      .TypeName(kJsonFile);
}

campaign::EvidenceFiles EvidenceArguments::Read() const {
  campaign::EvidenceFiles evidence;
  campaign::ReadProbes(campaign::ProbeFiles(probes), evidence);
  campaign::ReadEnsembles(campaign::EnsembleFiles(ensembles), evidence);
  if (!power.empty()) evidence.power = gate::ReadPowerRecord(power);
  return evidence;
}

Option ReportArguments::Declare(CLI::App& app) {
  AddFlag(app, "--ascii", ascii, "Draw with 7-bit characters only");
  return DeclareJson(app, json, "that of verdict.json");
}

ExitCode ReportVerdicts(const std::vector<gate::Judgement>& judgements,
                        const ReportArguments& arguments,
                        const std::filesystem::path& folder) {
  // First, lest a verdict be printed that is then said not to be written.
  std::vector<std::string> files;
  if (!folder.empty()) files = campaign::WriteVerdicts(judgements, folder);
  if (arguments.json) {
    PrintJsonText(report::RenderJson(judgements));
  } else {
    for (const gate::Judgement& judgement : judgements) {
      fmt::print("{}", report::RenderTerminal(
                           judgement, report::TerminalStyle(arguments.ascii)));
    }
  }
  if (!folder.empty()) {
    std::fflush(stdout);
    fmt::print(stderr, "isoloss: results are in {}: {}.\n",
               Printable(folder.string()), fmt::join(files, ", "));
  }
  gate::Outcome severest = gate::Outcome::kPass;
  for (const gate::Judgement& judgement : judgements) {
    severest = std::max(severest, judgement.outcome);
  }
  return static_cast<ExitCode>(gate::ExitCode(severest));
}

}  // namespace isoloss::cli
