// isoloss_qualification: the known bugs that can be planted in a run, and what
// the gate catches of them. docs/gate-evidence.md has its figures.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <string>

#include "isoloss/base/error.h"
#include "isoloss/base/printable.h"
#include "isoloss/system/exit_code.h"
#include "isoloss/system/interrupt.h"
#include "qualification/kill_matrix_plan.h"
#include "qualification/kill_matrix_report.h"

namespace isoloss::qualification {
namespace {

using system::ExitCode;

void PrintMutants() {
  std::string group;
  for (const Mutant& mutant : AllMutants()) {
    if (mutant.group != group) fmt::print("{}\n", mutant.group);
    group = mutant.group;
    fmt::print("  {:<32}  {:<20}  {}\n", mutant.name, ClassName(mutant.kind),
               mutant.what);
    for (const std::string& more : {mutant.note, mutant.link}) {
      if (!more.empty()) fmt::print("  {:<54}  {}\n", "", more);
    }
  }
}

/// 1 if a bug got through or a benign run did not; 4 if there was neither.
ExitCode CodeOf(const KillMatrix& matrix) {
  const Rate score = matrix.Score();
  const Rate alarms = matrix.FalseAlarms();
  if (score.count < score.of || alarms.count > 0) return ExitCode::kFail;
  return score.of + alarms.of > 0 ? ExitCode::kPass : ExitCode::kInconclusive;
}

ExitCode Measure(const KillMatrixRequest& request) {
  const KillMatrixPlan plan = PlanKillMatrix(request);
  const KillMatrixResult result = RunKillMatrix(plan, system::InterruptFlag());
  if (result.interrupted) {
    fmt::print(stderr,
               "isoloss_qualification: interrupted by a signal. The same "
               "command goes on.\n");
    return ExitCode::kInterrupted;
  }
  WriteKillMatrix(plan, result.matrix);
  fmt::print("{}", RenderKillMatrix(result.matrix));
  return CodeOf(result.matrix);
}

void DeclareRun(CLI::App& run, KillMatrixRequest& request) {
  run.add_option("experiment", request.source.file, "Experiment file (TOML)")
      ->required();
  run.add_option("--arm", request.arm, "Arm in which bugs are planted");
  run.add_option("--reference", request.reference,
                 "Ask the question of precision, against this arm");
  run.add_option("--ensemble", request.ensemble,
                 "Null ensemble of the arm (isoloss lab ensemble build)");
  run.add_option("--policy", request.policy, "Gate policy (TOML)");
  run.add_option("--mutants", request.mutants,
                 "Only mutants whose name matches one of these patterns");
  run.add_option("--seeds", request.seeds, "Seeds of each mutant")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  run.add_option("--benign", request.benign_runs,
                 "Benign runs besides, which must all pass")
      ->check(CLI::Range(0, 100'000))
      ->capture_default_str();
  run.add_option("--out", request.out,
                 "Folder that keeps finished cells and gets kill_matrix.json");
}

int Main(int argc, char** argv) {
  CLI::App app("Plants known bugs and measures what the gate catches of them");
  app.require_subcommand(1);
  const CLI::App* const list = app.add_subcommand(
      "list", "Print name, class, error and who reported it");
  CLI::App* const run =
      app.add_subcommand("run", "Measure which of them the gate catches");
  KillMatrixRequest request;
  DeclareRun(*run, request);
  try {
    app.parse(argc, argv);
    ExitCode code = ExitCode::kPass;
    if (list->parsed()) {
      PrintMutants();
    } else {
      code = Measure(request);
    }
    return static_cast<int>(code);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : static_cast<int>(ExitCode::kUsage);
  } catch (const Error& error) {
    fmt::print(stderr, "isoloss_qualification: {}\n",
               PrintableMessage(error.what()));
    return static_cast<int>(ExitCode::kInvalid);
  }
}

}  // namespace
}  // namespace isoloss::qualification

int main(int argc, char** argv) {
  return isoloss::qualification::Main(argc, argv);
}
