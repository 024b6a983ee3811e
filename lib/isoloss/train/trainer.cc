#include "isoloss/train/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <exception>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "isoloss/base/build_info.h"
#include "isoloss/base/digest.h"
#include "isoloss/base/error.h"
#include "isoloss/base/matrix.h"
#include "isoloss/corpus/batches.h"
#include "isoloss/expert_parallel/mesh.h"
#include "isoloss/kernels/targets.h"
#include "isoloss/model/parameters.h"
#include "isoloss/model/transformer.h"
#include "isoloss/optim/adamw.h"
#include "isoloss/optim/clip.h"
#include "isoloss/optim/expert_bias.h"
#include "isoloss/optim/schedule.h"
#include "isoloss/precision/recipe.h"
#include "isoloss/train/exchange_log.h"
#include "isoloss/train/process_sums.h"
#include "isoloss/train/routing_replay.h"

namespace isoloss::train {
namespace {

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

/// A replayed step's ids as the model asks for them.
class ReplayedStep : public model::RoutingSource {
 public:
  explicit ReplayedStep(const RoutingReplay& replay) : replay_(replay) {}
  void BeginStep(int64_t step) { step_ = step; }
  void Choose(size_t layer, size_t token,
              std::span<int32_t> expert_ids) const override {
    const auto ids = replay_.Ids(step_, layer);
    std::copy_n(ids.Row(token), expert_ids.size(), expert_ids.begin());
  }

