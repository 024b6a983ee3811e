// Tells results whose sums have another order from those of a sick processor.
#pragma once

#include <vector>

#include "isoloss/operations/deviations.h"
#include "isoloss/operations/product.h"

namespace isoloss::operations {

/// Returns whether wrong elements lie where those of another order of sums
/// would: in rows and columns of all tiles, but not in groups with too few
/// steps to be split. They must not differ in one bit alone.
bool MayHaveOtherOrder(const Product& product, const Deviations& deviations,
                       const std::vector<bool>& wrong_rows);

}  // namespace isoloss::operations
