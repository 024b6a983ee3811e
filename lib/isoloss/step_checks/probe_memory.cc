#include "isoloss/step_checks/probe_memory.h"

#include <algorithm>

#include "isoloss/base/error.h"
#include "isoloss/model/graph.h"
#include "isoloss/step_checks/sampling.h"
#include "isoloss/step_checks/update_check.h"
#include "isoloss/train/cost.h"

namespace isoloss::step_checks {
namespace {

double Real(size_t size) { return static_cast<double>(size); }

/// Returns the bytes of a run in the host's memory. Nothing but the default is
/// the host.
double RunBytes(const train::Experiment& experiment) {
  const bool on_host = experiment.parallel.on == train::ParallelConfig().on;
  return on_host ? train::EstimatedBytes(experiment) : 0.0;
}

/// Two threads may check dgrad and wgrad of the head at the same time. Each
/// copies the logits' gradient and an operand of the model's width.
double OperandBytes(const train::Experiment& experiment) {
  constexpr double kCopies = 2;
  return kCopies * train::TokensPerStep(experiment) * sizeof(float) *
         (Real(experiment.model.vocab_size) + Real(experiment.model.dim));
}

/// A sample's elements take next to nothing.
double MomentBytes(const train::Experiment& experiment, const train::Arm& arm,
                   const ProbeOptions& options) {
  if (!options.full && IsLarge(experiment)) return 0.0;
  const int64_t steps = std::min(
      std::max({options.steps, options.plain_steps, StepsOfPhases(arm)}),
      experiment.train.steps);
  return train::EstimatedParameters(experiment.model) *
         Real(UpdateOracle::BytesPerElement(steps));
}

}  // namespace

double EstimatedRecordBytes(const train::Experiment& experiment) {
  const double tokens = train::TokensPerStep(experiment);
  const model::Graph graph = model::GraphOf(experiment.model);
  double values = 0;
  for (const model::GraphTensor& tensor : graph.tensors) {
    double rows = Real(tensor.rows);
    if (tensor.rows_of == model::RowUnit::kTokens) rows = tokens;
    if (tensor.rows_of == model::RowUnit::kExpertTokens) {
      rows = tokens * Real(experiment.model.top_k);
    }
    values += rows * Real(tensor.cols);
  }
  return values * sizeof(float);
}

double EstimatedProbeBytes(const train::Experiment& experiment,
                           const train::Arm& arm, const ProbeOptions& options) {
  const double recorded =
      RunBytes(experiment) + EstimatedRecordBytes(experiment);
  const double checked = recorded + MomentBytes(experiment, arm, options) +
                         OperandBytes(experiment);
  return options.reference == nullptr ? checked
                                      : std::max(checked, 2 * recorded);
}

void CheckProbeMemory(const train::Experiment& experiment,
                      const train::Arm& arm, const ProbeOptions& options,
                      int side_by_side) {
  const double available = train::MachineBytes();
  const double needed =
      EstimatedProbeBytes(experiment, arm, options) * side_by_side;
  if (needed <= available) return;
  ThrowError(ErrorKind::kConfig,
             "{}: {} probe{} of arm {} need{} about {:.1f} GiB, because a "
             "probe keeps all tensors of a step, but this machine has {:.1f} "
             "GiB. Lower train.sequences_per_batch, data.sequence_length{} or "
             "the sizes of [model].",
             experiment.path.string(), side_by_side,
             side_by_side == 1 ? "" : "s side by side", arm.name,
             side_by_side == 1 ? "s" : "", needed / 0x1p30, available / 0x1p30,
             side_by_side == 1 ? "" : ", parallel.workers");
}

}  // namespace isoloss::step_checks
