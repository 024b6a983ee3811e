// Announcing parameters and what belongs to them: weights, gradients, updates.
#pragma once

#include "isoloss/base/matrix.h"
#include "isoloss/expert_parallel/mesh.h"
#include "isoloss/model/parameters.h"
#include "isoloss/model/tap.h"

namespace isoloss::model {

/// Announces `tensor`, whose values have the shape of `parameter`, with its
/// module and rows: groups are experts, and a process counts if no lower one
/// holds the same.
void AnnounceParameter(Tensor tensor, const Parameter& parameter,
                       const expert_parallel::Mesh& mesh, TapSink& sink);

/// A whole set of values, in order: kWgrad, kParameter or kUpdate.
void AnnounceParameters(TensorKind kind, const ParameterSet& parameters,
                        const expert_parallel::Mesh& mesh, TapSink& sink);

}  // namespace isoloss::model
