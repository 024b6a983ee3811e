#include "isoloss/step_checks/step_oracle.h"

#include <atomic>
#include <cmath>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "isoloss/base/error.h"
#include "isoloss/model/graph.h"
#include "isoloss/oracle/exact_dot.h"
#include "isoloss/step_checks/attention_check.h"
#include "isoloss/step_checks/elementwise_check.h"
#include "isoloss/step_checks/formats_check.h"
#include "isoloss/step_checks/known_recipes.h"
#include "isoloss/step_checks/linear_check.h"
#include "isoloss/step_checks/log_check.h"
#include "isoloss/step_checks/loss_check.h"
#include "isoloss/step_checks/norm_check.h"
#include "isoloss/train/arm_recipes.h"
#include "isoloss/train/trainer.h"

namespace isoloss::step_checks {
namespace {

/// Adds an element that is other for a fault of the whole tensor.
void ReportFault(const std::string& tensor, ReportSink& sink) {
  oracle::Comparison comparison(oracle::Grid::kFp32);
  comparison.AddOther(0, 0, std::nanf(""), 0.0);
  sink.Add(tensor, comparison);
}

/// Parts take very different times, so a free thread takes the next one. Their
/// findings are merged in the order of the parts.
void RunParts(const std::vector<CheckPart>& parts, const StepInputs& inputs,
              Executor& executor, ReportSink& sink) {
  std::vector<ReportSink> found(parts.size());
  std::atomic<size_t> next{0};
  executor.ParallelFor(static_cast<size_t>(executor.size()), [&](size_t) {
    for (size_t i = next.fetch_add(1); i < parts.size();
         i = next.fetch_add(1)) {
      parts[i](inputs, found[i]);
    }
  });
  for (const ReportSink& part : found) sink.Merge(part);
}

/// Returns the recipes of `phases`, which must stay valid.
std::vector<const precision::ResolvedRecipe*> RecipesOf(const auto& phases) {
  std::vector<const precision::ResolvedRecipe*> recipes;
  for (const auto& phase : phases) recipes.push_back(&phase.recipe);
  return recipes;
}

std::string RouterOf(size_t layer) {
  return "layers." + std::to_string(layer) + ".moe.router";
}

}  // namespace

expert_parallel::MeshConfig MeshOf(const train::Experiment& experiment,
                                   const train::Arm& arm) {
  return {.topology = experiment.parallel.mesh,
          .options = arm.exchange.Resolved(),
          .dispatch_units = experiment.parallel.dispatch_units};
}

std::vector<StepOracle::Phase> StepOracle::MakePhases(
    const train::Experiment& experiment, const train::Arm& arm) {
  const std::vector<precision::Site> sites = model::GemmSites(experiment.model);
  std::vector<Phase> phases;
  for (const train::ArmPhase& phase :
       train::PhasesOf(arm, experiment.train.steps)) {
    const precision::Recipe recipe = AsKnown(train::ArmRecipe(phase.arm));
    phases.push_back({phase.first_step,
                      precision::ResolvedRecipe(recipe, sites),
                      oracle::ActivationGrid(recipe)});
  }
  return phases;
}

StepOracle::StepOracle(const train::Experiment& experiment,
                       const train::Arm& arm, uint64_t seed,
                       const model::ParameterSet& initial, bool sampled)
    : config_(experiment.model),
      seed_(seed),
      routing_(experiment.routing.mode),
      is_sampled_(sampled),
      phases_(MakePhases(experiment, arm)),
      mesh_(MeshOf(experiment, arm)),
      amax_(RecipesOf(phases_)),
      update_(experiment.model, experiment.train, initial,
              is_sampled_ ? Sampling(seed, 0) : Sampling()) {
  if (routing_ == model::RoutingMode::kReplay) {
    replay_.emplace(experiment.ReplayPath(seed), train::ShapeOf(experiment));
  }
}

void StepOracle::Check(const StepRecord& record, const corpus::Batch& batch,
                       const StepOutcome& outcome, Executor& executor,
                       ReportSink& sink) {
  std::vector<ExpertRows> expert_rows;
  for (size_t n = config_.n_dense_layers; n < config_.n_layers; ++n) {
    expert_rows.push_back(
        PlaceRows(record.ExpertIds(RouterOf(n)), config_.num_experts, mesh_));
  }
  const size_t place = runlog::PhaseAt(phases_, outcome.row.step);
  const Phase& phase = phases_[place];
  const auto step = static_cast<uint64_t>(outcome.row.step);
  const StepInputs inputs = {
      .record = record,
      .config = config_,
      .recipe = phase.recipe,
      .activations = phase.activations,
      .batch = batch,
      .mesh = mesh_,
      .expert_rows = expert_rows,
      .loss = outcome.row.loss_nats,
      .seed = seed_,
      .step = step,
      .histories = amax_.histories(place),
      .sampling = is_sampled_ ? Sampling(seed_, step) : Sampling()};
  next_step_ = outcome.row.step + 1;
  CheckFormats(sink);
  // If a tensor is missing, some check could not read its input.
  if (!HasAllTensors(inputs, sink)) return;
  RunParts(Parts(inputs, outcome), inputs, executor, sink);
  update_.Check(record, outcome, phase.activations, executor, sink);
  if (!expert_rows.empty()) sink.SetBytes(CountExchangeBytes(inputs));
  RequireAllChecked(inputs, sink);
  amax_.EndStep(inputs);
}

bool StepOracle::HasAllTensors(const StepInputs& inputs,
                               ReportSink& sink) const {
  bool all = true;
  for (const ExpectedTensor& expected : ExpectedTensors(inputs)) {
    const RecordedTensor* tensor = inputs.record.Find(expected.name);
    if (tensor != nullptr && tensor->values.rows() == expected.rows &&
        tensor->values.cols() == expected.cols) {
      continue;
    }
    ReportFault(expected.name, sink);
    all = false;
  }
  for (const std::string& name : inputs.record.repeated()) {
    ReportFault(name, sink);
  }
  return all;
}

std::vector<CheckPart> StepOracle::Parts(const StepInputs& inputs,
                                         const StepOutcome& outcome) const {
  std::vector<CheckPart> parts;
  // The parts that take longest come first.
  for (size_t layer = 0; layer < config_.n_layers; ++layer) {
    parts.emplace_back([layer](const StepInputs& step, ReportSink& sink) {
      CheckAttention(step.record, step.config, layer, step.batch,
                     step.activations, sink,
                     {step.recipe.recipe().attention, step.seed, step.step,
                      step.sampling});
    });
  }
  AddLinearParts(inputs, parts);
  for (size_t layer = config_.n_dense_layers; layer < config_.n_layers;
       ++layer) {
    parts.emplace_back([layer](const StepInputs& step, ReportSink& sink) {
      CheckMoe(step.record, step.config, layer, step.mesh, step.activations,
               sink, step.sampling);
    });
    const size_t moe_layer = layer - config_.n_dense_layers;
    const std::span counts(outcome.tokens_per_expert.Row(moe_layer),
                           config_.num_experts);
    parts.emplace_back([layer, rule = RuleOf(moe_layer, outcome.row.step),
                        counts](const StepInputs& step, ReportSink& sink) {
      CheckRouter(step.record, step.config, layer, rule, counts, sink);
    });
  }
  parts.emplace_back(CheckLoss);
  AddNormParts(inputs, parts);
  AddElementwiseParts(inputs, parts);
  if (outcome.log != nullptr) AddLogParts(inputs, *outcome.log, parts);
  return parts;
}

RoutingRule StepOracle::RuleOf(size_t moe_layer, int64_t step) const {
  RoutingRule rule = {
      .mode = routing_,
      .bias = {update_.expert_bias().Row(moe_layer), config_.num_experts}};
  if (replay_) rule.replayed = replay_->Ids(step, moe_layer);
  return rule;
}

void StepOracle::RequireAllChecked(const StepInputs& inputs,
                                   ReportSink& sink) const {
  for (const RecordedTensor* tensor : inputs.record.tensors()) {
    const auto found = sink.comparisons().find(tensor->name);
    const auto size = static_cast<int64_t>(tensor->values.size());
    if (found == sink.comparisons().end()
            ? size > 0
            : found->second.tensor_elements() < size) {
      ReportFault(tensor->name, sink);
    }
  }
}

}  // namespace isoloss::step_checks
