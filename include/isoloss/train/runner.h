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

struct RunHooks;

/// One arm with one seed.
struct Run {
  const Arm* arm = nullptr;
  uint64_t seed = 0;

  /// "mxfp8-seed1": the log's file name without its extension.
  std::string Name() const;
};

/// In the order of the file.
std::vector<std::string> ArmNames(const Experiment& experiment);

/// Errors   ConfigError that lists the arms if there is none of that name.
const Arm& ArmNamed(const Experiment& experiment, const std::string& name);

/// The runs of `experiment`, seed by seed, so that a pair is complete early.
/// A non-empty `only_arm` leaves out the others.
/// Errors   as ArmNamed and CheckReplays; ConfigError if the processes that
///          were started can't share the work.
std::vector<Run> PlanRuns(const Experiment& experiment,
                          const std::string& only_arm = {});

/// How a caller watches the runs and ends them early. Called from several
/// threads at once; `run` counts in PlanRuns' order.
struct RunnerHooks {
  /// A run that need not be executed: its log is there. Before on_accepted.
  std::function<void(size_t run, const runlog::RunLog& log)> on_kept = {};
  /// Once, when everything was checked and before any file is changed: how many
  /// runs are executed, and a sentence on what is discarded, or "".
  std::function<void(size_t runs, const std::string& discarded)> on_accepted =
      {};
  std::function<void(size_t run, const runlog::StepRow& row)> on_step = {};
  std::function<void(size_t run, const runlog::Event& event)> on_event = {};
  std::function<void(size_t run, const runlog::RunLog& log)> on_finish = {};
  const std::atomic<bool>* stop = nullptr;
  /// What a run begins with besides; what this struct has too is replaced.
  std::function<RunHooks(size_t run)> run_hooks = {};
};

/// What to do with what an earlier execution left in the folder.
enum class Leftovers {
  /// Keep finished runs if they are those to be executed, else refuse; refuse
  /// unfinished ones.
  kRefuse,
  kResume,   ///< the same, but go on with unfinished ones
  kDiscard,  ///< start all runs anew
};

/// Throws what ExecuteRuns would before any run starts, and returns which runs
/// are finished in the folder and kept. Changes no file; of `hooks` it calls
/// on_kept and run_hooks.
std::vector<bool> CheckRuns(const Experiment& experiment,
                            const std::vector<Run>& runs,
                            const corpus::Corpus& corpus,
                            const std::filesystem::path& folder,
                            Leftovers leftovers, const RunnerHooks& hooks = {});

/// Seeds that some arm of `experiment` has files of in `folder`, ascending: a
/// finished log or a journal.
std::vector<uint64_t> SeedsIn(const std::filesystem::path& folder,
                              const Experiment& experiment);

/// Finished logs besides those of a plan.
struct OtherLogs {
  struct File {
    std::filesystem::path path;
    const Arm* arm = nullptr;
    uint64_t seed = 0;
  };
  std::vector<File> files;
  /// A sentence for each that is left out.
  std::vector<std::string> left_out;
};

/// Logs in `folder` of the arms of `runs` with other seeds, as far as they are
/// of the same experiment and corpus and each arm has one. There may be
/// thousands, so one at a time is in memory.
OtherLogs FindOtherSeeds(const Experiment& experiment,
                         const std::vector<Run>& runs,
                         const corpus::Corpus& corpus,
                         const std::filesystem::path& folder);

/// What ExecuteRuns leaves, in the order of the runs.
struct LeftLogs {
  /// NAME.partial.h5 of a run that was stopped, an empty path for one that was
  /// not started.
  std::vector<std::filesystem::path> logs;
  std::vector<bool> kept;  ///< those that had finished before
};

/// Executes the runs. Each one's files are in `folder` under its name
/// (runlog::RunPaths): a journal, NAME.partial.h5 and checkpoints while it
/// lasts, NAME.h5 when it has ended. Checkpoints stay if log.checkpoint_every
/// asks for them.
/// Errors   IoError before any run starts if the folder can't take the files;
///          ConfigError before any run starts if a run in the folder is refused
///          or was another run, or is of another build than those to come;
///          the first error of a run stops the others.
LeftLogs ExecuteRuns(const Experiment& experiment, const std::vector<Run>& runs,
                     const corpus::Corpus& corpus,
                     const std::filesystem::path& folder,
                     Leftovers leftovers = Leftovers::kRefuse,
                     const RunnerHooks& hooks = {});

}  // namespace isoloss::train
