// Adds up the statistics of a tensor that is quantised in one direction.
#pragma once

#include <cstdint>
#include <limits>

#include "isoloss/base/exact_sum.h"
#include "isoloss/base/matrix.h"
#include "isoloss/kernels/statistics.h"
#include "isoloss/model/tap.h"
#include "isoloss/probes/operand_tensors.h"
#include "isoloss/probes/row_places.h"

namespace isoloss::probes {

/// These numbers are added up, or the largest of them is taken.
struct DirectionSums {
  ExactSum errors, products, quantized, squares;
  int64_t pairs = 0;
  int64_t underflows = 0;
  kernels::BlockTally blocks;
  double is_quantized = 0;  ///< 1: yes
  // These belong to scales that are stored as numbers, not as E8M0.
  int64_t nan_scales = 0;
  double largest_scale = -std::numeric_limits<double>::infinity();
  double negated_least_scale = -std::numeric_limits<double>::infinity();
};

/// Adds the errors of elements, row by row.
/// Shapes   as many of each, at most 1024 columns.
void AddErrors(MatrixView<const float> elements,
               MatrixView<const float> quantized, DirectionSums& sums);

/// Adds one tensor of an operand that IsGeneral. Elements that fill up the runs
/// of a transform are in the sums, but are not counted.
void AddOperandTensor(const model::Tensor& tensor, Direction direction,
                      const RowRun& run, DirectionSums& sums);

}  // namespace isoloss::probes
