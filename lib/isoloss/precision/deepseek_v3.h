// Says what the recipes of DeepSeek-V3's report share.
#pragma once

#include "isoloss/precision/recipe.h"

namespace isoloss::precision {

/// Returns E4M3 in tiles of 1 x 128 of activations and squares of 128 of
/// weights, with FP32 scales and sums that are promoted every 128 steps. The
/// weight gradient reads activations that were quantised for the forward
/// product, and quantises them once more along tokens. `gradients` are the
/// cells of dy.
/// Source   arXiv 2412.19437, section 3.3; DeepGEMM 54e2261.
Recipe DeepseekV3(formats::Cell gradients);

}  // namespace isoloss::precision
