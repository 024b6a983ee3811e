#include "isoloss/train/learner.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <span>
#include <utility>

#include "isoloss/base/digest.h"
#include "isoloss/base/error.h"
#include "isoloss/base/nearest_name.h"
#include "isoloss/expert_parallel/collectives.h"
#include "isoloss/expert_parallel/replica_check.h"
#include "isoloss/model/announce.h"
#include "isoloss/optim/clip.h"
#include "isoloss/optim/expert_bias.h"
#include "isoloss/precision/recipe.h"
#include "isoloss/train/mesh_setup.h"
#include "isoloss/train/process_sums.h"
#include "isoloss/train/run_description.h"
#include "isoloss/train/step_columns.h"
#include "isoloss/train/step_tap.h"

namespace isoloss::train {
namespace {

using Clock = std::chrono::steady_clock;

/// The `share`-th of `shares` equal runs of a batch's sequences. Each sequence
/// is one document; ends count from the run's first token, in `ends`.
model::TokenBatch ShareOf(const corpus::Batch& batch, size_t shares,
                          size_t share, std::vector<size_t>& ends) {
  const size_t sequences = batch.sequence_ends.size() / shares;
  const size_t tokens = batch.tokens.size() / shares;
  ends.assign(
      batch.sequence_ends.begin(),
      batch.sequence_ends.begin() + static_cast<std::ptrdiff_t>(sequences));
  ISOLOSS_ASSERT(ends.back() == tokens);
  const auto part = [&](const std::vector<int32_t>& values) {
    return std::span(values).subspan(share * tokens, tokens);
  };
  return {.tokens = part(batch.tokens),
          .labels = part(batch.labels),
          .positions = part(batch.positions),
          .document_ends = ends,
          .sequence_ends = ends};
}

optim::Schedule MakeSchedule(const TrainConfig& train) {
  return optim::Schedule({.base_lr = train.lr,
                          .total_steps = train.steps,
                          .warmup_steps = train.warmup_steps,
                          .decay_ratio = train.decay_ratio,
                          .decay = train.decay_type,
                          .min_lr_factor = train.min_lr_factor});
}

std::vector<optim::Tensor> Pair(std::span<model::Parameter> parameters,
                                std::span<const model::Parameter> gradients) {
  std::vector<optim::Tensor> tensors;
  for (size_t i = 0; i < parameters.size(); ++i) {
    Matrix<float>& values = parameters[i].values;
    const Matrix<float>& gradient = gradients[i].values;
    tensors.push_back(
        {{values.data(), values.size()}, {gradient.data(), gradient.size()}});
  }
  return tensors;
}

void Copy(const model::ParameterSet& from, model::ParameterSet& to) {
  for (size_t i = 0; i < from.parameters().size(); ++i) {
    to.parameters()[i].values.CopyFrom(from.parameters()[i].values);
  }
}

/// to = from - to.
void SubtractFrom(const model::ParameterSet& from, model::ParameterSet& to) {
  for (size_t i = 0; i < from.parameters().size(); ++i) {
    const Matrix<float>& minuend = from.parameters()[i].values;
    Matrix<float>& difference = to.parameters()[i].values;
    for (size_t j = 0; j < difference.size(); ++j) {
      difference.data()[j] = minuend.data()[j] - difference.data()[j];
    }
  }
}

/// Writes down what it hears of.
class NameSink : public model::TapSink {
 public:
  void OnTensor(const model::Tensor& tensor) override {
    names.push_back(tensor.Name());
  }
  void OnRouting(std::string_view /*module*/,
                 MatrixView<const int32_t> /*expert_ids*/,
                 size_t /*first_token*/) override {}

