// Processes that hold copies of the same values must hold the same bits.
#pragma once

#include <cstdint>

#include "isoloss/expert_parallel/mesh.h"

namespace isoloss::expert_parallel {

/// Throws TransportError, naming `what`, unless all processes pass the same
/// digest.
void CheckReplicas(const Mesh& mesh, uint64_t digest, const char* what);
/// The same for the experts' weights, among processes that hold the same ones.
void CheckExpertReplicas(const Mesh& mesh, uint64_t digest);

}  // namespace isoloss::expert_parallel
