// Implements `isoloss gate`, which gives a verdict on logs of any program.

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "commands.h"
#include "foreign_arguments.h"
#include "isoloss/base/error.h"
#include "isoloss/document/text.h"
#include "isoloss/gate/policy.h"
#include "isoloss/logs/foreign_logs.h"
#include "isoloss/logs/log_files.h"
#include "isoloss/report/policy_document.h"
#include "isoloss/report/terminal_width.h"
#include "isoloss/verdicts/judge_arms.h"
#include "isoloss/verify/seed_looks.h"
#include "json_output.h"
#include "value_names.h"
#include "verdict_arguments.h"

namespace isoloss::cli {

namespace {

ExitCode ShowKeys(const ReportArguments& arguments) {
  const document::Document keys = report::PolicyKeysDocument();
  if (arguments.json) {
    PrintJson(document::ToJson(keys));
    return ExitCode::kPass;
  }
  document::TextStyle style = report::TerminalStyle(arguments.ascii);
  style.width =
      std::min(style.width, report::TerminalWidth().value_or(style.width));
  fmt::print("{}", document::RenderText(keys, style));
  return ExitCode::kPass;
}

struct GateArguments {
  std::vector<std::filesystem::path> logs;
  std::vector<std::filesystem::path> against;
  std::string baseline;
  std::string control;
  PolicyArguments policy;
  EvidenceArguments evidence;
  ForeignArguments foreign;
  std::filesystem::path out;
  ReportArguments report;
  bool keys = false;
};

/// Reads logs and evidence. Logs that isoloss did not write are aligned.
verdicts::JudgedRuns ReadJudged(const GateArguments& arguments,
                                const gate::Policy& policy) {
  const bool whole = !arguments.against.empty() ||
                     policy.question == compare::Question::kRegression;
  verdicts::JudgedRuns judged{
      .runs =
          logs::ReadRuns(arguments.logs, arguments.foreign.read,
                         whole ? logs::Keep::kAll : logs::Keep::kForPrecision),
      .approved = logs::ReadRuns(arguments.against, arguments.foreign.read),
      .evidence = arguments.evidence.Read()};
  arguments.foreign.RequireUse(judged.runs);
  if (judged.approved.empty() && arguments.baseline.empty()) {
    judged.approved = logs::ApprovedOf(judged.runs, judged.evidence);
  }
  logs::AlignForeignRuns(judged.runs, judged.approved,
                         arguments.foreign.Alignment());
  return judged;
}

std::vector<gate::Judgement> Judge(const GateArguments& arguments,
                                   const gate::Policy& policy,
                                   verdicts::JudgedRuns& judged) {
  if (!judged.approved.empty()) {
    return verdicts::JudgeAgainstApproved(judged.runs, judged.approved, policy,
                                          judged.evidence);
  }
  const std::string baseline_arm =
      arguments.baseline.empty() ? compare::BaselineArm(judged.runs.front())
                                 : arguments.baseline;
  if (policy.question == compare::Question::kPrecision) {
    judged.evidence.looks = verify::LooksBeside(
        arguments.logs, judged.runs, baseline_arm, policy, arguments.out);
  }
  return verdicts::JudgeArms(judged.runs, baseline_arm, policy, judged.evidence,
                             arguments.control.empty()
                                 ? std::nullopt
                                 : std::optional(arguments.control));
}

bool AreOwn(const std::vector<compare::Run>& runs) {
  return std::ranges::all_of(runs, [](const compare::Run& run) {
    return run.log.provenance.Knows(runlog::Fact::kExperiment);
  });
}

ExitCode Gate(GateArguments& arguments) {
  if (arguments.keys) return ShowKeys(arguments.report);
  arguments.report.ci.Begin();
  const std::filesystem::path& file = arguments.policy.file;
  gate::Policy policy = arguments.policy.Chosen(
      file.empty() ? gate::Policy{} : gate::ReadPolicy(file));
  verdicts::JudgedRuns judged = ReadJudged(arguments, policy);
  if (judged.approved.empty() && AreOwn(judged.runs)) {
    policy = verdicts::ForPrecision(policy, judged.runs);
  }
  const auto judgements = Judge(arguments, policy, judged);
  return ReportVerdicts(judgements, judged, arguments.report, arguments.out,
                        arguments.logs.front());
}

/// Declares the logs, and the logs or evidence that they are judged against.
Option DeclareLogs(CLI::App& app, GateArguments& arguments) {
  const Option logs = AddOption(
      app, "logs", arguments.logs,
      "Run logs (HDF5) of two or more arms, one file per seed; a folder "
      "stands for the run logs in it. Logs of other programs as isoloss "
      "import reads them; ARM=FILE names the arm of their runs");
  logs.Required().TypeName(kLogFile);
  AddOption(app, "--baseline", arguments.baseline,
            "Arm to judge the others against (default: the "
            "experiment's first arm, as the logs say)");
  AddOption(app, "--against", arguments.against,
            "Approved logs, or folders of them: judge each arm against "
            "its own earlier runs "
            "(policy question `regression`)")
      .TypeName(kLogFile)
      .Excludes("--baseline");
  AddOption(app, "--control", arguments.control,
            "Arm that must come out worse, else there is no PASS (default: "
            "the experiment's `gate.control`, as the logs say)")
      .Excludes("--against");
  return logs;
}

Action DeclareGate(CLI::App& app) {
  auto arguments = std::make_shared<GateArguments>();
  const Option logs = DeclareLogs(app, *arguments);
  arguments->evidence.Declare(app);
  arguments->foreign.Declare(app);
  arguments->policy.Declare(app, "");
  AddOption(app, "--out", arguments->out,
            "Folder that gets verdict.json and report.html")
      .TypeName(kFolder);
  arguments->report.Declare(app, "gate");
  AddFlag(app, "--keys", arguments->keys,
          "Instead of a verdict: print the keys of a policy with their "
          "defaults, meanings and values")
      .Waives(logs)
      .Excludes("logs")
      .Excludes("--against")
      .Excludes("--policy")
      .Excludes("--out");
  return [arguments] { return Gate(*arguments); };
}

}  // namespace

extern constinit const Command kCommand_gate = {
    "gate", "Judge run logs: pass, fail, inconclusive or invalid",
    "isoloss gate runs/demo/*.h5", &DeclareGate};

}  // namespace isoloss::cli
