// Implements `isoloss run`, which trains arms and writes logs, but judges
// nothing.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "arguments.h"
#include "commands.h"
#include "experiment_arguments.h"
#include "isoloss/base/printable.h"
#include "isoloss/campaign/train_arms.h"
#include "isoloss/system/interrupt.h"
#include "json_output.h"
#include "run_choice_arguments.h"
#include "value_names.h"

namespace isoloss::cli {
namespace {

Json RunJson(const campaign::ExecutedRuns& executed,
             const std::filesystem::path& folder, ExitCode code) {
  Json json{{"exit_code", static_cast<int>(code)},
            {"interrupted", executed.interrupted},
            {"diverged", executed.aborted},
            {"folder", folder.string()},
            {"logs", Json::array()}};
  for (const std::filesystem::path& log : executed.logs) {
    if (!log.empty()) json["logs"].push_back(log.string());
  }
  return json;
}

struct RunArguments : ExperimentArguments {
  std::string arm;
  RunChoiceArguments runs;
  bool print_steps = false;
  std::optional<int64_t> stop_after;
  std::vector<std::string> dump;
  std::vector<uint64_t> dump_steps;
  bool json = false;

  /// --dump and --dump-steps are overrides, so that they are checked like the
  /// file.
  train::Experiment LoadWithDumps() {
    if (!dump.empty()) {
      // JSON's strings are TOML's, whatever the patterns hold.
      overrides.push_back(
          "log.dump_tensors=" +
          Json(dump).dump(-1, ' ', false, Json::error_handler_t::replace));
    }
    if (!dump_steps.empty()) {
      overrides.push_back(
          fmt::format("log.dump_steps=[{}]", fmt::join(dump_steps, ", ")));
    }
    return Load();
  }
};

/// Prints what the runs left, and returns the exit code.
ExitCode ReportRuns(const campaign::ExecutedRuns& executed,
                    const campaign::TrainArmsOptions& options,
                    const std::filesystem::path& folder, bool json) {
  const bool stopped = executed.interrupted || executed.stopped_by;
  const ExitCode code = stopped            ? ExitCode::kInterrupted
                        : executed.aborted ? ExitCode::kFail
                                           : ExitCode::kPass;
  if (executed.stopped_by) {
    fmt::print(stderr,
               "isoloss: stopped, since {} has finished step {}. The same "
               "command with {} instead of --stop-after goes on.\n",
               *executed.stopped_by, *options.stop_after, options.how_to_go_on);
  }
  if (json) {
    PrintJson(RunJson(executed, folder, code));
    return code;
  }
  for (const std::filesystem::path& log : executed.logs) {
    if (!log.empty()) fmt::print("{}\n", Printable(log.string()));
  }
  return code;
}

ExitCode Run(RunArguments& arguments) {
  const train::Experiment experiment = arguments.LoadWithDumps();
  const campaign::TrainArmsOptions options = {
      .dry_run = arguments.dry_run,
      .leftovers = arguments.leftovers(),
      .print_steps = arguments.print_steps,
      .stop_after = arguments.stop_after,
      .how_to_go_on = arguments.HowToGoOn(experiment)};
  const std::filesystem::path folder = arguments.Folder(experiment);
  campaign::TrainingPlan plan =
      campaign::PlanTraining(experiment, arguments.arm);
  if (!arguments.runs.list.empty()) {
    campaign::WriteRunList(campaign::ListRuns(experiment, plan.runs, folder),
                           arguments.runs.list);
    if (arguments.json && campaign::SpeaksForTheJob()) {
      PrintJson({{"list", arguments.runs.list.string()}, {"exit_code", 0}});
    }
    return ExitCode::kPass;
  }
  arguments.runs.choice().Keep(plan.runs);
  system::ListenToSignals();
  const campaign::ExecutedRuns executed =
      campaign::TrainArms(experiment, plan, folder, options);
  if (arguments.dry_run || !campaign::SpeaksForTheJob()) {
    return ExitCode::kPass;
  }
  return ReportRuns(executed, options, folder, arguments.json);
}

Action DeclareRun(CLI::App& app) {
  auto arguments = std::make_shared<RunArguments>();
  arguments->Declare(app);
  AddOption(app, "--arm", arguments->arm,
            std::string("Train this arm") + kAllArmsHelp);
  arguments->runs.Declare(app);
  AddFlag(app, "--print-steps", arguments->print_steps,
          "Print each step as torchtitan does (step, loss, grad_norm, tps) "
          "instead of progress bars; a printed step is on disk");
  AddOption(app, "--stop-after", arguments->stop_after,
            "Stop once a run has finished this step, as an interrupt "
            "would: exit code 130; --resume goes on")
      .IntegerIn(1, kMostSteps);
  AddOption(app, "--dump", arguments->dump,
            "Store whole the tensors whose names this pattern matches "
            "(log.dump_tensors), in dumps/NAME.dump-STEP.h5; "
            "repeatable")
      .Repeatable()
      .TypeName("PATTERN");
  AddOption(app, "--dump-steps", arguments->dump_steps,
            "Steps to store them at (log.dump_steps), default 1; "
            "repeatable")
      .Repeatable()
      .IntegerIn(1, kMostSteps)
      .Needs("--dump");
  DeclareJson(app, arguments->json, "with the list `logs` and `exit_code`")
      .Excludes("--print-steps")
      .Excludes("--dry-run");
  return [arguments] { return Run(*arguments); };
}

}  // namespace

extern constinit const Command kCommand_run = {
    "run", "Train arms of an experiment; no verdict",
    "isoloss run experiments/demo/experiment.toml --arm mxfp8", &DeclareRun};

}  // namespace isoloss::cli
