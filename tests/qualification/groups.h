// The mutants of each group: one function, one file each.
#pragma once

#include <string>
#include <vector>

#include "qualification/mutant.h"

namespace isoloss::qualification {

/// "layers.N.attention.wo" of the last layer: mutants of one site sit there.
inline std::string LastAttentionOutput(const MutantContext& context) {
  return "layers." + std::to_string(context.experiment.model.n_layers - 1) +
         ".attention.wo";
}

std::vector<Mutant> ScaleMutants();
std::vector<Mutant> ElementCastMutants();
std::vector<Mutant> LayoutMutants();
std::vector<Mutant> StaleStateMutants();
std::vector<Mutant> AccumulationMutants();
std::vector<Mutant> RoutingMutants();
std::vector<Mutant> ExchangeMutants();
std::vector<Mutant> OptimizerMutants();
std::vector<Mutant> GateMutants();

}  // namespace isoloss::qualification
