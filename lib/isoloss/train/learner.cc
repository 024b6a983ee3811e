#include "isoloss/train/learner.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "isoloss/base/error.h"
#include "isoloss/expert_parallel/collectives.h"
#include "isoloss/kernels/rowwise.h"
#include "isoloss/model/announce.h"
#include "isoloss/optim/clip.h"
#include "isoloss/optim/expert_bias.h"
#include "isoloss/runlog/model_graph.h"
#include "isoloss/train/process_sums.h"

namespace isoloss::train {
namespace {

optim::Schedule MakeSchedule(const TrainConfig& train) {
  return optim::Schedule({.base_lr = train.lr,
                          .total_steps = train.steps,
                          .warmup_steps = train.warmup_steps,
                          .decay_ratio = train.decay_ratio,
                          .decay = train.decay_type,
                          .min_lr_factor = train.min_lr_factor});
}

std::vector<optim::Tensor> Pair(std::span<model::Parameter> parameters,
                                std::span<model::Parameter> gradients) {
  std::vector<optim::Tensor> tensors;
  for (size_t i = 0; i < parameters.size(); ++i) {
    Matrix<float>& values = parameters[i].values;
    Matrix<float>& gradient = gradients[i].values;
    tensors.push_back(
        {{values.data(), values.size()}, {gradient.data(), gradient.size()}});
  }
  return tensors;
}

/// Computes to = from - to.
void SubtractFrom(const model::ParameterSet& from, model::ParameterSet& to,
                  Executor& executor) {
  for (size_t i = 0; i < from.parameters().size(); ++i) {
    const MatrixView<float> difference = to.parameters()[i].values.view();
    kernels::Subtract(from.parameters()[i].values.view(), difference,
                      difference, executor);
  }
}

/// Refuses what works on elements where only kernels can reach them.
void RequireHost(const Seams& seams, const expert_parallel::Mesh& mesh) {
  const auto refuse = [](const char* what) {
    ThrowError(ErrorKind::kConfig,
               "Learner: there is {}, but the tensors are not in the host's "
               "memory. Train with parallel.on = \"cpu\".",
               what);
  };
  if (seams.gemm_engine) refuse("an engine for products (gemm_engine)");
  if (seams.decorate_exchange) {
    refuse("a wrapped exchange (decorate_exchange)");
  }
  if (seams.before_optimizer) {
    refuse("a changed update (before_optimizer)");
  }
  if (mesh.processes() > 1) refuse("a mesh of several processes");
}

}  // namespace

Learner::Learner(const model::ModelConfig& model, const TrainConfig& train,
                 std::vector<Phase> phases, uint64_t seed, Executor& executor,
                 const Seams& seams, expert_parallel::Mesh& mesh)
    : config_(model),
      train_(train),
      executor_(executor),
      seams_(seams),
      mesh_(mesh),
      seed_(seed),
      parameters_(config_, mesh_.experts(), executor.memory()),
      gradients_(config_, mesh_.experts(), executor.memory()),
      fold_(config_, executor_, gradients_),
      expert_bias_(config_.n_moe_layers(), config_.num_experts),
      phases_(std::move(phases)),
      adamw_({.beta1 = train_.beta1,
              .beta2 = train_.beta2,
              .eps = train_.eps,
              .weight_decay = train_.weight_decay},
             Pair(parameters_.parameters(), gradients_.parameters()),
             executor.memory()),
      schedule_(MakeSchedule(train_)) {
  if (!executor.memory().is_host()) RequireHost(seams, mesh);
  MakeModel();
  model::InitializeParameters(seed, parameters_);
  LoadWeights();
}

void Learner::MakeModel() {
  std::vector<precision::Recipe> others;
  for (size_t i = 0; i < phases_.size(); ++i) {
    if (i != phase_) others.push_back(phases_[i].recipe);
  }
  transformer_.emplace(config_, phases_[phase_].recipe, executor_, mesh_,
                       others);
  transformer_->SetGemmEngine(seams_.gemm_engine);
  transformer_->SetRoutingEdit(seams_.edit_routing);
}

void Learner::BeginStep(int64_t step) {
  const size_t phase = runlog::PhaseAt(phases_, step);
  if (phase == phase_) return;
  phase_ = phase;
  // It is the same for the recipes of all phases.
  model::AmaxHistory history = std::move(transformer_->amax_history());
  transformer_.reset();
  mesh_.exchanges().Forget();
  MakeModel();
  transformer_->amax_history() = std::move(history);
  LoadWeights();
}

void Learner::EditInitialWeights(
    const std::function<void(model::ParameterSet&)>& edit) {
  model::EditOnHost(parameters_, edit);
  LoadWeights();
}

/// Loads the weights; the model rounds and quantises them in each product.
void Learner::LoadWeights() {
  transformer_->SetStep({seed_, static_cast<uint64_t>(adamw_.steps()) + 1});
  transformer_->LoadWeights(parameters_);
  transformer_->LoadExpertBias(expert_bias_.view());
}

double Learner::Differentiate(int64_t step, const model::TokenBatch& tokens,
                              model::TapSink* tap) {
  ISOLOSS_ASSERT(runlog::PhaseAt(phases_, step) == phase_);
  if (seams_.before_step) seams_.before_step(step);
  mesh_.BeginStep(step);
  if (tap != nullptr) {
    // Backward overwrites the gradients; until then they have room for the
    // tensors that are announced.
    transformer_->AnnounceWeights(parameters_, gradients_, *tap);
  }
  double loss = 0;
  fold_.Run(
      tokens, mesh_,
      [&](const model::TokenBatch& share, model::ParameterSet& gradients) {
        loss = transformer_->Forward(share, tap);
        transformer_->Backward(share, gradients, tap);
      });
  EditGradients(seams_.after_backward, step);
  SumGradients(gradients_, mesh_);
  transformer_->RoundWeightGradients(gradients_);
  mesh_.exchanges().CheckConservation();
  EditGradients(seams_.before_update, step);
  if (tap != nullptr) {
    model::AnnounceParameters(model::TensorKind::kWgrad, gradients_, mesh_,
                              *tap);
  }
  return loss;
}

void Learner::EditGradients(const Seams::ParameterEdit& edit, int64_t step) {
  if (!edit) return;
  model::EditOnHost(gradients_, [&](model::ParameterSet& gradients) {
    edit(step, gradients);
  });
}

StepFigures Learner::Step(int64_t step, const model::TokenBatch& tokens,
                          model::TapSink* tap) {
  StepFigures figures;
  figures.loss_nats = Differentiate(step, tokens, tap);
  figures.gradient_squares = GradientSquares(gradients_, mesh_, executor_);
  figures.grad_norm = optim::GlobalNorm(figures.gradient_squares);
  figures.lr = schedule_.LearningRate(step - 1);
  if (figures.finite()) {
    figures.update_ratios = Update(step, figures.lr, figures.grad_norm, tap);
    return figures;
  }
  figures.update_ratios.resize(figures.gradient_squares.size());
  if (tap != nullptr) {
    // Every step announces the same tensors; here the weights stay, and their
    // change is 0.
    gradients_.SetZero();
    model::AnnounceParameters(model::TensorKind::kParameter, parameters_, mesh_,
                              *tap);
    model::AnnounceParameters(model::TensorKind::kUpdate, gradients_, mesh_,
                              *tap);
  }
  return figures;
}

/// Updates the biases, then the weights, but not before every process has come
/// this far. Returns the update ratio of each parameter.
std::vector<double> Learner::Update(int64_t step, double lr, double norm,
                                    model::TapSink* tap) {
  expert_parallel::AwaitAll(mesh_);
  const MatrixView<const int64_t> counts = transformer_->tokens_per_expert();
  for (size_t layer = 0; layer < counts.rows(); ++layer) {
    optim::UpdateExpertBias({counts.Row(layer), counts.cols()},
                            static_cast<float>(train_.load_balance_coeff),
                            {expert_bias_.Row(layer), expert_bias_.cols()});
  }
  // A seam may change parameters as well; otherwise the optimizer keeps the
  // values.
  std::optional<model::ParameterSet> copy;
  if (tap != nullptr && seams_.before_optimizer) copy = parameters_.HostCopy();
  update_squares_.resize(parameters_.parameters().size());
  OptimizerInputs inputs = {lr, optim::ClipCoefficient(norm, train_.clip_norm),
                            adamw_};
  if (seams_.before_optimizer) seams_.before_optimizer(step, inputs);
  if (tap != nullptr && !copy) {
    adamw_.StepKeepingParameters(inputs.lr, inputs.clip_coefficient, executor_,
                                 update_squares_);
  } else {
    adamw_.Step(inputs.lr, inputs.clip_coefficient, executor_, update_squares_);
  }
  if (seams_.after_update) {
    model::EditOnHost(parameters_, [&](model::ParameterSet& weights) {
      seams_.after_update(step, weights, expert_bias_.view());
    });
  }
  if (tap != nullptr) {
    model::AnnounceParameters(model::TensorKind::kParameter, parameters_, mesh_,
                              *tap);
    model::ParameterSet& change = copy ? *copy : gradients_;
    SubtractFrom(parameters_, change, executor_);
    model::AnnounceParameters(model::TensorKind::kUpdate, change, mesh_, *tap);
  }
  constexpr int64_t kReplicaCheckEvery = 10;
  if (step % kReplicaCheckEvery == 0 || step == train_.steps) {
    CheckReplicas(parameters_, expert_bias_.view(), mesh_);
  }
  transformer_->amax_history().EndStep(mesh_);
  LoadWeights();
  return UpdateRatios(parameters_, update_squares_, mesh_);
}

void Learner::Load(const checkpoint::Checkpoint& checkpoint,
                   std::vector<int64_t>& bytes_by_pair) {
  LoadTrainingState(checkpoint, config_, State(bytes_by_pair), mesh_);
  transformer_->amax_history().Restore(adamw_.steps());
  if (adamw_.steps() != checkpoint.step()) {
    ThrowError(ErrorKind::kFormat,
               "{}: it is of step {}, but its optimizer has made {} steps. Use "
               "another checkpoint.",
               checkpoint.folder().string(), checkpoint.step(), adamw_.steps());
  }
  LoadWeights();
}

void Learner::GoOnFrom(TrainingState other) {
  parameters_.CopyFrom(other.parameters);
  const auto copy = [](std::span<Matrix<float>> from,
                       std::span<Matrix<float>> to) {
    for (size_t i = 0; i < to.size(); ++i) to[i].CopyFrom(from[i]);
  };
  copy(other.adamw.first_moments(), adamw_.first_moments());
  copy(other.adamw.second_moments(), adamw_.second_moments());
  adamw_.Restore(other.adamw.steps());
  const MatrixView<float> amax = transformer_->amax_history().values();
  if (other.amax_history.rows() == amax.rows() &&
      other.amax_history.cols() == amax.cols()) {
    for (size_t row = 0; row < amax.rows(); ++row) {
      std::copy_n(other.amax_history.Row(row), amax.cols(), amax.Row(row));
    }
    transformer_->amax_history().Restore(other.adamw.steps());
  }
  for (size_t layer = 0; layer < expert_bias_.rows(); ++layer) {
    std::copy_n(other.expert_bias.Row(layer), expert_bias_.cols(),
                expert_bias_.Row(layer));
  }
  LoadWeights();
}

}  // namespace isoloss::train
