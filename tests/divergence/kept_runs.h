// Tiny runs with files: stopped, resumed in other ways, damaged in between.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "isoloss/base/executor.h"
#include "isoloss/runlog/recorder.h"
#include "isoloss/runlog/run_log.h"
#include "isoloss/train/trainer.h"

namespace isoloss::train {

/// How a run is executed: no bit depends on it.
struct Manner {
  int workers = 1;
  size_t ranks = 1;
  std::string_view transport = "loop";  ///< "memory": connected by memory links
  size_t processes = 1;                 ///< trainers on as many threads
  Executor* device = nullptr;           ///< instead of workers
};

/// 16 experts; 8 steps, a checkpoint after every third, an evaluation after
/// every fourth; digests of all tensors in all steps, statistics in two.
inline constexpr int64_t kSteps = 8;
Experiment KeptExperiment(const Manner& manner,
                          std::vector<std::string> overrides = {});

/// One execution of arm `arm` in `folder`.
struct Execution {
  std::filesystem::path folder = {};
  Manner manner = {};
  bool resume = false;
  int64_t stop_after = kSteps;
  std::string arm = "mxfp8";
  uint64_t seed = 1;
  std::vector<std::string> overrides = {};
  RunHooks hooks = {};  ///< of every process
};

/// The log of process 0.
/// Errors   as TrainRun, of the first process that has one.
runlog::RunLog Execute(const Execution& execution);

runlog::RunPaths PathsIn(const std::filesystem::path& folder);
corpus::Corpus CorpusOf(const Experiment& experiment);

/// Texts of the log's events of that kind.
std::vector<std::string> EventsOf(const runlog::RunLog& log,
                                  const std::string& kind);

/// Expects equal steps in all groups, equal values in them (FirstDifference)
/// and equal weights, here and in the file in `folder`. /exchange only tells of
/// one mesh: not compared with `exchange` false.
void ExpectSame(const runlog::RunLog& log, const runlog::RunLog& whole,
                const std::filesystem::path& folder, bool exchange = true);

}  // namespace isoloss::train
