// Announces parameters and what belongs to them: weights, gradients, updates.
#pragma once

#include "isoloss/base/matrix.h"
#include "isoloss/expert_parallel/mesh.h"
#include "isoloss/model/parameters.h"
#include "isoloss/model/tap.h"

namespace isoloss::model {

/// Announces `values`, which have the shape and the memory of `parameter`. The
/// row groups are experts. A process counts if no lower process holds the same
/// values. `tensor` says how GEMMs quantise them.
void AnnounceParameter(TensorKind kind, const Parameter& parameter,
                       MatrixView<const float> values,
                       const expert_parallel::Mesh& mesh, TapSink& sink,
                       Tensor tensor = {});

/// Announces all values of a set, in order, as kWgrad, kParameter or kUpdate.
void AnnounceParameters(TensorKind kind, const ParameterSet& parameters,
                        const expert_parallel::Mesh& mesh, TapSink& sink);

}  // namespace isoloss::model
