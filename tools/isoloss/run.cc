// isoloss run: train arms, write logs, judge nothing.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "commands.h"
#include "experiment_command.h"
#include "isoloss/mutants/mutant.h"
#include "isoloss/runlog/reader.h"
#include "isoloss/runlog/writer.h"

namespace isoloss::cli {
namespace {

/// As if the tool that wrote them had been faulty.
void EditLogs(const mutants::Mutant& mutant,
              const std::vector<std::filesystem::path>& logs) {
  for (const std::filesystem::path& path : logs) {
    runlog::RunLog log = runlog::ReadRunLog(path);
    mutant.edit_log(log);
    runlog::WriteRunLog(log, path);
  }
}

}  // namespace

Action DeclareRun(CLI::App& app) {
  struct Arguments : ExperimentArguments {
    std::string arm;
    bool print_steps = false;
    std::string mutant;
    std::vector<std::string> dump;
    std::vector<uint64_t> dump_steps;
  };
  auto arguments = std::make_shared<Arguments>();
  arguments->Declare(app);
  CLI::Option* arm =
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
  app.add_option("--mutant", arguments->mutant,
                 "Plant this known bug in the arm (isoloss mutants list); the "
                 "log names it in an event")
      ->needs(arm)
      ->excludes(app.get_option("--resume"));
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
    std::optional<mutants::Mutant> mutant;
    if (!arguments->mutant.empty()) {
      mutant = mutants::MutantByName(arguments->mutant);
    }
    if (arguments->dry_run) {
      PrintPlan(experiment);
      return ExitCode::kPass;
    }
    TrainArmsOptions options = {.leftovers = arguments->leftovers(),
                                .only_arm = arguments->arm,
                                .print_steps = arguments->print_steps};
    if (mutant) {
      options.run_hooks = [&](const train::Run& run) {
        return mutants::Plant(*mutant, experiment, *run.arm, run.seed);
      };
    }
    const ExecutedRuns executed =
        TrainArms(experiment, arguments->Folder(experiment), options);
    if (!SpeaksForTheJob()) return ExitCode::kPass;
    if (mutant && mutant->edit_log && !executed.interrupted) {
      EditLogs(*mutant, executed.logs);
    }
    for (const std::filesystem::path& log : executed.logs) {
      if (!log.empty()) fmt::print("{}\n", log.string());
    }
    if (executed.interrupted) return ExitCode::kInterrupted;
    return executed.aborted ? ExitCode::kFail : ExitCode::kPass;
  };
}

}  // namespace isoloss::cli
