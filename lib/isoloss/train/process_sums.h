// Adds up, or compares, values of several processes that share a model. With
// one process each of these is the plain thing.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "isoloss/base/executor.h"
#include "isoloss/base/matrix.h"
#include "isoloss/expert_parallel/mesh.h"
#include "isoloss/model/config.h"
#include "isoloss/model/parameters.h"
#include "isoloss/optim/adamw.h"

namespace isoloss::train {

/// Each process's gradients become those of the whole batch, in canonical
/// order; those of experts in the processes that hold them.
void SumGradients(model::ParameterSet& gradients, expert_parallel::Mesh& mesh);

/// Sum of squares of each parameter's gradient, all experts of it, whoever
/// holds them: what optim::GlobalNorm takes.
std::vector<double> GradientSquares(const model::ParameterSet& gradients,
                                    expert_parallel::Mesh& mesh,
                                    Executor& executor);

/// L2 norm of the last update over that of the values before it, of each
/// parameter; 0 where both are 0. `squares`: of this process's parts.
std::vector<double> UpdateRatios(const model::ParameterSet& parameters,
                                 std::span<const optim::UpdateSquares> squares,
                                 expert_parallel::Mesh& mesh);

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
