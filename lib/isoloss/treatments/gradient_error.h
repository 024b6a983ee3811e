// Measures how far low precision moves a gradient at the same weights, batch
// and routing, so that no error accumulates.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "isoloss/base/executor.h"
#include "isoloss/corpus/corpus.h"
#include "isoloss/train/experiment.h"

namespace isoloss::treatments {

struct GradientErrorHooks {
  std::function<void(size_t done, size_t of)> on_progress = {};
  const std::atomic<bool>* stop = nullptr;
};

/// Trains `reference` with `seed` up to the last of `steps` (ascending from
/// 1). At each of them every arm gets the reference's weights and biases and
/// computes the gradient of the same batch with the experts that the reference
/// chose. The result is ||g - r|| / ||r|| over all parameters, r the
/// reference's gradient. Batches are computed in one share, whatever
/// parallel.micro_batches says (train/batch_shares.h).
/// Shapes   result[arm][step]; fewer steps if `stop` came or a step of the
///          reference was not finite.
/// Special  infinite or NaN where the arm's gradient is not finite.
/// Errors   as train::TrainRun.
/// Cost     a step for each of the reference's, and for each arm at each of
///          `steps`; memory for three sets of weights and moments.
std::vector<std::vector<double>> GradientErrors(
    const train::Experiment& experiment, const train::Arm& reference,
    std::span<const train::Arm> arms, uint64_t seed,
    const corpus::Corpus& corpus, std::span<const int64_t> steps,
    Executor& executor, const GradientErrorHooks& hooks = {});

}  // namespace isoloss::treatments
