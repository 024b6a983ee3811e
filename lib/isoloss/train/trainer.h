// One arm, one seed: batch, forward, backward, clip, update, log.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "isoloss/base/matrix.h"
#include "isoloss/base/threads.h"
#include "isoloss/corpus/corpus.h"
#include "isoloss/model/parameters.h"
#include "isoloss/precision/recipe.h"
#include "isoloss/runlog/run_log.h"
#include "isoloss/train/experiment.h"
#include "isoloss/train/mesh_setup.h"

namespace isoloss::train {

/// How a caller watches a run and ends it early.
struct RunHooks {
  /// After every step, on the training thread.
  std::function<void(const runlog::StepRow&)> on_step = {};
  /// When it becomes true the run ends after its current step; may be null. Of
  /// several processes any one may raise it.
  const std::atomic<bool>* stop = nullptr;
  /// Where transport `mpi` leaves the reason if this process ends the job.
  std::string reason_folder = {};

  // Seams for tests and for runs that perturb one thing on purpose.
  TransportFactory make_transport = {};
  /// Initial weights of this process, before anything is computed with them.
  std::function<void(model::ParameterSet&)> edit_initial_weights = {};
  /// Gradients of this process: as Backward left them, and as they will update
  /// the weights. May change them.
  std::function<void(int64_t step, model::ParameterSet&)> after_backward = {};
  std::function<void(int64_t step, model::ParameterSet&)> before_update = {};
  /// Weights and expert biases [MoE layers, E] of this process, as the next
  /// step will use them. May change them.
  std::function<void(int64_t step, model::ParameterSet& weights,
                     MatrixView<float> expert_bias)>
      after_update = {};
};

/// The arm's recipe, with the arm's own patterns in place of the recipe's.
/// Errors   ConfigError if there is no such recipe.
precision::Recipe RecipeOf(const Arm& arm);

/// Throws ConfigError unless the logs that [routing] replays exist for every
/// seed, fit, and have all of the experiment's steps.
void CheckReplays(const Experiment& experiment);

/// What each GEMM of each arm gets, in the order of the arms.
/// Errors   as RecipeOf and precision::ResolvedRecipe, for any arm.
std::vector<precision::ResolvedRecipe> ResolveRecipes(
    const Experiment& experiment);

/// Trains `arm` of `experiment` with `seed` (initial weights and batches) and
/// returns its log. Where several processes share the ranks each calls it; the
/// log of process 0 is whole, the others' lack what is added up there. The log
/// is incomplete, with an event that says why, if the run was stopped or its
/// loss or gradient norm was not finite: such a step is the last one in the
/// log.
///
/// Errors   ConfigError if the corpus does not fit the model, the recipe
///          matches no GEMM, or [routing] replays a log that does not fit;
///          as MakeMesh; TransportError if ranks lost each other or what they
///          exchange is not what arrives: then all processes fail.
/// Exact    bits depend on the experiment, the arm, the seed and the corpus;
///          not on the team, the transport or the number of processes.
runlog::RunLog TrainRun(const Experiment& experiment, const Arm& arm,
                        uint64_t seed, const corpus::Corpus& corpus,
                        ThreadTeam& team, const RunHooks& hooks = {});

}  // namespace isoloss::train
