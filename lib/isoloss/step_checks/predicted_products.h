// Computes products of linear layers as a recipe's declaration predicts them,
// without the kernels.
#pragma once

#include "isoloss/model/config.h"
#include "isoloss/model/gemm_engine.h"
#include "isoloss/precision/recipe.h"

namespace isoloss::step_checks {

/// Returns an engine for a run with `recipe`. It quantises operands by the
/// oracle's own text (ScalarProduct of AsKnown(recipe)). Then it multiplies
/// them in exact arithmetic and rounds as the product asks for.
///
/// The kernels' formats, scales and sums have no part in it; the rest of the
/// run is the model's. So a run with this engine is in high precision, but has
/// the quantisation error that the recipe declares. Candidates may be judged by
/// it.
///
/// Products that the recipe leaves as they are go to kernels::GemmBatch.
/// Errors   ConfigError if the recipe quantises attention or gains of norms,
///          which are no products of linear layers, or does not fit the model;
///          the engine throws as ScalarProduct.
/// Exact    bits depend on the tasks only.
/// Cost     some ten times that of the kernels.
model::GemmEngine PredictedProducts(const precision::Recipe& recipe,
                                    const model::ModelConfig& config);

}  // namespace isoloss::step_checks
