// Trains what an experiment asks for, from the file to the logs on disk.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "isoloss/corpus/corpus.h"
#include "isoloss/train/experiment.h"
#include "isoloss/train/runner.h"

namespace isoloss::campaign {

/// Logs of the runs that were executed; `interrupted` if a signal came, so that
/// some may be missing or partial.
struct ExecutedRuns {
  std::vector<std::filesystem::path> logs;
  bool interrupted = false;
  bool aborted = false;  ///< the numbers of some run were not finite
  /// Of `logs`, those that were there already.
  std::set<std::filesystem::path> kept = {};
  /// With TrainArmsOptions::with_other_seeds: finished logs of the same
  /// experiment in the folder besides `logs`.
  std::vector<std::filesystem::path> others = {};
  /// What TrainArmsOptions::why_stop said, or that a run has finished step
  /// stop_after; the runs are partial then.
  std::optional<std::string> stopped_because = std::nullopt;
};

/// Of several processes of one job only the first writes, prints and judges.
bool SpeaksForTheJob();

/// For commands whose work is not shared between processes; `but` says why.
/// Errors   ConfigError if this process is one of several.
void RequireOneProcess(const char* command, const char* but);

/// What TrainArms trains, and how it shows it.
struct TrainArmsOptions {
  /// Check all of it and say what it would take, but train nothing (dry_run.h).
  bool dry_run = false;
  train::Leftovers leftovers = train::Leftovers::kRefuse;
  std::string only_arm = {};
  /// Print each step as torchtitan does, in place of progress bars.
  bool print_steps = false;
  /// Stop all runs once one of them has finished this step.
  std::optional<int64_t> stop_after = std::nullopt;
  /// Show nothing: other runs go on beside these.
  bool quiet = false;
  /// Look for what ExecutedRuns::others has.
  bool with_other_seeds = false;
  /// Options that make the same command go on, for messages.
  std::string how_to_go_on = "--resume";
  /// Once, before any file is changed; how many runs will be trained.
  std::function<void(size_t runs)> on_accepted = {};
  /// What a run begins with besides (train::RunnerHooks::run_hooks).
  std::function<train::RunHooks(const train::Run& run)> run_hooks = {};
  /// After each step of each run; a reason stops all runs.
  std::function<std::optional<std::string>(const train::Run& run,
                                           const runlog::StepRow& row)>
      why_stop = {};
};

/// The corpus for TrainArms. What PlanRuns refuses is refused before the corpus
/// takes its time, and from here on a signal is a wish to stop (InterruptFlag).
/// Errors   as train::PlanRuns and train::LoadCorpusOf.
corpus::Corpus LoadCorpusToTrain(const train::Experiment& experiment,
                                 const std::string& only_arm = {});

/// Trains the arms of `experiment`, whose corpus is `corpus`, with progress
/// bars. Says on standard error what was resumed or found damaged, and whether
/// a signal ended it early. A dry run leaves no log.
ExecutedRuns TrainArms(const train::Experiment& experiment,
                       const corpus::Corpus& corpus,
                       const std::filesystem::path& folder,
                       const TrainArmsOptions& options);

}  // namespace isoloss::campaign
