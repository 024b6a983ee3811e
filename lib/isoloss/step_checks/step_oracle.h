// Verifies a whole training step. Every tensor that it announced is compared
// with a computation in double precision from the tensors that its operation
// read.
//
// Nothing here shares code with the kernels. Errors do not spread: each
// operation starts from the step's own values, with the experts that the step
// chose.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "isoloss/base/executor.h"
#include "isoloss/corpus/batches.h"
#include "isoloss/expert_parallel/mesh.h"
#include "isoloss/model/parameters.h"
#include "isoloss/precision/recipe.h"
#include "isoloss/runlog/model_graph.h"
#include "isoloss/step_checks/amax_oracle.h"
#include "isoloss/step_checks/report_sink.h"
#include "isoloss/step_checks/router_check.h"
#include "isoloss/step_checks/step_inputs.h"
#include "isoloss/step_checks/step_record.h"
#include "isoloss/step_checks/update_check.h"
#include "isoloss/train/experiment.h"
#include "isoloss/train/routing_replay.h"

namespace isoloss::step_checks {

/// Returns the mesh of an arm with its exchange options.
expert_parallel::MeshConfig MeshOf(const train::Experiment& experiment,
                                   const train::Arm& arm);

/// Follows one run from its first step.
class StepOracle {
 public:
  /// `initial` are the master weights before the first step. `seed` selects the
  /// random bits and names the log of a replayed routing. If `sampled`, it
  /// looks at some elements of each large tensor (sampling.h). Errors
  /// ConfigError if the arm's recipe does not fit the model; those of
  ///          train::RoutingReplay.
  StepOracle(const train::Experiment& experiment, const train::Arm& arm,
             uint64_t seed, const model::ParameterSet& initial,
             bool sampled = false);

  /// Verifies the next step, which a single process announced as `record` of
  /// `batch`. A tensor of the model is `other` if it was not announced, was
  /// announced twice or has another extent. So is a tensor that no check knows.
  /// Errors   FormatError if `outcome` does not belong to the next step, since
  ///          moments and the magnitudes of delayed scaling are only known from
  ///          the first step on.
  void Check(const StepRecord& record, const corpus::Batch& batch,
             const StepOutcome& outcome, Executor& executor, ReportSink& sink);

  /// Returns what delayed scaling must look back to in the next step.
  const OperandHistories& histories() const {
    return amax_.histories(runlog::PhaseAt(phases_, next_step_));
  }

 private:
  bool HasAllTensors(const StepInputs& inputs, ReportSink& sink) const;
  std::vector<CheckPart> Parts(const StepInputs& inputs,
                               const StepOutcome& outcome) const;
  RoutingRule RuleOf(size_t moe_layer, int64_t step) const;
  void RequireAllChecked(const StepInputs& inputs, ReportSink& sink) const;

  struct Phase {
    int64_t first_step;
    precision::ResolvedRecipe recipe;
    oracle::Grid activations;
  };
  static std::vector<Phase> MakePhases(const train::Experiment& experiment,
                                       const train::Arm& arm);

  const model::ModelConfig config_;
  const uint64_t seed_;
  const model::RoutingMode routing_;
  const bool is_sampled_;
  const std::vector<Phase> phases_;
  int64_t next_step_ = 1;
  const expert_parallel::MeshConfig mesh_;
  AmaxOracle amax_;
  UpdateOracle update_;
  std::optional<train::RoutingReplay> replay_;
};

}  // namespace isoloss::step_checks
