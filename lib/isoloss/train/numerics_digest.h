// Digests the results of this build on a run that takes hardly any time.
#pragma once

#include <cstdint>

#include "isoloss/base/executor.h"
#include "isoloss/train/config.h"

namespace isoloss::train {

/// Digest of three steps of one fixed small model (dense and MoE layer,
/// compressed queries, shared expert) on fixed tokens, with the arm's recipe
/// and exchange on 8 ranks in 4 nodes, all in this process: losses, gradient
/// norms, choices of experts, biases and final weights. Two builds with equal
/// digests compute the same; a version number would have to be believed.
///
/// The recipe's formats apply to all sites but router and head: the arm's own
/// patterns are those of another model.
///
/// Errors   ConfigError if there is no such recipe or payload.
/// Cost     below 20 ms on an executor of one; its loops are too short for
/// more, which
///          on a busy machine take five times as long.
/// Exact    depends on arm.recipe, arm.exchange and the code; neither on the
///          executor nor on the instruction set.
uint64_t NumericsDigest(const Arm& arm, Executor& executor);

}  // namespace isoloss::train
