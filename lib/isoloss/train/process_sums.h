// What several processes that share a model add up, or must agree on. With one
// process each of these is the plain thing.
#pragma once

#include <cstdint>

#include "isoloss/base/matrix.h"
#include "isoloss/base/threads.h"
#include "isoloss/expert_parallel/mesh.h"
#include "isoloss/model/config.h"
#include "isoloss/model/parameters.h"

namespace isoloss::train {

/// Each process's gradients become those of the whole batch, in canonical
/// order; those of experts in the processes that hold them.
void SumGradients(model::ParameterSet& gradients, expert_parallel::Mesh& mesh);

/// L2 norm of the gradient of the whole model (optim::GlobalNorm): each expert
/// counts once, whoever holds it.
double GradientNorm(const model::ParameterSet& gradients,
                    expert_parallel::Mesh& mesh, ThreadTeam& team);

/// ParameterSet::Digest of the whole model, whatever process holds which
/// experts.
uint64_t WholeDigest(const model::ModelConfig& config,
                     const model::ParameterSet& parameters,
                     expert_parallel::Mesh& mesh);

/// Throws TransportError unless what several processes keep a copy of is the
/// same in all: replicated weights and biases, and experts that have replicas.
/// Shapes   expert_bias [MoE layers, E].
void CheckReplicas(const model::ParameterSet& parameters,
                   MatrixView<const float> expert_bias,
                   expert_parallel::Mesh& mesh);

}  // namespace isoloss::train
