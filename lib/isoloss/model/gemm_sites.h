// Names of the places where a model multiplies matrices under a recipe.
#pragma once

#include <string>
#include <vector>

#include "isoloss/model/config.h"

namespace isoloss::model {

/// Names of the model's GEMM sites, in the order of computation: parameter
/// names without ".weight" ("layers.0.attention.wq", …,
/// "layers.1.moe.router.gate", "layers.1.moe.routed_experts.w1", "lm_head").
std::vector<std::string> GemmSites(const ModelConfig& config);

}  // namespace isoloss::model
