// What commands that train share: from the arguments to the logs on disk.
#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "isoloss/train/experiment.h"
#include "isoloss/train/runner.h"

namespace isoloss::cli {

/// Which experiment, with what overridden.
struct ExperimentSource {
  std::string file;
  std::vector<std::string> overrides;

  void Declare(CLI::App& app);
  /// Errors   as train::LoadExperiment.
  train::Experiment Load() const;
};

/// Arguments of a command that writes logs.
struct ExperimentArguments : ExperimentSource {
  std::string out;
  bool dry_run = false;
  bool resume = false;
  bool restart = false;

  void Declare(CLI::App& app);
  /// Where results go: --out, else runs/<experiment name>.
  std::filesystem::path Folder(const train::Experiment& experiment) const;
  train::Leftovers leftovers() const;
};

/// Prints the resolved experiment and what each GEMM of each arm gets.
void PrintPlan(const train::Experiment& experiment);

/// Logs of the runs that were executed; `interrupted` if a signal came, so that
/// some may be missing or partial.
struct ExecutedRuns {
  std::vector<std::filesystem::path> logs;
  bool interrupted = false;
  bool aborted = false;  ///< the numbers of some run were not finite
  /// What TrainArmsOptions::why_stop said; the runs are partial then.
  std::optional<std::string> stopped_because = std::nullopt;
};

/// Of several processes of one job only the first writes, prints and judges.
bool SpeaksForTheJob();

/// What TrainArms trains, and how it shows it.
struct TrainArmsOptions {
  train::Leftovers leftovers = train::Leftovers::kRefuse;
  std::string only_arm = {};
  /// Print each step as torchtitan does, in place of progress bars.
  bool print_steps = false;
  /// Once, before any file is changed.
  std::function<void()> on_accepted = {};
  /// What a run begins with besides (train::RunnerHooks::run_hooks).
  std::function<train::RunHooks(const train::Run& run)> run_hooks = {};
  /// After each step of each run; a reason stops all runs.
  std::function<std::optional<std::string>(const train::Run& run,
                                           const runlog::StepRow& row)>
      why_stop = {};
};

/// Trains the arms of `experiment` with progress bars. Says on standard error
/// what was resumed or found damaged, and whether a signal ended it early.
ExecutedRuns TrainArms(const train::Experiment& experiment,
                       const std::filesystem::path& folder,
                       const TrainArmsOptions& options);

}  // namespace isoloss::cli
