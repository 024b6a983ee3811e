// isoloss run: train arms, write logs, judge nothing.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "commands.h"
#include "experiment_command.h"

namespace isoloss::cli {

Action DeclareRun(CLI::App& app) {
  struct Arguments : ExperimentArguments {
    std::string arm;
    bool print_steps = false;
    std::vector<std::string> dump;
    std::vector<uint64_t> dump_steps;
  };
  auto arguments = std::make_shared<Arguments>();
  arguments->Declare(app);
  app.add_option("--arm", arguments->arm, "Train this arm only");
  app.add_flag(
      "--print-steps", arguments->print_steps,
      "Print each step as torchtitan does (step, loss, grad_norm, tps) "
      "instead of progress bars; a printed step is on disk");
  CLI::Option* dump =
      app.add_option("--dump", arguments->dump,
                     "Store whole the tensors whose names this pattern matches "
                     "(log.dump_tensors), in NAME.dump-STEP.h5; repeatable")
          ->allow_extra_args(false);
  app.add_option("--dump-steps", arguments->dump_steps,
                 "Steps to store them at (log.dump_steps), default 1; "
                 "repeatable")
      ->allow_extra_args(false)
      ->check(CLI::PositiveNumber)
      ->needs(dump);
  return [arguments] {
    // As overrides, so that they are checked like the file.
    if (!arguments->dump.empty()) {
      arguments->overrides.push_back(fmt::format(
          "log.dump_tensors=['{}']", fmt::join(arguments->dump, "', '")));
    }
    if (!arguments->dump_steps.empty()) {
      arguments->overrides.push_back(fmt::format(
          "log.dump_steps=[{}]", fmt::join(arguments->dump_steps, ", ")));
    }
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
    if (executed.interrupted) return ExitCode::kInterrupted;
    return executed.aborted ? ExitCode::kFail : ExitCode::kPass;
  };
}

}  // namespace isoloss::cli
