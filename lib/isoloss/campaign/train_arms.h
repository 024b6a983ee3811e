// Trains what an experiment asks for, from the file to the logs on disk.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "isoloss/campaign/early_abort.h"
#include "isoloss/corpus/corpus.h"
#include "isoloss/train/experiment.h"
#include "isoloss/train/runner.h"

namespace isoloss::campaign {

/// The logs that training leaves; `interrupted` if a signal came, so that some
/// may be missing or partial.
struct ExecutedRuns : train::LeftLogs {
  bool interrupted = false;
  bool aborted = false;  ///< the numbers of some run were not finite
  /// Why all were stopped, so that logs are partial: the pair of
  /// TrainArmsOptions::watch, or the run that has finished step stop_after.
  std::optional<HopelessPair> hopeless = std::nullopt;
  std::optional<std::string> stopped_by = std::nullopt;
};

/// Of several processes of one job only the first writes, prints and judges.
bool SpeaksForTheJob();

/// For commands whose work is not shared between processes; `but` says why.
/// Errors   ConfigError if this process is one of several.
void RequireOneProcess(const char* command, const char* but);

/// What is trained: runs of an experiment that must outlive it, and its corpus.
struct TrainingPlan {
  std::vector<train::Run> runs;
  corpus::Corpus corpus;
};

/// As train::PlanRuns. What that refuses is refused before the corpus takes its
/// time.
/// Errors   as train::PlanRuns and train::LoadCorpusOf.
TrainingPlan PlanTraining(const train::Experiment& experiment,
                          const std::string& only_arm = {});

/// How TrainArms trains, and how it shows it.
struct TrainArmsOptions {
  /// Check all of it and say what it would take, but train nothing (dry_run.h).
  bool dry_run = false;
  train::Leftovers leftovers = train::Leftovers::kRefuse;
  /// Print each step as torchtitan does, in place of progress bars.
  bool print_steps = false;
  /// Stop all runs once one of them has finished this step.
  std::optional<int64_t> stop_after = std::nullopt;
  /// Show nothing: other runs go on beside these.
  bool quiet = false;
  /// They are judged afterwards: an earlier verdict goes even if all runs are
  /// kept. Else it goes if one is trained.
  bool judged = false;
  /// Options that make the same command go on, for messages; "": nothing is
  /// said, as nothing is kept.
  std::string how_to_go_on = "--resume";
  /// What a run begins with besides (train::RunnerHooks::run_hooks).
  std::function<train::RunHooks(const train::Run& run)> run_hooks = {};
  /// Sees each step of each run and may stop all runs.
  EarlyAbort* watch = nullptr;
};

/// Trains the arms of `experiment` as `plan` has them, with progress bars, and
/// removes earlier verdicts. Says on standard error what was resumed or found
/// damaged, and whether a signal ended it early. A dry run leaves no log.
/// Errors   as train::ExecuteRuns and CheckVerdicts.
ExecutedRuns TrainArms(const train::Experiment& experiment,
                       const TrainingPlan& plan,
                       const std::filesystem::path& folder,
                       const TrainArmsOptions& options);

}  // namespace isoloss::campaign
