// Tells results whose sums have another order from those of a sick processor.
#pragma once

#include <vector>

#include "isoloss/kernels/accumulator.h"
#include "isoloss/operations/deviations.h"
#include "isoloss/operations/product.h"

namespace isoloss::operations {

/// Returns whether wrong elements lie where those of another order of sums
/// would: in rows and columns of all tiles, but not in groups with too few
/// steps to be split. They must not differ in one bit alone.
bool MayHaveOtherOrder(const Product& product, const Deviations& deviations,
                       const std::vector<bool>& wrong_rows);

/// Returns whether results are no larger, on the average, than exact ones, and
/// no smaller than cuts toward zero make them. Other small errors, such as a
/// wrong factor, move the average.
bool ShrinksAsCutsDo(const Product& product,
                     const kernels::Accumulator& accumulator);

}  // namespace isoloss::operations