 private:
  const RoutingReplay& replay_;
  int64_t step_ = 0;
};

/// Busiest expert over the mean of its layer, worst layer; NaN without experts.
double LoadMaxOverMean(MatrixView<const int64_t> counts) {
  double worst = std::numeric_limits<double>::quiet_NaN();
  for (size_t layer = 0; layer < counts.rows(); ++layer) {
    int64_t sum = 0;
    int64_t busiest = 0;
    for (size_t e = 0; e < counts.cols(); ++e) {
      sum += counts(layer, e);
      busiest = std::max(busiest, counts(layer, e));
    }
    const double ratio = static_cast<double>(busiest) *
                         static_cast<double>(counts.cols()) /
                         static_cast<double>(sum);
    worst = std::fmax(worst, ratio);
  }
  return worst;
}

int64_t DeadExperts(MatrixView<const int64_t> counts) {
  int64_t dead = 0;
  for (size_t layer = 0; layer < counts.rows(); ++layer) {
    dead += std::count(counts.Row(layer), counts.Row(layer) + counts.cols(), 0);
  }
  return dead;
}

double UnixSeconds() {
  return std::chrono::duration<double>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

class Trainer {
 public:
  Trainer(const Experiment& experiment, const Arm& arm, uint64_t seed,
          const corpus::Corpus& corpus, ThreadTeam& team, const RunHooks& hooks,
          expert_parallel::Mesh& mesh);

  runlog::RunLog Run();

 private:
  runlog::Provenance Describe(const Experiment& experiment, const Arm& arm,
                              const corpus::Corpus& corpus);
  void AddEvent(const std::string& kind, const std::string& text);
  /// This process's part of the batch that is being worked on.
  model::TokenBatch Share() {
    return ShareOf(batch_, mesh_.processes(), mesh_.process(), share_ends_);
  }
  void SetRouting(const Experiment& experiment);
  void CheckAgreement(const Experiment& experiment, const Arm& arm,
                      const corpus::Corpus& corpus);
  runlog::StepRow Step(int64_t step);
  void Update(int64_t step, double lr, double norm);
  void Evaluate(int64_t step);

  const model::ModelConfig& config_;
  const TrainConfig& train_;
  const LogConfig& log_config_;
  const uint64_t seed_;
  ThreadTeam& team_;
  const RunHooks& hooks_;
  expert_parallel::Mesh& mesh_;
  corpus::Batches batches_;
  corpus::Batch batch_;  // of all processes
  std::vector<size_t> share_ends_;
  model::ParameterSet parameters_;
  model::ParameterSet gradients_;
  Matrix<float> expert_bias_;  // [MoE layers, experts]
  model::Transformer transformer_;
  std::optional<RoutingReplay> replay_;
  std::optional<ReplayedStep> replayed_step_;
  std::optional<model::ForcedBalance> forced_balance_;
  const model::RoutingSource* routing_ = nullptr;  // of training steps
  optim::AdamW adamw_;
  optim::Schedule schedule_;
  runlog::RunLog log_;
};

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

Trainer::Trainer(const Experiment& experiment, const Arm& arm, uint64_t seed,
                 const corpus::Corpus& corpus, ThreadTeam& team,
                 const RunHooks& hooks, expert_parallel::Mesh& mesh)
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
      schedule_(MakeSchedule(train_)) {
  if (corpus.vocab_size() > config_.vocab_size) {
    ThrowError(ErrorKind::kConfig,
               "{}: [model] vocab_size is {}, but the corpus has {} different "
               "tokens. Raise vocab_size.",
               experiment.path.string(), config_.vocab_size,
               corpus.vocab_size());
  }
  SetRouting(experiment);
  CheckAgreement(experiment, arm, corpus);
  model::InitializeParameters(config_, seed, parameters_);
  if (hooks.edit_initial_weights) hooks.edit_initial_weights(parameters_);
  transformer_.LoadWeights(parameters_);
  transformer_.LoadExpertBias(expert_bias_.view());
  log_.provenance = Describe(experiment, arm, corpus);
}

void Trainer::SetRouting(const Experiment& experiment) {
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
void Trainer::CheckAgreement(const Experiment& experiment, const Arm& arm,
                             const corpus::Corpus& corpus) {
  Digest digest;
  digest.Update(experiment.ConfigText());
  digest.Update(RecipeOf(arm).name);
  digest.Update(transformer_.recipe().Describe());
  digest.Update(DescribeExchange(arm.exchange.Resolved()));
  for (const uint64_t number :
       {seed_, corpus.digest(), replay_ ? replay_->digest() : 0}) {
    digest.Update(&number, sizeof(number));
  }
  mesh_.CheckReplicas(digest.Value(),
                      "experiment, arm, seed, corpus and replayed routing");
}

runlog::Provenance Trainer::Describe(const Experiment& experiment,
                                     const Arm& arm,
                                     const corpus::Corpus& corpus) {
  const BuildInfo build = GetBuildInfo();
  const std::string text = experiment.ResolvedToml();
  const precision::ResolvedRecipe& recipe = transformer_.recipe();
  runlog::Provenance provenance;
  provenance.tool_version = "isoloss " + build.version;
  provenance.commit = build.commit;
  provenance.compiler = build.compiler;
  provenance.cpu_target = kernels::ActiveTarget();
  provenance.experiment_name = experiment.name;
  provenance.experiment_text = text;
  provenance.experiment_digest = DigestToHex(DigestOf(text));
  provenance.config_digest = DigestToHex(DigestOf(experiment.ConfigText()));
  provenance.arm = arm.name;
  provenance.baseline_arm = experiment.arms.front().name;
  provenance.recipe = recipe.recipe().name;
  provenance.resolved_recipe = recipe.Describe();
  provenance.corpus_description = corpus.description();
  provenance.corpus_digest = DigestToHex(corpus.digest());
  provenance.initial_weights_digest =
      DigestToHex(WholeDigest(config_, parameters_, mesh_));
  provenance.seed = static_cast<int64_t>(seed_);
  provenance.steps_planned = train_.steps;
  provenance.tokens_per_step = static_cast<int64_t>(
      train_.sequences_per_batch * experiment.data.sequence_length);
  provenance.parameters =
      static_cast<int64_t>(model::ParameterSet(config_).value_count());
  provenance.workers = team_.size();
  DescribeMesh(experiment, arm, mesh_, provenance);
  if (replay_) {
    provenance.routing += ", ids " + DigestToHex(replay_->digest());
  }
  provenance.quantized_gemms_per_step =
      mesh_.Sum(transformer_.quantized_gemms_per_step());
  provenance.gemms_per_step = mesh_.Sum(transformer_.gemms_per_step());
  provenance.unigram_entropy_nats = corpus.unigram_entropy_nats();
  provenance.entropy_floor_nats = corpus.entropy_floor_nats();
  return provenance;
}

void Trainer::AddEvent(const std::string& kind, const std::string& text) {
  log_.events.push_back({UnixSeconds(), kind, text});
}

/// docs/model.md, section 11: gradients, norm, expert biases, AdamW.
runlog::StepRow Trainer::Step(int64_t step) {
  const auto start = std::chrono::steady_clock::now();
  const int64_t quantized_before = transformer_.quantized_gemms();
  mesh_.BeginStep(step);
  if (replayed_step_) replayed_step_->BeginStep(step);

  batches_.Training(seed_, step, train_.sequences_per_batch, batch_);
  const model::TokenBatch tokens = Share();
  transformer_.SetRouting(routing_);
  const double loss = transformer_.Forward(tokens);
  transformer_.Backward(tokens, gradients_);
  if (hooks_.after_backward) hooks_.after_backward(step, gradients_);
  SumGradients(gradients_, mesh_);
  mesh_.CheckConservation();
  if (hooks_.before_update) hooks_.before_update(step, gradients_);
  const double norm = GradientNorm(gradients_, mesh_, team_);
  const double lr = schedule_.LearningRate(step - 1);
  Update(step, lr, norm);

  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
          .count();
  const MatrixView<const int64_t> counts = transformer_.tokens_per_expert();
  const auto tokens_per_step = log_.provenance.tokens_per_step;
  RecordMoe(step, transformer_, expert_bias_.view(), log_config_.routing, mesh_,
            log_.moe);
  RecordExchange(step, transformer_, mesh_, log_.exchange);
  return {.step = step,
          .tokens_seen = step * tokens_per_step,
          .loss_nats = loss,
          .grad_norm = norm,
          .lr = lr,
          .step_seconds = seconds,
          .tokens_per_second = static_cast<double>(tokens_per_step) / seconds,
          .expert_load_max_over_mean = LoadMaxOverMean(counts),
          .dead_experts = DeadExperts(counts),
          .quantized_gemms =
              mesh_.Sum(transformer_.quantized_gemms() - quantized_before)};
}

/// Biases, then weights; not before every process has come this far.
void Trainer::Update(int64_t step, double lr, double norm) {
  mesh_.AwaitAll();
  const MatrixView<const int64_t> counts = transformer_.tokens_per_expert();
  for (size_t layer = 0; layer < counts.rows(); ++layer) {
    optim::UpdateExpertBias({counts.Row(layer), counts.cols()},
                            static_cast<float>(train_.load_balance_coeff),
                            {expert_bias_.Row(layer), expert_bias_.cols()});
  }
  adamw_.Step(lr, optim::ClipCoefficient(norm, train_.clip_norm), team_);
  if (hooks_.after_update) {
    hooks_.after_update(step, parameters_, expert_bias_.view());
  }
  constexpr int64_t kReplicaCheckEvery = 10;
  if (step % kReplicaCheckEvery == 0 || step == train_.steps) {
    CheckReplicas(parameters_, expert_bias_.view(), mesh_);
  }
  transformer_.LoadWeights(parameters_);
  transformer_.LoadExpertBias(expert_bias_.view());
}

/// Held-out loss, in batches of the training size, so that memory does not
/// grow.
void Trainer::Evaluate(int64_t step) {
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
    const std::vector<double> all = mesh_.Gather(mine);
    losses.insert(losses.end(), all.begin(), all.end());
  }
  mesh_.CheckConservation();
  if (mesh_.transport() != nullptr) mesh_.transport()->TakeCounters();
  double sum = 0;
  for (const double loss : losses) sum += loss;
  log_.eval.sequences = static_cast<int64_t>(sequences);
  log_.eval.step.push_back(step);
  log_.eval.loss_nats.push_back(sum / static_cast<double>(sequences));
  log_.eval.per_sequence_loss_nats.insert(
      log_.eval.per_sequence_loss_nats.end(), losses.begin(), losses.end());
}

runlog::RunLog Trainer::Run() {
  AddEvent("start", fmt::format("{} steps planned", train_.steps));
  Evaluate(0);
  bool ended_early = false;
  for (int64_t step = 1; step <= train_.steps && !ended_early; ++step) {
    const runlog::StepRow row = Step(step);
    log_.steps.Append(row);
    if (hooks_.on_step) hooks_.on_step(row);
    const bool stop =
        mesh_.Vote(hooks_.stop != nullptr && hooks_.stop->load() ? 1 : 0) != 0;
    if (!std::isfinite(row.loss_nats) || !std::isfinite(row.grad_norm)) {
      AddEvent("abort", fmt::format("step {}: loss {}, gradient norm {}", step,
                                    row.loss_nats, row.grad_norm));
      ended_early = true;
    } else if (step < train_.steps && stop) {
      AddEvent("interrupt", fmt::format("stopped after step {}", step));
      ended_early = true;
    } else if (step % log_config_.eval_every == 0 || step == train_.steps) {
      Evaluate(step);
    }
  }
  log_.provenance.complete = !ended_early;
  log_.provenance.final_weights_digest =
      DigestToHex(WholeDigest(config_, parameters_, mesh_));
  if (!ended_early) AddEvent("finish", "all planned steps were run");
  return std::move(log_);
}

}  // namespace

precision::Recipe RecipeOf(const Arm& arm) {
  precision::Recipe recipe = precision::RecipeByName(arm.recipe);
  if (arm.include) recipe.include = *arm.include;
  if (arm.exclude) recipe.exclude = *arm.exclude;
  return recipe;
}

void CheckReplays(const Experiment& experiment) {
  if (experiment.routing.mode != RoutingMode::kReplay) return;
  for (const uint64_t seed : experiment.train.seeds) {
    RoutingReplay(experiment.ReplayPath(seed), ShapeOf(experiment))
        .RequireSteps(experiment.train.steps);
  }
}

std::vector<precision::ResolvedRecipe> ResolveRecipes(
    const Experiment& experiment) {
  const std::vector<std::string> sites = model::GemmSites(experiment.model);
  std::vector<precision::ResolvedRecipe> recipes;
  for (const Arm& arm : experiment.arms) {
    recipes.emplace_back(RecipeOf(arm), sites);
  }
  return recipes;
}

runlog::RunLog TrainRun(const Experiment& experiment, const Arm& arm,
                        uint64_t seed, const corpus::Corpus& corpus,
                        ThreadTeam& team, const RunHooks& hooks) {
  const auto mesh = MakeMesh(experiment, arm, hooks.reason_folder, team,
                             hooks.make_transport);
  try {
    return Trainer(experiment, arm, seed, corpus, team, hooks, *mesh).Run();
  } catch (const std::exception& error) {
    // The other processes shall not wait for this one.
    if (mesh->transport() != nullptr) mesh->transport()->Abort(error.what());
    throw;
  }
}

}  // namespace isoloss::train
