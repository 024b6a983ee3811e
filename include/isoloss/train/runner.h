// Executes all runs of an experiment, arms x seeds, side by side while cores
// are free.
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

struct RunHooks;

/// A run is one arm with one seed.
struct Run {
  const Arm* arm = nullptr;
  uint64_t seed = 0;

  /// Returns "mxfp8-seed1": the log's file name without its extension.
  std::string Name() const;
};

/// Returns the names in the order of the file.
std::vector<std::string> ArmNames(const Experiment& experiment);

/// Returns the arm of that name.
/// Errors   ConfigError that lists the arms if there is none of that name.
const Arm& ArmNamed(const Experiment& experiment, const std::string& name);

/// Returns the runs of `experiment`, seed by seed, so that a pair is complete
/// early. A non-empty `only_arm` leaves out all further arms.
/// Errors   as ArmNamed and CheckReplays; ConfigError if the processes that
///          were started can't share the work.
std::vector<Run> PlanRuns(const Experiment& experiment,
                          const std::string& only_arm = {});

/// A caller watches the runs, and ends them early, with these functions. They
/// are called from several threads at once; `run` counts in PlanRuns' order.
struct RunnerHooks {
  /// Called before on_accepted for a run that need not be executed, because its
  /// log is there.
  std::function<void(size_t run, const runlog::RunLog& log)> on_kept = {};
  /// Called once, after all checks and before any file is changed. It gets the
  /// number of runs to execute, and a sentence on what is discarded, or "".
  std::function<void(size_t runs, const std::string& discarded)> on_accepted =
      {};
  std::function<void(size_t run, const runlog::StepRow& row)> on_step = {};
  std::function<void(size_t run, const runlog::Event& event)> on_event = {};
  std::function<void(size_t run, const runlog::RunLog& log)> on_finish = {};
  const std::atomic<bool>* stop = nullptr;
  /// Returns further hooks of a run. The hooks that this struct has, too, are
  /// replaced.
  std::function<RunHooks(size_t run)> run_hooks = {};
};

/// Decides what to do with files that an earlier execution left in the folder.
enum class Leftovers {
  /// Keep finished runs if they are the runs to execute, else refuse them;
  /// refuse unfinished runs.
  kRefuse,
  kResume,   ///< the same, but go on with unfinished ones
  kDiscard,  ///< start all runs anew
};

/// Throws what ExecuteRuns would throw before any run starts. Returns which
/// runs are finished in the folder and kept. Changes no file; of `hooks` it
/// calls on_kept and run_hooks.
std::vector<bool> CheckRuns(const Experiment& experiment,
                            const std::vector<Run>& runs,
                            const corpus::Corpus& corpus,
                            const std::filesystem::path& folder,
                            Leftovers leftovers, const RunnerHooks& hooks = {});

/// Returns the seeds, ascending, for which some arm of `experiment` has files
/// in `folder`: a finished log or a journal.
std::vector<uint64_t> SeedsIn(const std::filesystem::path& folder,
                              const Experiment& experiment);

/// These finished logs are not in a plan.
struct OtherLogs {
  struct File {
    std::filesystem::path path;
    const Arm* arm = nullptr;
    uint64_t seed = 0;
  };
  std::vector<File> files;
  /// There is one sentence for each log that is left out.
  std::vector<std::string> left_out;
};

/// Finds logs in `folder` of the arms of `runs` with further seeds. It takes
/// only logs of the same experiment and corpus, and only seeds for which each
/// arm has a log. There may be thousands of logs, so only one is in memory at a
/// time.
OtherLogs FindOtherSeeds(const Experiment& experiment,
                         const std::vector<Run>& runs,
                         const corpus::Corpus& corpus,
                         const std::filesystem::path& folder);

/// ExecuteRuns leaves these logs, in the order of the runs.
struct LeftLogs {
  /// A stopped run leaves NAME.partial.h5; a run that was not started has an
  /// empty path.
  std::vector<std::filesystem::path> logs;
  std::vector<bool> kept;  ///< those that had finished before
};

/// Executes the runs. Each run's files are in `folder` under its name
/// (runlog::RunPaths): a journal, NAME.partial.h5 and checkpoints while it
/// lasts, NAME.h5 when it has ended. Checkpoints stay if log.checkpoint_every
/// asks for them.
/// Errors   IoError before any run starts if the folder can't take the files;
///          ConfigError before any run starts if a run in the folder is
///          refused, was a different run, or has a different build than the
///          runs to come. The first error of a run stops the remaining runs.
LeftLogs ExecuteRuns(const Experiment& experiment, const std::vector<Run>& runs,
                     const corpus::Corpus& corpus,
                     const std::filesystem::path& folder,
                     Leftovers leftovers = Leftovers::kRefuse,
                     const RunnerHooks& hooks = {});

}  // namespace isoloss::train
