// Declares sums, gathers and votes over the processes of a mesh, in canonical
// order.
//
// In a mesh of one process they return their arguments. Every process calls
// them at the same point. For a floating-point sum each process contributes a
// node of the aligned tree, in the order of processes, and all get the root.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "isoloss/base/matrix.h"
#include "isoloss/expert_parallel/mesh.h"

namespace isoloss::expert_parallel {

double Sum(const Mesh& mesh, double node);
int64_t Sum(const Mesh& mesh, int64_t value);
/// Gradients of replicated tensors are replaced by their sums, in FP32, element
/// by element.
void SumReplicated(const Mesh& mesh,
                   std::span<const MatrixView<float>> gradients);
/// Sums the gradients of this process's experts in the same way, over the
/// processes that hold the same experts.
void SumExperts(const Mesh& mesh, std::span<const MatrixView<float>> gradients);
/// Sums element by element over all processes; only process 0 gets the sums.
std::vector<int64_t> SumToFirst(const Mesh& mesh, std::vector<int64_t> values);

/// Returns `mine` of all processes, in their order. It is equally long in every
/// process.
std::vector<double> Gather(const Mesh& mesh, std::span<const double> mine);
std::vector<int32_t> Gather(const Mesh& mesh, std::span<const int32_t> mine);
/// Returns the digest of each process, in their order. There must be several
/// processes.
std::vector<uint64_t> GatherDigests(const Mesh& mesh, uint64_t mine);
/// Returns `mine` of all processes that share the experts among them, in the
/// order of experts.
std::vector<double> GatherExperts(const Mesh& mesh,
                                  std::span<const double> mine);
/// Gathers the whole tensor of all experts from the rows of each process. Every
/// process gets it.
/// Shapes   mine [local experts * r, c]; whole [experts * r, c].
void GatherExperts(const Mesh& mesh, MatrixView<const float> mine,
                   MatrixView<float> whole);

/// Returns the largest code of all processes.
uint64_t Vote(const Mesh& mesh, uint64_t code);
/// Returns when every process has come this far.
void AwaitAll(const Mesh& mesh);

}  // namespace isoloss::expert_parallel
