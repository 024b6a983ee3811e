// Declares the points of a run at which a caller may listen or change
// something.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "isoloss/base/executor.h"
#include "isoloss/base/matrix.h"
#include "isoloss/expert_parallel/exchange.h"
#include "isoloss/model/gemm_engine.h"
#include "isoloss/model/parameters.h"
#include "isoloss/model/routing_source.h"
#include "isoloss/model/tap.h"
#include "isoloss/model/tokens.h"
#include "isoloss/optim/adamw.h"
#include "isoloss/runlog/run_log.h"
#include "isoloss/train/mesh_setup.h"

namespace isoloss::train {

/// A process computes a training step from these inputs. They are valid until
/// the step's update.
struct StepInputs {
  const model::TokenBatch& tokens;
  const model::ParameterSet& parameters;  ///< in the executor's memory
  MatrixView<const float> expert_bias;    ///< [MoE layers, E]
  /// The step runs on it. A listener that computes a model does so, too.
  Executor& executor;
};

/// A caller can watch a run, and end it early, with these functions. They
/// change no bit.
struct Observer {
  /// The trainer calls it before the forward pass of every training step.
  std::function<void(int64_t step, const StepInputs& inputs)> on_inputs = {};
  /// Called after every step, on the training thread, once the step is on disk
  /// (if the run has files). A resumed run may compute steps again.
  std::function<void(const runlog::StepRow&)> on_step = {};
  /// Takes all that the log gets of a step, before `on_step`; for step 0, the
  /// evaluation of the initial weights.
  std::function<void(const runlog::RunLog& rows)> on_rows = {};
  /// Called for each further event: resumed, checkpoint, damage that was found,
  /// …
  std::function<void(const runlog::Event&)> on_event = {};
  /// Decides whether on_tensor and on_routing hear a step; empty: they hear
  /// all. Announcing the tensors of a step takes time.
  std::function<bool(int64_t step)> hears = {};
  /// Hears every tensor of a training step before any further listener does. It
  /// and on_routing are refused where steps are computed in shares.
  std::function<void(int64_t step, const model::Tensor& tensor)> on_tensor = {};
  std::function<void(int64_t step, std::string_view module,
                     MatrixView<const int32_t> expert_ids)>
      on_routing = {};
  /// The run ends after its current step when this becomes true; may be null.
  /// Any one of several processes may raise it.
  const std::atomic<bool>* stop = nullptr;
};

/// The optimizer computes the next weights from these inputs.
struct OptimizerInputs {
  double lr;
  double clip_coefficient;
  optim::AdamW& adamw;
};

/// Faults are injected, and runs are perturbed on purpose, with these
/// functions. Seams that compute take effect below the options of a log. A seam
/// that gets tensors gets them in the host's memory.
struct Seams {
  using ParameterEdit = std::function<void(int64_t step, model::ParameterSet&)>;

  TransportFactory make_transport = {};
  /// The text of an event `mutant` with which the log of a new run begins. It
  /// names what the seams perturb on purpose. An execution that goes on with a
  /// run must perturb the same. Empty: nothing.
  std::string perturbation = {};
  /// Called at the start of every training step, also of a step that is
  /// computed again.
  std::function<void(int64_t step)> before_step = {};
  /// Computes the products of linear layers; empty: kernels::GemmBatch.
  model::GemmEngine gemm_engine = {};
  /// May change the decisions of routers.
  model::RoutingEdit edit_routing = {};
  /// Chooses the experts of training steps, whatever [routing] says; must stay
  /// valid.
  const model::RoutingSource* routing = nullptr;
  /// Wraps the exchange of each MoE layer.
  expert_parallel::ExchangeDecorator decorate_exchange = {};
  /// Gets the update before it is made, and may change it.
  std::function<void(int64_t step, OptimizerInputs& inputs)> before_optimizer =
      {};
  /// Gets the initial weights of this process before anything is computed with
  /// them.
  std::function<void(model::ParameterSet&)> edit_initial_weights = {};
  /// Get the gradients of this process, as Backward left them and as they will
  /// update the weights. They may change them.
  ParameterEdit after_backward = {};
  ParameterEdit before_update = {};
  /// Gets the weights and expert biases [MoE layers, E] of this process, as the
  /// next step will use them. May change them.
  std::function<void(int64_t step, model::ParameterSet& weights,
                     MatrixView<float> expert_bias)>
      after_update = {};
};

struct RunHooks : Observer, Seams {};

}  // namespace isoloss::train
