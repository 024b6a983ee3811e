// Holds a model and its optimizer: what one process computes of a training
// step.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "isoloss/base/executor.h"
#include "isoloss/base/matrix.h"
#include "isoloss/checkpoint/checkpoint.h"
#include "isoloss/expert_parallel/mesh.h"
#include "isoloss/model/parameters.h"
#include "isoloss/model/tokens.h"
#include "isoloss/model/transformer.h"
#include "isoloss/optim/adamw.h"
#include "isoloss/optim/schedule.h"
#include "isoloss/precision/recipe.h"
#include "isoloss/train/batch_shares.h"
#include "isoloss/train/config.h"
#include "isoloss/train/run_hooks.h"
#include "isoloss/train/training_state.h"

namespace isoloss::train {

/// A training step produces these figures.
struct StepFigures {
  double loss_nats = 0;
  double grad_norm = 0;
  double lr = 0;
  std::vector<double> gradient_squares;  ///< of each parameter
  std::vector<double> update_ratios;     ///< 0 if nothing was updated

  bool finite() const {
    return std::isfinite(loss_nats) && std::isfinite(grad_norm);
  }
};

/// Trains with the processes of a mesh. All of them must call every method at
/// the same point, each with its part of a batch. Tensors lie in the
/// executor's memory; listeners and seams of the host get copies.
class Learner {
 public:
  /// Each step is computed with the recipe of its phase.
  struct Phase {
    int64_t first_step = 1;
    precision::Recipe recipe;
  };

  /// Prepares the first step. All references must stay valid.
  /// Errors   ConfigError that names what cannot be had if the executor's
  ///          memory is not the host's: several processes, and the seams
  ///          gemm_engine, decorate_exchange and before_optimizer.
  Learner(const model::ModelConfig& model, const TrainConfig& train,
          std::vector<Phase> phases, uint64_t seed, Executor& executor,
          const Seams& seams, expert_parallel::Mesh& mesh);

  /// Makes the model that of the step's phase. Call it before each step. A new
  /// model has no routing (Transformer::SetRouting).
  void BeginStep(int64_t step);

  void EditInitialWeights(
      const std::function<void(model::ParameterSet&)>& edit);

  /// Runs the forward and backward pass, of one share of the batch after the
  /// other. Returns the loss; gradients() are those of the whole batch. `tap`
  /// may be null; it hears the shares in turn.
  double Differentiate(int64_t step, const model::TokenBatch& tokens,
                       model::TapSink* tap);
  /// Runs forward, backward and update (docs/model.md, section 11). Updates
  /// nothing unless the figures are finite.
  StepFigures Step(int64_t step, const model::TokenBatch& tokens,
                   model::TapSink* tap);

  model::Transformer& transformer() { return *transformer_; }
  const model::ParameterSet& parameters() const { return parameters_; }
  model::ParameterSet& gradients() { return gradients_; }
  MatrixView<const float> expert_bias() const { return expert_bias_.view(); }

  /// Goes on after a checkpoint.
  void Load(const checkpoint::Checkpoint& checkpoint,
            std::vector<int64_t>& bytes_by_pair);
  /// Goes on from the weights, moments and biases of another Learner of the
  /// same model on the same processes. A history of delayed scaling is taken
  /// over, too, if both look back alike; otherwise each keeps its own.
  void GoOnFrom(TrainingState other);
  /// Returns the state that SaveTrainingState saves.
  TrainingState State(std::vector<int64_t>& bytes_by_pair) {
    return {parameters_,         adamw_,
            expert_bias_.view(), transformer_->amax_history().values(),
            bytes_by_pair,       executor_};
  }

 private:
  void MakeModel();
  void LoadWeights();
  void EditGradients(const Seams::ParameterEdit& edit, int64_t step);
  std::vector<double> Update(int64_t step, double lr, double norm,
                             model::TapSink* tap);

  const model::ModelConfig& config_;
  const TrainConfig& train_;
  Executor& executor_;
  const Seams& seams_;
  expert_parallel::Mesh& mesh_;
  const uint64_t seed_;  ///< of the run
  model::ParameterSet parameters_;
  model::ParameterSet gradients_;
  GradientFold fold_;
  Matrix<float> expert_bias_;  // [MoE layers, experts]
  const std::vector<Phase> phases_;
  size_t phase_ = 0;  // of transformer_
  std::optional<model::Transformer> transformer_;
  optim::AdamW adamw_;
  optim::Schedule schedule_;
  std::vector<optim::UpdateSquares> update_squares_;
};

}  // namespace isoloss::train
