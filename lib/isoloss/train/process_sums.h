// Adds up, or compares, values of several processes that share a model. With a
// single process each function works on that process's values.
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

/// Replaces each process's gradients by those of the whole batch, in canonical
/// order. Gradients of experts are summed in the processes that hold the
/// experts.
void SumGradients(model::ParameterSet& gradients, expert_parallel::Mesh& mesh);

/// Returns the sum of squares of each parameter's gradient, over all its
/// experts, whichever process holds them. optim::GlobalNorm takes these sums.
std::vector<double> GradientSquares(const model::ParameterSet& gradients,
                                    expert_parallel::Mesh& mesh,
                                    Executor& executor);

/// Returns the L2 norm of the last update over that of the values before it,
/// for each parameter; 0 where both are 0. `squares` are those of this
/// process's parts.
std::vector<double> UpdateRatios(const model::ParameterSet& parameters,
                                 std::span<const optim::UpdateSquares> squares,
                                 expert_parallel::Mesh& mesh);

/// Returns ParameterSet::Digest of the whole model, whichever process holds
/// which experts.
uint64_t WholeDigest(const model::ModelConfig& config,
                     const model::ParameterSet& parameters,
                     expert_parallel::Mesh& mesh);

/// Throws TransportError unless the copies that several processes keep are
/// equal: replicated weights and biases, and experts that have replicas.
/// Shapes   expert_bias [MoE layers, E].
void CheckReplicas(const model::ParameterSet& parameters,
                   MatrixView<const float> expert_bias,
                   expert_parallel::Mesh& mesh);

}  // namespace isoloss::train
