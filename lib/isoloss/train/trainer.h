// Trains one arm with one seed: batch, forward, backward, clip, update, log.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "isoloss/base/executor.h"
#include "isoloss/corpus/corpus.h"
#include "isoloss/runlog/recorder.h"
#include "isoloss/runlog/run_log.h"
#include "isoloss/train/experiment.h"
#include "isoloss/train/run_hooks.h"

namespace isoloss::train {

/// A recorded run is repeated in part, in different files.
struct RunOrigin {
  std::filesystem::path log;  ///< for messages
  runlog::Provenance recorded;
  std::filesystem::path checkpoints;
  int64_t last_step = 0;  ///< begin with the newest checkpoint up to this one
};

/// A run is kept in these files.
struct RunFiles {
  runlog::RunPaths paths;
  /// Goes on with existing files, if there are any. Otherwise they are removed.
  bool resume = false;
  /// A run with an origin makes no checkpoint of its own.
  std::optional<RunOrigin> origin = std::nullopt;
};

/// Does what TrainRun does before its first step, and leaves no files: it
/// refuses the arguments that TrainRun would refuse.
/// Errors   as TrainRun.
void RehearseRun(const Experiment& experiment, const Arm& arm, uint64_t seed,
                 const corpus::Corpus& corpus, Executor& executor,
                 const RunHooks& hooks = {});

/// Trains `arm` of `experiment` with `seed` (initial weights and batches) and
/// returns its log. If several processes share the ranks, each calls it. Only
/// the log of process 0 is whole: the remaining logs lack the sums over
/// processes. The log is incomplete, with an event that says why, if the run
/// was stopped or its loss or gradient norm was not finite. A step that is not
/// finite is the last one in the log and changes no weight; the event names the
/// first tensor that was not finite.
///
/// With `files` every step is appended to a journal, the HDF5 file follows it,
/// and checkpoints are made as [log] says and when the run is stopped. A
/// resumed run has the bits of a run that was never stopped.
///
/// Errors   ConfigError if the corpus does not fit the model, the recipe
///          matches no GEMM, [routing] replays a log that does not fit, or the
///          resumed run differs (RunDifference); as MakeMesh;
///          IoError if a file can't be written; FormatError if a step that is
///          computed again comes out differently; TransportError if ranks lost
///          each other or exchanged data arrives changed: then all processes
///          fail.
/// Exact    bits depend on the experiment, the arm, the seed and the corpus;
///          not on the executor, the transport, the number of processes or
///          where the run was resumed.
runlog::RunLog TrainRun(const Experiment& experiment, const Arm& arm,
                        uint64_t seed, const corpus::Corpus& corpus,
                        Executor& executor, const RunHooks& hooks = {},
                        const std::optional<RunFiles>& files = std::nullopt);

}  // namespace isoloss::train
