// One arm, one seed: batch, forward, backward, clip, update, log.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "isoloss/base/matrix.h"
#include "isoloss/base/threads.h"
#include "isoloss/corpus/corpus.h"
#include "isoloss/expert_parallel/exchange.h"
#include "isoloss/model/gemm_engine.h"
#include "isoloss/model/parameters.h"
#include "isoloss/model/routing_source.h"
#include "isoloss/model/tap.h"
#include "isoloss/optim/adamw.h"
#include "isoloss/precision/recipe.h"
#include "isoloss/runlog/recorder.h"
#include "isoloss/runlog/run_log.h"
#include "isoloss/train/experiment.h"
#include "isoloss/train/mesh_setup.h"

namespace isoloss::train {

/// What turns gradients into the next weights.
struct OptimizerInputs {
  double lr;
  double clip_coefficient;
  optim::AdamW& adamw;
};

/// How a caller watches a run and ends it early.
struct RunHooks {
  /// After every step, on the training thread, once the step is on disk (if the
  /// run has files). A resumed run may compute steps again.
  std::function<void(const runlog::StepRow&)> on_step = {};
  /// All that the log gets of a step, before `on_step`; of step 0, the
  /// evaluation of the initial weights.
  std::function<void(const runlog::RunLog& rows)> on_rows = {};
  /// What happened besides: resumed, checkpoint, damage that was found, …
  std::function<void(const runlog::Event&)> on_event = {};
  /// When it becomes true the run ends after its current step; may be null. Of
  /// several processes any one may raise it.
  const std::atomic<bool>* stop = nullptr;
  /// Where transport `mpi` leaves the reason if this process ends the job.
  std::string reason_folder = {};

  // Seams for tests and for runs that perturb one thing on purpose.
  TransportFactory make_transport = {};
  // Those that compute attach underneath what a log declares.

  /// What these hooks perturb on purpose: the text of an event `mutant` that
  /// the log of a new run begins with. Who goes on with a run must perturb the
  /// same. Empty: nothing.
  std::string perturbation = {};
  /// At the start of every training step, also of one that is computed again.
  std::function<void(int64_t step)> before_step = {};
  /// Computes the products of linear layers; empty: kernels::GemmBatch.
  model::GemmEngine gemm_engine = {};
  /// Changes what routers decided.
  model::RoutingEdit edit_routing = {};
  /// Chooses the experts of training steps, whatever [routing] says; must stay.
  const model::RoutingSource* routing = nullptr;
  /// Wraps the exchange of each MoE layer.
  expert_parallel::ExchangeDecorator decorate_exchange = {};
  /// The update, before it is made. May change it.
  std::function<void(int64_t step, OptimizerInputs& inputs)> before_optimizer =
      {};
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
  /// Hears every tensor of a training step before anything else does.
  std::function<void(int64_t step, const model::Tensor& tensor)> on_tensor = {};
  std::function<void(int64_t step, std::string_view module,
                     MatrixView<const int32_t> expert_ids)>
      on_routing = {};
};

/// A recorded run that is repeated in part, in other files.
struct RunOrigin {
  std::filesystem::path log;  ///< for messages
  runlog::Provenance recorded;
  std::filesystem::path checkpoints;
  int64_t last_step = 0;  ///< begin with the newest checkpoint up to this one
};

/// Where a run is kept.
struct RunFiles {
  runlog::RunPaths paths;
  /// Go on with what is there, if anything is. Otherwise it is removed.
  bool resume = false;
  /// Makes no checkpoint of its own.
  std::optional<RunOrigin> origin = std::nullopt;
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

/// Does what TrainRun does before its first step, and leaves nothing behind:
/// what TrainRun would refuse of these, is refused.
/// Errors   as TrainRun.
void RehearseRun(const Experiment& experiment, const Arm& arm, uint64_t seed,
                 const corpus::Corpus& corpus, ThreadTeam& team,
                 const RunHooks& hooks = {});

/// Trains `arm` of `experiment` with `seed` (initial weights and batches) and
/// returns its log. Where several processes share the ranks each calls it; the
/// log of process 0 is whole, the others' lack what is added up there. The log
/// is incomplete, with an event that says why, if the run was stopped or its
/// loss or gradient norm was not finite: such a step is the last one in the
/// log, it changes no weight, and the event names the first tensor that was not
/// finite.
///
/// With `files` every step is appended to a journal, the HDF5 file follows it,
/// and checkpoints are made as [log] says and when the run is stopped. A
/// resumed run has the bits of one that was never stopped.
///
/// Errors   ConfigError if the corpus does not fit the model, the recipe
///          matches no GEMM, [routing] replays a log that does not fit, or what
///          is resumed was another run (RunDifference); as MakeMesh; IoError if
///          a file can't be written; FormatError if a step that is computed
///          again comes out differently; TransportError if ranks lost each
///          other or what they exchange is not what arrives: then all processes
///          fail.
/// Exact    bits depend on the experiment, the arm, the seed and the corpus;
///          not on the team, the transport, the number of processes or where
///          the run was resumed.
runlog::RunLog TrainRun(const Experiment& experiment, const Arm& arm,
                        uint64_t seed, const corpus::Corpus& corpus,
                        ThreadTeam& team, const RunHooks& hooks = {},
                        const std::optional<RunFiles>& files = std::nullopt);

}  // namespace isoloss::train
