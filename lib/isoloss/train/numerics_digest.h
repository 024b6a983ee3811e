// Digests the results of this build on a run that takes hardly any time.
#pragma once

#include <cstdint>

#include "isoloss/base/executor.h"
#include "isoloss/train/config.h"

namespace isoloss::train {

/// Digests three steps of one fixed small model (dense and MoE layer,
/// compressed queries, shared expert) on fixed tokens. It uses the arm's recipe
/// and exchange on 8 ranks in 4 nodes, all in this process. The digest covers
/// losses, gradient norms, choices of experts, biases and final weights. Each
/// recipe of an arm with several has such steps of its own. Two builds with
/// equal digests compute the same; a version number would only claim it.
///
/// The recipe's formats apply to all sites except router and head, because the
/// arm's own patterns are written for a different model.
///
/// Errors   ConfigError if there is no such recipe or payload.
/// Cost     below 20 ms on an executor of one. Its loops are too short for more
/// threads, which on a busy machine take five times as long.
/// Exact    depends on the arm's recipes, arm.exchange and the code; neither on
/// the
///          executor nor on the instruction set.
uint64_t NumericsDigest(const Arm& arm, Executor& executor);

}  // namespace isoloss::train
