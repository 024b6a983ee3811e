// Computes products whose steps lie on several ranks.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "isoloss/layouts/mistakes.h"
#include "isoloss/layouts/recording.h"
#include "isoloss/operations/product.h"
#include "isoloss/oracle/comparison.h"

namespace isoloss::layouts {

/// A product is a sum over so many ranks, each of which rounds its part.
struct Parts {
  size_t count = 1;
  /// Placements say so; else ranks of one part of the batch could do so.
  bool is_declared = false;
};

/// Returns how the result of one product may be split. The result is partial
/// along an axis of the mesh, or the weight is sharded along the steps of the
/// product on an axis whose ranks have the same tokens.
Parts PartsOf(const operations::Operation& operation, precision::GemmRole role,
              const Recording& recording);

/// Returns "output", "grad_input" or "grad_weight".
const char* ResultName(precision::GemmRole role);

/// Compares the result with sums of `parts` parts. Each part is an FP32 sum in
/// any order, rounded to the result's type; the parts are added in any order in
/// that type, or exactly, and rounded once more.
oracle::Comparison CompareParts(const operations::Product& product,
                                size_t parts);

/// Returns the product in double, rounded to FP32. Rows of no group are zero.
Matrix<float> ExactProduct(const operations::Product& product);

/// Returns what mistakes of a layout would give: parts alone, parts in another
/// order, a bias on each rank, and scales of shards.
std::vector<Candidate> CandidatesOf(const operations::Product& product,
                                    const std::vector<RankCount>& counts);

}  // namespace isoloss::layouts
