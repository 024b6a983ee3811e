// Sums, gathers and votes over the processes of a mesh, in canonical order.
//
// Without other processes they return what they got. Every process calls them
// at the same point; where sums are floating-point, each contributes a node of
// the aligned tree, in the order of processes, and all get the root.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "isoloss/base/matrix.h"
#include "isoloss/expert_parallel/mesh.h"

namespace isoloss::expert_parallel {

double Sum(const Mesh& mesh, double node);
int64_t Sum(const Mesh& mesh, int64_t value);
/// In place, FP32, element by element, gradients of replicated tensors.
void SumReplicated(const Mesh& mesh,
                   std::span<const MatrixView<float>> gradients);
/// The same for tensors of this process's experts, over the processes that hold
/// the same ones.
void SumExperts(const Mesh& mesh, std::span<const MatrixView<float>> gradients);
/// Element by element over all processes; only process 0 gets the sums.
std::vector<int64_t> SumToFirst(const Mesh& mesh, std::vector<int64_t> values);

/// `mine`, equally long in every process, of all processes, in their order.
std::vector<double> Gather(const Mesh& mesh, std::span<const double> mine);
std::vector<int32_t> Gather(const Mesh& mesh, std::span<const int32_t> mine);
/// The digest of each process, in their order. There are several.
std::vector<uint64_t> GatherDigests(const Mesh& mesh, uint64_t mine);
/// `mine` of all processes that share the experts among them, in the order of
/// experts.
std::vector<double> GatherExperts(const Mesh& mesh,
                                  std::span<const double> mine);
/// The whole tensor of all experts from this process's rows of it. Every
/// process gets it.
/// Shapes   mine [local experts * r, c]; whole [experts * r, c].
void GatherExperts(const Mesh& mesh, MatrixView<const float> mine,
                   MatrixView<float> whole);

/// The largest of all processes' codes.
uint64_t Vote(const Mesh& mesh, uint64_t code);
/// Returns when every process has come this far.
void AwaitAll(const Mesh& mesh);

}  // namespace isoloss::expert_parallel
