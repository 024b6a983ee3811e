// Computes products whose steps lie on several ranks.
#pragma once

#include <cstddef>
#include <vector>

#include "isoloss/layouts/mistakes.h"
#include "isoloss/layouts/recording.h"
#include "isoloss/operations/operation.h"
#include "isoloss/operations/product.h"

namespace isoloss::layouts {

/// Returns how many ranks may each hold a part of every sum of a product, if no
/// placement of the operation tells: those of one part of the batch.
size_t UndeclaredParts(const operations::Operation& operation,
                       const Recording& recording);

/// Returns the product in double, rounded to FP32. Rows of no group are zero.
Matrix<float> ExactProduct(const operations::Product& product);

/// Returns what mistakes of a layout would give: parts alone, parts in another
/// order, a bias on each rank, and scales of shards.
std::vector<Candidate> CandidatesOf(const operations::Product& product,
                                    const std::vector<RankCount>& counts);

}  // namespace isoloss::layouts
