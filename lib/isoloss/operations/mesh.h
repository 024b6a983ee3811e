// Reads where ranks stand in a mesh, and how they hold a tensor.
#pragma once

#include <compare>
#include <cstddef>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "isoloss/operations/operation.h"

namespace isoloss::operations {

struct MeshAxis {
  std::string name;  ///< "tp"
  size_t size = 1;
  /// Ranks along it have different tokens, or no file shows that they have not.
  bool is_data = false;
};

/// Reads "dp_shard=2 tp=2".
/// Errors   FormatError that begins with `where`, also for a mesh of more than
///          2^20 ranks or 16 axes.
std::vector<MeshAxis> MeshOf(const std::string& text, const std::string& where);

/// Returns the mesh of files of one step, which all have that mesh; at least
/// one.
/// Errors   FormatError if the mesh can't be read, or a coordinate is not in
/// it.
std::vector<MeshAxis> MeshOf(const std::vector<const OperationFile*>& step);

/// Ranks hold parts of tensors; this is what one of them holds.
struct RankShare {
  size_t parts = 1;
  size_t place = 0;
  auto operator<=>(const RankShare&) const = default;
};
/// Returns the shares of the rank that wrote the file: among all ranks, among
/// those with other tokens, and along each axis of its mesh.
/// Errors   FormatError if the coordinate is not in the mesh.
std::set<RankShare> RankSharesOf(const OperationFile& file,
                                 std::span<const MeshAxis> mesh);

/// Returns the words of a tensor's placements, one for each axis of the mesh;
/// nothing if it has none or another number.
std::vector<std::string> PlacementsOf(const Floats& tensor,
                                      std::span<const MeshAxis> mesh);

}  // namespace isoloss::operations
