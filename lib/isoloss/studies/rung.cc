#include "isoloss/studies/rung.h"

#include <algorithm>
#include <cmath>

#include "isoloss/studies/plan.h"
#include "isoloss/treatments/rung_model.h"

namespace isoloss::studies {
namespace {

/// A rung warms up in at most this share of its steps.
constexpr int64_t kWarmupShare = 10;
/// The held-out loss of fewer sequences varies more than the loss between
/// seeds.
constexpr size_t kEvaluatedSequences = 64;

/// Sets the batch and the steps of a rung. The learning rate of AdamW grows
/// with the root of the batch (Malladi et al., arXiv 2205.10287).
void SetBatch(double tokens, size_t factor, train::Experiment& experiment) {
  train::TrainConfig& train = experiment.train;
  train.sequences_per_batch *= factor;
  train.lr *= std::sqrt(static_cast<double>(factor));
  const auto tokens_per_step = static_cast<double>(
      train.sequences_per_batch * experiment.data.sequence_length);
  train.steps =
      std::max<int64_t>(1, std::llround(std::ceil(tokens / tokens_per_step)));
  train.warmup_steps = std::min(train.warmup_steps, train.steps / kWarmupShare);
}

}  // namespace

train::Experiment RungExperiment(const train::Experiment& base,
                                 const RungDesign& design,
                                 size_t held_out_tokens) {
  train::Experiment experiment = base;
  experiment.model = design.model;
  experiment.train.lr = treatments::TransferredRate(
      base.train.lr, base.model, design.model, design.rate_exponent);
  SetBatch(design.tokens, design.batch_factor, experiment);
  LogLossesOnly(experiment);
  const size_t held_out_sequences =
      (held_out_tokens - 1) / base.data.sequence_length;
  experiment.log.eval_sequences =
      std::max(experiment.log.eval_sequences,
               std::min(kEvaluatedSequences, held_out_sequences));
  return experiment;
}

RungDesign RungLike(const train::Experiment& base,
                    const model::ModelConfig& model) {
  const double tokens = static_cast<double>(base.train.steps) *
                        static_cast<double>(base.train.sequences_per_batch *
                                            base.data.sequence_length);
  // The quotient comes first, so that an equal model has exactly as many.
  return {.model = model,
          .tokens = tokens * (train::EstimatedParameters(model) /
                              train::EstimatedParameters(base.model))};
}

}  // namespace isoloss::studies
