// Finds a fixed order of FP32 sums that gives the bits of a product.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "isoloss/operations/product.h"

namespace isoloss::certify {

/// Names an element of a product's output by row and column.
using OutputPlace = std::pair<size_t, size_t>;

/// Describes the order of sums that predicts all bits at these places: chains
/// in either direction, whole or in parts of k, and sums in lanes of a vector
/// register. Parts are tried by operations::SplitsOf.
/// Special  "": no such order predicts them, or operands are quantised.
/// Cost     at most some 2^29 multiplications.
std::string FixedOrderOf(const operations::Product& product,
                         const std::vector<OutputPlace>& places);

}  // namespace isoloss::certify
