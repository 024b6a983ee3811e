// Makes the experiments of a ladder: one experiment with models of several
// sizes.
#pragma once

#include <cstddef>

#include "isoloss/estimators/rate_exponent.h"
#include "isoloss/train/experiment.h"

namespace isoloss::studies {

/// Says what a rung has apart from its experiment's file.
struct RungDesign {
  model::ModelConfig model;
  double tokens = 0;  ///< that the rung is trained with
  /// The learning rate grows with this power of the width.
  double rate_exponent = estimators::kAssumedRateExponent;
  size_t batch_factor = 1;  ///< tokens a step, times those of the experiment
};

/// Returns `base` with the model, the steps and the learning rate of a rung. It
/// logs losses alone. `held_out_tokens` are those of the corpus.
train::Experiment RungExperiment(const train::Experiment& base,
                                 const RungDesign& design,
                                 size_t held_out_tokens);

/// Returns the rung of a model that has as many tokens for each parameter as
/// the experiment itself.
RungDesign RungLike(const train::Experiment& base,
                    const model::ModelConfig& model);

}  // namespace isoloss::studies
