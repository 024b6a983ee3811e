// Products of linear layers as a recipe's declaration predicts them, whatever
// kernels make of it.
#pragma once

#include "isoloss/model/config.h"
#include "isoloss/model/gemm_engine.h"
#include "isoloss/precision/recipe.h"

namespace isoloss::oracle {

/// An engine for a run with `recipe` that quantises operands by the oracle's
/// own text (ScalarProduct of AsKnown(recipe)), multiplies them in exact
/// arithmetic and rounds as the product asks for. What kernels say of formats,
/// scales and sums has no part in it; all else of the run is the model's. So a
/// run with it is one in high precision with the quantisation error that the
/// recipe declares, and can be part of what candidates are judged by.
///
/// Products that the recipe leaves as they are go to kernels::GemmBatch.
/// Errors   ConfigError if the recipe quantises attention or gains of norms,
///          which are no products of linear layers, or does not fit the model;
///          the engine throws as ScalarProduct.
/// Exact    bits depend on the tasks only.
/// Cost     some ten times that of the kernels.
model::GemmEngine PredictedProducts(const precision::Recipe& recipe,
                                    const model::ModelConfig& config);

}  // namespace isoloss::oracle
