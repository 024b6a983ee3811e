// Computes products whose steps lie on several ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "isoloss/operations/explanation.h"
#include "isoloss/operations/mesh.h"
#include "isoloss/operations/operation.h"
#include "isoloss/operations/product.h"
#include "isoloss/oracle/comparison.h"
#include "isoloss/precision/recipe.h"

namespace isoloss::operations {

/// Returns how many ranks hold a part of each sum of the product, as placements
/// tell: the result is partial along an axis of the mesh, or both operands are
/// sharded along the steps of the product. If the activation's placement does
/// not contradict it, the weight's is enough on an axis whose ranks have the
/// same tokens. There are no more parts than `ranks`. 1: no placement
/// tells, or there are more than 1024.
size_t PartsOf(const Operation& operation, precision::GemmRole role,
               std::span<const MeshAxis> mesh, int64_t ranks);

/// Replaces operands by what the product reads, since shards share the scales
/// of the whole tensor.
Product WithSharedScales(Product product);

/// Returns whether each part has steps.
bool CanBeSplit(const Product& product, size_t parts);

/// Takes part `left` of the left steps and part `right` of the right ones, and
/// leaves the bias out. Steps are cut as torch does: all parts but the last
/// ones have equal length.
Product PartOf(Product product, size_t left, size_t right, size_t parts);

/// Compares the result with sums of `parts` parts. Each part is an FP32 sum in
/// any order, rounded to the result's type. The parts are added in any order,
/// in FP32 or, if they are at most 16, in the result's type. A bias is another
/// term of this sum, or of the first part, or each part has an equal share.
oracle::Comparison CompareParts(const Product& product, size_t parts);

/// Returns trials of sums over the product's parts in which one part is alone,
/// is missing or came twice; none of more than 8 parts. The product must
/// outlive them.
std::vector<Trial> TrialsOfParts(const Product& product);

}  // namespace isoloss::operations
