// Checks that processes with copies of the same values hold the same bits.
#pragma once

#include <cstdint>

#include "isoloss/expert_parallel/mesh.h"

namespace isoloss::expert_parallel {

/// Throws TransportError, which names `what`, unless all processes pass the
/// same digest.
void CheckReplicas(const Mesh& mesh, uint64_t digest, const char* what);
/// Checks the experts' weights likewise, among the processes that hold the same
/// experts.
void CheckExpertReplicas(const Mesh& mesh, uint64_t digest);

}  // namespace isoloss::expert_parallel
