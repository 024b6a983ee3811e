// The oracle of a whole training step: every tensor that it announced against
// a computation in double precision from the tensors that its operation read.
//
// Nothing here shares code with the kernels. Errors do not spread: each
// operation starts from the step's own values, and experts are those that the
// step chose.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "isoloss/base/executor.h"
#include "isoloss/corpus/batches.h"
#include "isoloss/expert_parallel/mesh.h"
#include "isoloss/model/parameters.h"
#include "isoloss/oracle/amax_oracle.h"
#include "isoloss/oracle/report_sink.h"
#include "isoloss/oracle/router_check.h"
#include "isoloss/oracle/step_inputs.h"
#include "isoloss/oracle/step_record.h"
#include "isoloss/oracle/update_check.h"
#include "isoloss/precision/recipe.h"
#include "isoloss/train/experiment.h"
#include "isoloss/train/routing_replay.h"

namespace isoloss::oracle {

/// The mesh of an arm and what travels on it.
expert_parallel::MeshConfig MeshOf(const train::Experiment& experiment,
                                   const train::Arm& arm);

/// Follows one run from its first step.
class StepOracle {
 public:
  /// `initial`: the master weights before the first step. `seed` is what random
  /// bits come from, and names the log that a replayed routing comes from.
  /// Errors   ConfigError if the arm's recipe does not fit the model; those of
  ///          train::RoutingReplay.
  StepOracle(const train::Experiment& experiment, const train::Arm& arm,
             uint64_t seed, const model::ParameterSet& initial);

  /// Checks the next step, announced as `record` of `batch` by a single
  /// process. A tensor that the model must have and that was not announced, or
  /// has another extent, and one that no check knows, are `other`; so is a
  /// tensor that was announced twice.
  /// Errors   FormatError if `outcome` is of another step than the next:
  /// moments
  ///          and the magnitudes that delayed scaling looks back to are known
  ///          from the first step on only.
  void Check(const StepRecord& record, const corpus::Batch& batch,
             const StepOutcome& outcome, Executor& executor, ReportSink& sink);

  /// What delayed scaling must look back to in the next step.
  const OperandHistories& histories() const { return amax_.histories(); }

 private:
  bool HasAllTensors(const StepInputs& inputs, ReportSink& sink) const;
  std::vector<CheckPart> Parts(const StepInputs& inputs,
                               const StepOutcome& outcome) const;
  RoutingRule RuleOf(size_t moe_layer, int64_t step) const;
  void RequireAllChecked(const StepInputs& inputs, ReportSink& sink) const;

  const model::ModelConfig config_;
  const uint64_t seed_;
  const model::RoutingMode routing_;
  const precision::ResolvedRecipe recipe_;
  const Grid activations_;
  const expert_parallel::MeshConfig mesh_;
  AmaxOracle amax_;
  UpdateOracle update_;
  std::optional<train::RoutingReplay> replay_;
};

}  // namespace isoloss::oracle
