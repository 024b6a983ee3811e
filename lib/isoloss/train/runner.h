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
#include "isoloss/train/trainer.h"

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
  /// Once, when everything was checked and before any file is changed.
  std::function<void()> on_accepted = {};
  std::function<void(size_t run, const runlog::StepRow& row)> on_step = {};
  std::function<void(size_t run, const runlog::Event& event)> on_event = {};
  std::function<void(size_t run, const runlog::RunLog& log)> on_finish = {};
  const std::atomic<bool>* stop = nullptr;
  /// What a run begins with besides; what this struct has too is replaced.
  std::function<RunHooks(size_t run)> run_hooks = {};
};

/// What to do with what an earlier execution left in the folder.
enum class Leftovers {
  kRefuse,   ///< an unfinished run is an error; logs of whole ones are replaced
  kResume,   ///< go on with unfinished runs, keep whole ones
  kDiscard,  ///< start all runs anew
};

/// Executes the runs. Each one's files are in `folder` under its name
/// (runlog::RunPaths): a journal, NAME.partial.h5 and checkpoints while it
/// lasts, NAME.h5 when it has ended. Checkpoints stay if log.checkpoint_every
/// asks for them. Returns the paths of the logs, in order: NAME.partial.h5 of a
/// run that was stopped, an empty path for one that was not started.
/// Errors   IoError before any run starts if the folder can't take the files;
///          ConfigError before any run starts if an unfinished run is refused
///          or was another run;
///          the first error of a run stops the others.
std::vector<std::filesystem::path> ExecuteRuns(
    const Experiment& experiment, const std::vector<Run>& runs,
    const corpus::Corpus& corpus, const std::filesystem::path& folder,
    Leftovers leftovers = Leftovers::kRefuse, const RunnerHooks& hooks = {});

}  // namespace isoloss::train
