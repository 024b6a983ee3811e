// isoloss gate: a verdict on logs, whoever made them.

#include <memory>

#include "commands.h"
#include "isoloss/base/error.h"
#include "isoloss/gate/policy.h"
#include "judge.h"

namespace isoloss::cli {

Action DeclareGate(CLI::App& app) {
  struct Arguments {
    std::vector<std::filesystem::path> logs;
    std::string baseline;
    std::string policy;
    std::string out;
    ReportArguments report;
  };
  auto arguments = std::make_shared<Arguments>();
  app.add_option("logs", arguments->logs,
                 "Run logs (HDF5) of two or more arms, one file per seed")
      ->required();
  app.add_option("--baseline", arguments->baseline,
                 "Arm to judge the others against (default: the experiment's "
                 "first arm, as the logs say)");
  app.add_option("--policy", arguments->policy, "Policy file (TOML)");
  app.add_option("--out", arguments->out, "Folder that gets verdict.json");
  arguments->report.Declare(app);
  return [arguments] {
    const gate::Policy policy = arguments->policy.empty()
                                    ? gate::Policy{}
                                    : gate::ReadPolicy(arguments->policy);
    const std::vector<compare::Run> runs = ReadRuns(arguments->logs);
    const std::string baseline = arguments->baseline.empty()
                                     ? runs.front().log.provenance.baseline_arm
                                     : arguments->baseline;
    return JudgeAndReport(runs, baseline, policy, arguments->report,
                          arguments->out);
  };
}

}  // namespace isoloss::cli
