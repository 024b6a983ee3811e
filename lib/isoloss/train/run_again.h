// Computes one step of a recorded run once more, for a closer look.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "isoloss/corpus/corpus.h"
#include "isoloss/runlog/run_log.h"
#include "isoloss/train/experiment.h"

namespace isoloss::train {

/// A caller can watch the step, and end it early, with these functions.
struct RunAgainHooks {
  std::function<void(int64_t step)> on_step = {};
  const std::atomic<bool>* stop = nullptr;
};

/// Runs the arm and seed of `recorded` up to `step`. It starts from the newest
/// earlier checkpoint beside `log_file`, or from the beginning. Returns the
/// file in `folder` with the tensors of that step that `tensor_patterns` name
/// (runlog::ReadTensorDump); an empty path if it was stopped.
/// Errors   ConfigError if the experiment has no such arm, or is not the
///          recorded run (RunDifference), or the step is not one of its steps;
///          as TrainRun.
std::filesystem::path RunAgain(
    const Experiment& experiment, const corpus::Corpus& corpus,
    const runlog::Provenance& recorded, const std::filesystem::path& log_file,
    int64_t step, const std::vector<std::string>& tensor_patterns,
    const std::filesystem::path& folder, const RunAgainHooks& hooks = {});

}  // namespace isoloss::train
