// One arm, one seed: batch, forward, backward, clip, update, log.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <vector>

#include "isoloss/base/threads.h"
#include "isoloss/corpus/corpus.h"
#include "isoloss/precision/recipe.h"
#include "isoloss/runlog/run_log.h"
#include "isoloss/train/experiment.h"

namespace isoloss::train {

/// How a caller watches a run and ends it early.
struct RunHooks {
  /// After every step, on the training thread.
  std::function<void(const runlog::StepRow&)> on_step = {};
  /// When it becomes true the run ends after its current step; may be null.
  const std::atomic<bool>* stop = nullptr;
};

/// The arm's recipe, with the arm's own patterns in place of the recipe's.
/// Errors   ConfigError if there is no such recipe.
precision::Recipe RecipeOf(const Arm& arm);

/// What each GEMM of each arm gets, in the order of the arms.
/// Errors   as RecipeOf and precision::ResolvedRecipe, for any arm.
std::vector<precision::ResolvedRecipe> ResolveRecipes(
    const Experiment& experiment);

/// Trains `arm` of `experiment` with `seed` (initial weights and batches) and
/// returns its log. The log is incomplete, with an event that says why, if the
/// run was stopped or its loss or gradient norm was not finite: such a step is
/// the last one in the log.
/// Errors   ConfigError if the corpus does not fit the model or the recipe
///          matches no GEMM.
/// Exact    bits depend on the experiment, the arm, the seed and the corpus;
///          not on the team.
runlog::RunLog TrainRun(const Experiment& experiment, const Arm& arm,
                        uint64_t seed, const corpus::Corpus& corpus,
                        ThreadTeam& team, const RunHooks& hooks = {});

}  // namespace isoloss::train
