// All runs of an experiment: arms x seeds, side by side while cores are free.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "isoloss/corpus/corpus.h"
#include "isoloss/runlog/run_log.h"
#include "isoloss/train/experiment.h"

namespace isoloss::train {

/// One arm with one seed.
struct Run {
  const Arm* arm = nullptr;
  uint64_t seed = 0;

  /// "mxfp8-seed1": the log's file name without its extension.
  std::string Name() const;
};

/// The runs of `experiment`, seed by seed, so that a pair is complete early.
/// A non-empty `only_arm` leaves out the others.
/// Errors   ConfigError that lists the arms if there is no such arm; as
///          precision::ResolvedRecipe for any arm's recipe.
std::vector<Run> PlanRuns(const Experiment& experiment,
                          const std::string& only_arm = {});

/// How a caller watches the runs and ends them early. Called from several
/// threads at once; `run` counts in PlanRuns' order.
struct RunnerHooks {
  std::function<void(size_t run, const runlog::StepRow& row)> on_step = {};
  std::function<void(size_t run, const runlog::RunLog& log)> on_finish = {};
  const std::atomic<bool>* stop = nullptr;
};

/// Executes the runs and writes each one's log to `folder` when it ends:
/// NAME.h5, or NAME.partial.h5 if it was stopped. Returns the paths, in order;
/// an empty path for a run that was not started.
/// Errors   IoError before any run starts if the folder can't take the logs;
///          the first error of a run stops the others.
std::vector<std::filesystem::path> ExecuteRuns(
    const Experiment& experiment, const std::vector<Run>& runs,
    const corpus::Corpus& corpus, const std::filesystem::path& folder,
    const RunnerHooks& hooks = {});

}  // namespace isoloss::train
