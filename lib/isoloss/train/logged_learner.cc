#include "isoloss/train/logged_learner.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <span>
#include <utility>

#include "isoloss/base/digest.h"
#include "isoloss/base/error.h"
#include "isoloss/base/nearest_name.h"
#include "isoloss/expert_parallel/collectives.h"
#include "isoloss/expert_parallel/replica_check.h"
#include "isoloss/model/graph.h"
#include "isoloss/train/arm_recipes.h"
#include "isoloss/train/mesh_setup.h"
#include "isoloss/train/perturbation.h"
#include "isoloss/train/process_sums.h"
#include "isoloss/train/run_description.h"
#include "isoloss/train/step_columns.h"
#include "isoloss/train/step_tap.h"

namespace isoloss::train {
namespace {

using Clock = std::chrono::steady_clock;

/// Returns the whole batch. Each sequence is one document.
model::TokenBatch WholeOf(const corpus::Batch& batch) {
  return {.tokens = batch.tokens,
          .labels = batch.labels,
          .positions = batch.positions,
          .document_ends = batch.sequence_ends,
          .sequence_ends = batch.sequence_ends};
}

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

std::vector<Learner::Phase> LearnerPhases(const Arm& arm, int64_t steps) {
  std::vector<Learner::Phase> phases;
  for (const ArmPhase& phase : PhasesOf(arm, steps)) {
    phases.push_back({phase.first_step, ArmRecipe(phase.arm)});
  }
  return phases;
}

}  // namespace

LoggedLearner::LoggedLearner(const Experiment& experiment, const Arm& arm,
                             uint64_t seed, const corpus::Corpus& corpus,
                             Executor& executor, const RunHooks& hooks,
                             probes::ProbeOptions probe,
                             expert_parallel::Mesh& mesh)
    : config_(experiment.model),
      train_(experiment.train),
      log_config_(experiment.log),
      seed_(seed),
      executor_(executor),
      hooks_(hooks),
      mesh_(mesh),
      batches_(corpus, experiment.data.sequence_length,
               experiment.log.eval_sequences),
      learner_(config_, train_, LearnerPhases(arm, train_.steps), seed,
               executor, hooks, mesh),
      probe_(std::move(probe), mesh, executor) {
  if (corpus.vocab_size() > config_.vocab_size) {
    ThrowError(ErrorKind::kConfig,
               "{}: [model] vocab_size is {}, but the corpus has {} different "
               "tokens. Raise vocab_size.",
               experiment.path.string(), config_.vocab_size,
               corpus.vocab_size());
  }
  SetRouting(experiment);
  CheckAgreement(experiment, arm, corpus);
  CheckListeners(experiment);
  if (arm.perturb) {
    learner_.EditInitialWeights([&](model::ParameterSet& weights) {
      PerturbWeights(arm, seed, weights);
    });
  }
  // The log describes the edited initial weights, unless the edit is a
  // perturbation: then the edit comes after the description.
  const bool declared = hooks.perturbation.empty();
  if (declared && hooks.edit_initial_weights) {
    learner_.EditInitialWeights(hooks.edit_initial_weights);
  }
  provenance_ =
      DescribeRun(experiment, arm, seed, corpus, learner_.parameters(),
                  replay_ ? &*replay_ : nullptr, executor, mesh_);
  for (const runlog::RecipePhase& phase : runlog::PhasesOf(provenance_.graph)) {
    planned_.push_back(
        {phase.first_step, runlog::CountGemms(phase.recipe).quantized});
  }
  if (!declared && hooks.edit_initial_weights) {
    learner_.EditInitialWeights(hooks.edit_initial_weights);
  }
  CheckPatterns(experiment);
}

void LoggedLearner::SetRouting(const Experiment& experiment) {
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

/// Refuses listeners that take a tensor for that of the whole batch. The probe
/// puts the shares of each together.
void LoggedLearner::CheckListeners(const Experiment& experiment) {
  if (mesh_.config().micro_batches == 1) return;
  if (!hooks_.on_tensor && !hooks_.on_routing) return;
  ThrowError(ErrorKind::kConfig,
             "{}: parallel.micro_batches is {}, but whoever listens to this "
             "run's tensors needs those of whole batches. Set it to 1, or call "
             "train::TakeWholeBatches; neither changes a bit.",
             experiment.path.string(), mesh_.config().micro_batches);
}

/// Refuses processes that were given different files: they would train a model
/// that nobody asked for.
void LoggedLearner::CheckAgreement(const Experiment& experiment, const Arm& arm,
                                   const corpus::Corpus& corpus) {
  Digest digest;
  digest.Update(experiment.ConfigText());
  digest.Update(RecipeNames(arm));
  digest.Update(Describe(ResolvePhases(experiment, arm)));
  digest.Update(DescribeExchange(experiment, arm));
  digest.Update(DescribePerturbation(arm));
  for (const uint64_t number :
       {seed_, corpus.digest(), replay_ ? replay_->digest() : 0}) {
    digest.Update(&number, sizeof(number));
  }
  expert_parallel::CheckReplicas(
      mesh_, digest.Value(),
      "experiment, arm, seed, corpus and replayed routing");
}

/// Refuses a pattern that matches nothing, because its tensors would be missing
/// after hours of training.
void LoggedLearner::CheckPatterns(const Experiment& experiment) {
  const LogConfig& log = experiment.log;
  const bool all = log.statistics_tensors == std::vector<std::string>{"*"};
  if (all && log.dump_tensors.empty()) return;
  std::vector<std::string> names;
  for (const model::GraphTensor& tensor : model::GraphOf(config_).tensors) {
    if (tensor.kind != model::TensorKind::kExpertIds) {
      names.push_back(tensor.Name());
    }
  }
  RequireMatches(experiment, "statistics_tensors", log.statistics_tensors,
                 names);
  RequireMatches(experiment, "dump_tensors", log.dump_tensors, names);
}

model::TokenBatch LoggedLearner::Part() {
  return ShareOf(WholeOf(batch_), {mesh_.process(), mesh_.processes()},
                 part_ends_);
}

/// Makes the batch and the routing those of a training step.
model::TokenBatch LoggedLearner::Begin(int64_t step) {
  if (replayed_step_) replayed_step_->BeginStep(step);
  batches_.Training(seed_, step, train_.sequences_per_batch, batch_);
  learner_.BeginStep(step);
  learner_.transformer().SetRouting(routing_);
  return Part();
}

bool LoggedLearner::Step(int64_t step, runlog::RunLog& rows) {
  const auto start = Clock::now();
  StepTap tap(step, hooks_, probe_.Wants(step) ? &probe_ : nullptr);
  if (probe_.Wants(step)) probe_.BeginStep(step);
  const model::TokenBatch batch = Begin(step);
  const model::Transformer& transformer = learner_.transformer();
  const int64_t quantized_before = transformer.quantized_gemms();
  const model::ParameterSet& parameters = learner_.parameters();
  if (hooks_.on_inputs) {
    hooks_.on_inputs(step,
                     {batch, parameters, learner_.expert_bias(), executor_});
  }
  const StepFigures figures = learner_.Step(step, batch, tap.IfHeard());
  if (probe_.Wants(step)) probe_.EndStep(rows);

  const double seconds =
      std::chrono::duration<double>(Clock::now() - start).count();
  const int64_t tokens = provenance_.tokens_per_step;
  const auto shares = static_cast<int64_t>(mesh_.config().micro_batches);
  // Counts the quantised GEMMs that any process should have computed, but left
  // out.
  const int64_t missing = expert_parallel::Sum(
      mesh_, transformer.quantized_gemms_per_step() * shares -
                 (transformer.quantized_gemms() - quantized_before));
  const MatrixView<const int64_t> counts = transformer.tokens_per_expert();
  RecordMoe(step, transformer, learner_.expert_bias(), log_config_.routing,
            replay_.has_value(), mesh_, rows.moe);
  RecordExchange(step, transformer, mesh_, bytes_by_pair_, rows.exchange);
  RecordParameters(step, parameters, figures.gradient_squares,
                   figures.update_ratios, rows.parameters);
  rows.steps.Append(
      {.step = step,
       .tokens_seen = step * tokens,
       .loss_nats = figures.loss_nats,
       .grad_norm = figures.grad_norm,
       .lr = figures.lr,
       .step_seconds = seconds,
       .tokens_per_second = static_cast<double>(tokens) / seconds,
       .expert_load_max_over_mean = LoadMaxOverMean(counts),
       .dead_experts = DeadExperts(counts),
       .quantized_gemms =
           planned_[runlog::PhaseAt(planned_, step)].quantized - missing,
       .batch_digest = BatchDigest(batch_)});
  return figures.finite();
}

std::vector<probes::NonFinite> LoggedLearner::LocateNonFinite(int64_t step) {
  probes::NonFiniteCounter counter(executor_);
  learner_.Differentiate(step, Begin(step), &counter);
  if (mesh_.transport() != nullptr) mesh_.exchanges().TakeCounters();
  return counter.Finish(mesh_);
}

/// Evaluates in batches of the training size, so that memory does not grow.
void LoggedLearner::Evaluate(int64_t step, runlog::EvalColumns& eval) {
  std::vector<double> losses;  // one per sequence
  const size_t sequences = batches_.held_out_sequences();
  // A replayed log has the routing of training batches only.
  learner_.transformer().SetRouting(replay_ ? nullptr : routing_);
  while (losses.size() < sequences) {
    const size_t first = losses.size();
    batches_.HeldOut(
        first, std::min(train_.sequences_per_batch, sequences - first), batch_);
    ForEachShare(Part(), mesh_, [&](const model::TokenBatch& share) {
      learner_.transformer().Forward(share);
    });
    const std::span<const float> tokens = learner_.transformer().token_losses();
    std::vector<double> mine;
    size_t begin = 0;
    for (const size_t end : part_ends_.of_sequences) {
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
  if (mesh_.transport() != nullptr) mesh_.exchanges().TakeCounters();
  double sum = 0;
  for (const double loss : losses) sum += loss;
  eval.sequences = static_cast<int64_t>(sequences);
  eval.step = {step};
  eval.loss_nats = {sum / static_cast<double>(sequences)};
  eval.per_sequence_loss_nats = std::move(losses);
}

uint64_t LoggedLearner::WeightsDigest() {
  return WholeDigest(config_, learner_.parameters(), mesh_);
}

}  // namespace isoloss::train
