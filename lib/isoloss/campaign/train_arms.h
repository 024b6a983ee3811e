// Trains what an experiment asks for, from the file to the logs on disk.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "isoloss/corpus/corpus.h"
#include "isoloss/train/experiment.h"
#include "isoloss/train/run_hooks.h"
#include "isoloss/train/runner.h"
#include "isoloss/verdicts/early_abort.h"

namespace isoloss::campaign {

/// Holds the logs that training leaves. If a signal came, `interrupted` is set,
/// and logs may be missing or partial.
struct ExecutedRuns : train::LeftLogs {
  bool interrupted = false;
  bool aborted = false;  ///< the numbers of some run were not finite
  /// One of these is set if all runs were stopped, so that logs are partial:
  /// the pair of TrainArmsOptions::watch, or the run that finished step
  /// stop_after.
  std::optional<verdicts::HopelessPair> hopeless = std::nullopt;
  std::optional<std::string> stopped_by = std::nullopt;
};

/// Only the first process of a job writes, prints and judges.
bool SpeaksForTheJob();

/// Refuses a job of several processes, for commands that do not share their
/// work. `but` says why.
/// Errors   ConfigError if this process is one of several.
void RequireOneProcess(const char* command, const char* but);

/// The plan has runs of an experiment, which must outlive them, and its corpus.
struct TrainingPlan {
  std::vector<train::Run> runs;
  corpus::Corpus corpus;
};

/// Plans the runs, as train::PlanRuns does, and loads the corpus. An error of
/// the plan comes before the corpus takes its time.
/// Errors   as train::PlanRuns and train::LoadCorpusOf.
TrainingPlan PlanTraining(const train::Experiment& experiment,
                          const std::string& only_arm = {});

/// Says how TrainArms trains, and how it shows its progress.
struct TrainArmsOptions {
  /// Checks everything and says what the training would take, but trains
  /// nothing (dry_run.h).
  bool dry_run = false;
  train::Leftovers leftovers = train::Leftovers::kRefuse;
  /// Prints each step as torchtitan does, instead of progress bars.
  bool print_steps = false;
  /// Stops all runs once one of them has finished this step.
  std::optional<int64_t> stop_after = std::nullopt;
  /// Shows nothing, since other runs go on at the same time.
  bool quiet = false;
  /// If the runs are judged afterwards, an earlier verdict is removed even if
  /// all runs are kept. Else it is removed if a run is trained.
  bool judged = false;
  /// Messages name these options, which make the same command go on. With "" no
  /// message comes, as nothing is kept.
  std::string how_to_go_on = "--resume";
  /// A run begins with these hooks, too (train::RunnerHooks::run_hooks).
  std::function<train::RunHooks(const train::Run& run)> run_hooks = {};
  /// Sees each step of each run and may stop all runs.
  verdicts::EarlyAbort* watch = nullptr;
};

/// Trains the arms of `experiment` as `plan` has them, with progress bars, and
/// removes earlier verdicts. Says on standard error what was resumed or found
/// damaged, and whether a signal ended it early. A dry run leaves no log.
/// Errors   as train::ExecuteRuns and verdicts::CheckVerdicts.
ExecutedRuns TrainArms(const train::Experiment& experiment,
                       const TrainingPlan& plan,
                       const std::filesystem::path& folder,
                       const TrainArmsOptions& options);

}  // namespace isoloss::campaign
