// Writes the model's graph and recipe as logs carry them.
#pragma once

#include "isoloss/model/graph.h"
#include "isoloss/precision/recipe.h"
#include "isoloss/runlog/model_graph.h"

namespace isoloss::probes {

/// `recipe` is resolved for the sites of `graph`.
runlog::ModelGraph ColumnsOf(const model::Graph& graph,
                             const precision::ResolvedRecipe& recipe);

}  // namespace isoloss::probes