  std::vector<std::string> names;
};

/// Throws ConfigError unless every pattern of log.`key` matches a name.
void RequireMatches(const Experiment& experiment, const char* key,
                    const std::vector<std::string>& patterns,
                    const std::vector<std::string>& names) {
  for (const std::string& pattern : patterns) {
    if (std::any_of(names.begin(), names.end(), [&](const std::string& name) {
          return precision::SiteMatches(pattern, name);
        })) {
      continue;
    }
    ThrowError(ErrorKind::kConfig,
               "{}: log.{} holds `{}`, but none of the {} tensors of a step "
               "matches it, such as {}. Correct the pattern.{}",
               experiment.path.string(), key, pattern, names.size(),
               names.front(), DidYouMean(pattern, names));
  }
}

}  // namespace

Learner::Learner(const Experiment& experiment, const Arm& arm, uint64_t seed,
                 const corpus::Corpus& corpus, ThreadTeam& team,
                 const RunHooks& hooks, probes::ProbeOptions probe,
                 expert_parallel::Mesh& mesh)
    : config_(experiment.model),
      train_(experiment.train),
      log_config_(experiment.log),
      seed_(seed),
      team_(team),
      hooks_(hooks),
      mesh_(mesh),
      batches_(corpus, experiment.data.sequence_length,
               experiment.log.eval_sequences),
      parameters_(config_, mesh_.experts()),
      gradients_(config_, mesh_.experts()),
      expert_bias_(config_.n_moe_layers(), config_.num_experts),
      transformer_(config_, RecipeOf(arm), team, mesh_),
      adamw_({.beta1 = train_.beta1,
              .beta2 = train_.beta2,
              .eps = train_.eps,
              .weight_decay = train_.weight_decay},
             Pair(parameters_.parameters(), gradients_.parameters())),
      schedule_(MakeSchedule(train_)),
      probe_(std::move(probe), mesh, team) {
  if (corpus.vocab_size() > config_.vocab_size) {
    ThrowError(ErrorKind::kConfig,
               "{}: [model] vocab_size is {}, but the corpus has {} different "
               "tokens. Raise vocab_size.",
               experiment.path.string(), config_.vocab_size,
               corpus.vocab_size());
  }
  SetRouting(experiment);
  CheckAgreement(experiment, arm, corpus);
  transformer_.SetGemmEngine(hooks.gemm_engine);
  transformer_.SetRoutingEdit(hooks.edit_routing);
  model::InitializeParameters(config_, seed, parameters_);
  // What perturbs a run works underneath what its log declares.
  const bool declared = hooks.perturbation.empty();
  if (declared && hooks.edit_initial_weights) {
    hooks.edit_initial_weights(parameters_);
  }
  provenance_ = DescribeRun(experiment, arm, seed, corpus, parameters_,
                            replay_ ? &*replay_ : nullptr, team.size(), mesh_);
  if (!declared && hooks.edit_initial_weights) {
    hooks.edit_initial_weights(parameters_);
  }
  transformer_.LoadWeights(parameters_);
  transformer_.LoadExpertBias(expert_bias_.view());
  CheckPatterns(experiment);
}

void Learner::SetRouting(const Experiment& experiment) {
  if (hooks_.routing != nullptr) {
    routing_ = hooks_.routing;
    return;
  }
  switch (experiment.routing.mode) {
    case RoutingMode::kLearned:
      return;
    case RoutingMode::kForcedBalance:
      routing_ = &forced_balance_.emplace(config_.num_experts);
      return;
    case RoutingMode::kReplay:
      replay_.emplace(experiment.ReplayPath(seed_), ShapeOf(experiment));
      routing_ = &replayed_step_.emplace(*replay_);
  }
}

/// Processes that were given different files would train a model that nobody
/// asked for.
void Learner::CheckAgreement(const Experiment& experiment, const Arm& arm,
                             const corpus::Corpus& corpus) {
  Digest digest;
  digest.Update(experiment.ConfigText());
  digest.Update(RecipeOf(arm).name);
  digest.Update(transformer_.recipe().Describe());
  digest.Update(DescribeExchange(experiment, arm));
  for (const uint64_t number :
       {seed_, corpus.digest(), replay_ ? replay_->digest() : 0}) {
    digest.Update(&number, sizeof(number));
  }
  expert_parallel::CheckReplicas(
      mesh_, digest.Value(),
      "experiment, arm, seed, corpus and replayed routing");
}

/// Of one step, by a pass over the first batch that leaves nothing behind.
std::vector<std::string> Learner::TensorNames() {
  NameSink sink;
  mesh_.BeginStep(0);
  if (replayed_step_) replayed_step_->BeginStep(1);
  batches_.Training(seed_, 1, train_.sequences_per_batch, batch_);
  const model::TokenBatch tokens = Share();
  transformer_.SetRouting(routing_);
  transformer_.AnnounceWeights(parameters_, sink);
  transformer_.Forward(tokens, &sink);
  transformer_.Backward(tokens, gradients_, &sink);
  mesh_.exchanges().CheckConservation();
  if (mesh_.transport() != nullptr) mesh_.transport()->TakeCounters();
  for (const auto kind : {model::TensorKind::kWgrad, model::TensorKind::kUpdate,
                          model::TensorKind::kParameter}) {
    model::AnnounceParameters(kind, gradients_, mesh_, sink);
  }
  return sink.names;
}

/// A pattern that matches nothing would show itself by what is missing after
/// hours of training.
void Learner::CheckPatterns(const Experiment& experiment) {
  const LogConfig& log = experiment.log;
  const bool all = log.statistics_tensors == std::vector<std::string>{"*"};
  if (all && log.dump_tensors.empty()) return;
  const std::vector<std::string> names = TensorNames();
  RequireMatches(experiment, "statistics_tensors", log.statistics_tensors,
                 names);
  RequireMatches(experiment, "dump_tensors", log.dump_tensors, names);
}

model::TokenBatch Learner::Share() {
  return ShareOf(batch_, mesh_.processes(), mesh_.process(), share_ends_);
}

/// Forward and backward pass of a step: the loss, and the gradient of the whole
/// batch.
double Learner::Differentiate(int64_t step, model::TapSink* tap) {
  if (hooks_.before_step) hooks_.before_step(step);
  mesh_.BeginStep(step);
  if (replayed_step_) replayed_step_->BeginStep(step);
  batches_.Training(seed_, step, train_.sequences_per_batch, batch_);
  const model::TokenBatch tokens = Share();
  transformer_.SetRouting(routing_);
  if (tap != nullptr) transformer_.AnnounceWeights(parameters_, *tap);
  const double loss = transformer_.Forward(tokens, tap);
  transformer_.Backward(tokens, gradients_, tap);
  if (hooks_.after_backward) hooks_.after_backward(step, gradients_);
  SumGradients(gradients_, mesh_);
  mesh_.exchanges().CheckConservation();
  if (hooks_.before_update) hooks_.before_update(step, gradients_);
  if (tap != nullptr) {
    model::AnnounceParameters(model::TensorKind::kWgrad, gradients_, mesh_,
                              *tap);
  }
  return loss;
}

bool Learner::Step(int64_t step, runlog::RunLog& rows) {
  const auto start = Clock::now();
  const int64_t quantized_before = transformer_.quantized_gemms();
  StepTap tap(step, hooks_, probe_.Wants(step) ? &probe_ : nullptr);
  if (probe_.Wants(step)) probe_.BeginStep(step);
  const double loss = Differentiate(step, tap.IfHeard());

  const std::vector<double> squares = GradientSquares(gradients_, mesh_, team_);
  const double norm = optim::GlobalNorm(squares);
  const double lr = schedule_.LearningRate(step - 1);
  const bool finite = std::isfinite(loss) && std::isfinite(norm);
  std::vector<double> ratios(squares.size(), 0.0);
  if (finite) {
    ratios = Update(step, lr, norm, tap.IfHeard());
  } else if (tap.IfHeard() != nullptr) {
    // Every step has the same tensors: weights as they were, and no change.
    const model::ParameterSet change(config_, mesh_.experts());
    model::AnnounceParameters(model::TensorKind::kParameter, parameters_, mesh_,
                              tap);
    model::AnnounceParameters(model::TensorKind::kUpdate, change, mesh_, tap);
  }
  if (probe_.Wants(step)) probe_.EndStep(rows);

  const double seconds =
      std::chrono::duration<double>(Clock::now() - start).count();
  const int64_t tokens = provenance_.tokens_per_step;
  // What any process left out of what it was asked for.
  const int64_t missing = expert_parallel::Sum(
      mesh_, transformer_.quantized_gemms_per_step() -
                 (transformer_.quantized_gemms() - quantized_before));
  const MatrixView<const int64_t> counts = transformer_.tokens_per_expert();
  RecordMoe(step, transformer_, expert_bias_.view(), log_config_.routing,
            replay_.has_value(), mesh_, rows.moe);
  RecordExchange(step, transformer_, mesh_, bytes_by_pair_, rows.exchange);
  RecordParameters(step, parameters_, squares, ratios, rows.parameters);
  rows.steps.Append(
      {.step = step,
       .tokens_seen = step * tokens,
       .loss_nats = loss,
       .grad_norm = norm,
       .lr = lr,
       .step_seconds = seconds,
       .tokens_per_second = static_cast<double>(tokens) / seconds,
       .expert_load_max_over_mean = LoadMaxOverMean(counts),
       .dead_experts = DeadExperts(counts),
       .quantized_gemms = provenance_.quantized_gemms_per_step - missing,
       .batch_digest = BatchDigest(batch_)});
  return finite;
}

/// Biases, then weights; not before every process has come this far. Returns
/// the update ratio of each parameter.
std::vector<double> Learner::Update(int64_t step, double lr, double norm,
                                    model::TapSink* tap) {
  expert_parallel::AwaitAll(mesh_);
  const MatrixView<const int64_t> counts = transformer_.tokens_per_expert();
  for (size_t layer = 0; layer < counts.rows(); ++layer) {
    optim::UpdateExpertBias({counts.Row(layer), counts.cols()},
                            static_cast<float>(train_.load_balance_coeff),
                            {expert_bias_.Row(layer), expert_bias_.cols()});
  }
  std::optional<model::ParameterSet> change;
  if (tap != nullptr)
    Copy(parameters_, change.emplace(config_, mesh_.experts()));
  update_squares_.resize(parameters_.parameters().size());
  OptimizerInputs inputs = {lr, optim::ClipCoefficient(norm, train_.clip_norm),
                            adamw_};
  if (hooks_.before_optimizer) hooks_.before_optimizer(step, inputs);
  adamw_.Step(inputs.lr, inputs.clip_coefficient, team_, update_squares_);
  if (hooks_.after_update) {
    hooks_.after_update(step, parameters_, expert_bias_.view());
  }
  if (tap != nullptr) {
    model::AnnounceParameters(model::TensorKind::kParameter, parameters_, mesh_,
                              *tap);
    SubtractFrom(parameters_, *change);
    model::AnnounceParameters(model::TensorKind::kUpdate, *change, mesh_, *tap);
  }
  constexpr int64_t kReplicaCheckEvery = 10;
  if (step % kReplicaCheckEvery == 0 || step == train_.steps) {
    CheckReplicas(parameters_, expert_bias_.view(), mesh_);
  }
  transformer_.LoadWeights(parameters_);
  transformer_.LoadExpertBias(expert_bias_.view());
  return UpdateRatios(parameters_, update_squares_, mesh_);
}

std::vector<probes::NonFinite> Learner::LocateNonFinite(int64_t step) {
  probes::NonFiniteCounter counter(team_);
  Differentiate(step, &counter);
  if (mesh_.transport() != nullptr) mesh_.transport()->TakeCounters();
  return counter.Finish(mesh_);
}

/// In batches of the training size, so that memory does not grow.
void Learner::Evaluate(int64_t step, runlog::EvalColumns& eval) {
  std::vector<double> losses;  // one per sequence
  const size_t sequences = batches_.held_out_sequences();
  // A replayed log knows training batches only.
  transformer_.SetRouting(replay_ ? nullptr : routing_);
  while (losses.size() < sequences) {
    const size_t first = losses.size();
    batches_.HeldOut(
        first, std::min(train_.sequences_per_batch, sequences - first), batch_);
    transformer_.Forward(Share());
    const std::span<const float> tokens = transformer_.token_losses();
    std::vector<double> mine;
    size_t begin = 0;
    for (const size_t end : share_ends_) {
      double sum = 0;
      for (size_t t = begin; t < end; ++t)
        sum += static_cast<double>(tokens[t]);
      mine.push_back(sum / static_cast<double>(end - begin));
      begin = end;
    }
    const std::vector<double> all = expert_parallel::Gather(mesh_, mine);
    losses.insert(losses.end(), all.begin(), all.end());
  }
  mesh_.exchanges().CheckConservation();
  if (mesh_.transport() != nullptr) mesh_.transport()->TakeCounters();
  double sum = 0;
  for (const double loss : losses) sum += loss;
  eval.sequences = static_cast<int64_t>(sequences);
  eval.step = {step};
  eval.loss_nats = {sum / static_cast<double>(sequences)};
  eval.per_sequence_loss_nats = std::move(losses);
}

void Learner::Load(const checkpoint::Checkpoint& checkpoint) {
  LoadTrainingState(checkpoint, config_, State(), mesh_);
  if (adamw_.steps() != checkpoint.step()) {
    ThrowError(ErrorKind::kFormat,
               "{}: it is of step {}, but its optimizer has made {} steps. Use "
               "another checkpoint.",
               checkpoint.folder().string(), checkpoint.step(), adamw_.steps());
  }
  transformer_.LoadWeights(parameters_);
  transformer_.LoadExpertBias(expert_bias_.view());
}

void Learner::GoOnFrom(TrainingState other) {
  Copy(other.parameters, parameters_);
  const auto copy = [](std::span<Matrix<float>> from,
                       std::span<Matrix<float>> to) {
    for (size_t i = 0; i < to.size(); ++i) to[i].CopyFrom(from[i]);
  };
  copy(other.adamw.first_moments(), adamw_.first_moments());
  copy(other.adamw.second_moments(), adamw_.second_moments());
  adamw_.Restore(other.adamw.steps());
  for (size_t layer = 0; layer < expert_bias_.rows(); ++layer) {
    std::copy_n(other.expert_bias.Row(layer), expert_bias_.cols(),
                expert_bias_.Row(layer));
  }
  transformer_.LoadWeights(parameters_);
  transformer_.LoadExpertBias(expert_bias_.view());
}

uint64_t Learner::WeightsDigest() {
  return WholeDigest(config_, parameters_, mesh_);
}

}  // namespace isoloss::train
