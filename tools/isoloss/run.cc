// isoloss run: train arms, write logs, judge nothing.

#include <fmt/format.h>

#include <memory>

#include "commands.h"
#include "experiment_command.h"

namespace isoloss::cli {

Action DeclareRun(CLI::App& app) {
  struct Arguments : ExperimentArguments {
    std::string arm;
    bool print_steps = false;
  };
  auto arguments = std::make_shared<Arguments>();
  arguments->Declare(app);
  app.add_option("--arm", arguments->arm, "Train this arm only");
  app.add_flag(
      "--print-steps", arguments->print_steps,
      "Print each step as torchtitan does (step, loss, grad_norm, tps) "
      "instead of progress bars; a printed step is on disk");
  return [arguments] {
    const train::Experiment experiment = arguments->Load();
    if (arguments->dry_run) {
      PrintPlan(experiment);
      return ExitCode::kPass;
    }
    const ExecutedRuns executed =
        TrainArms(experiment, arguments->Folder(experiment),
                  {.leftovers = arguments->leftovers(),
                   .only_arm = arguments->arm,
                   .print_steps = arguments->print_steps});
    if (!SpeaksForTheJob()) return ExitCode::kPass;
    for (const std::filesystem::path& log : executed.logs) {
      if (!log.empty()) fmt::print("{}\n", log.string());
    }
    return executed.interrupted ? ExitCode::kInterrupted : ExitCode::kPass;
  };
}

}  // namespace isoloss::cli
