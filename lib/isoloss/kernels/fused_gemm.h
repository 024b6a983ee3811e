// Sums of products as tensor cores add them, on the vectors of the active
// target.
#pragma once

#include <algorithm>
#include <cstddef>

#include "isoloss/base/matrix.h"
#include "isoloss/kernels/accumulator.h"
#include "isoloss/kernels/fused_sum.h"
#include "isoloss/kernels/prepared_operand.h"

namespace isoloss::kernels {

/// Tells whether vectors add as the accumulator does. Null means no
/// accumulator.
bool HasFusedPanels(const Accumulator* accumulator);

/// Makes room for the panels of a right operand.
void ResizeFusedPanels(PreparedOperand& b);

/// Packs a panel of an operand whose values and exponents are prepared.
void PackFusedPanel(size_t panel, PreparedOperand& b);

/// Element (i, j) adds steps [begin, end) of row first + i of a and row j of b.
struct FusedProduct {
  const PreparedOperand& a;
  size_t first;
  const PreparedOperand& b;
  size_t begin;
  size_t end;
  const Accumulator& accumulator;

  /// Adds the products of the instruction that begins at step k.
  float Add(float sum, size_t i, size_t j, size_t k) const {
    return FusedSum(accumulator, sum, a.From(first + i, k), b.From(j, k),
                    std::min(accumulator.steps, end - k));
  }
  /// Returns one sum, instruction by instruction from +0.
  float Sum(size_t i, size_t j) const {
    float sum = 0.0f;
    for (size_t k = begin; k < end; k += accumulator.steps) {
      sum = Add(sum, i, j, k);
    }
    return sum;
  }
};

/// Computes sums(i, j), instruction by instruction from +0. If the accumulator
/// has panels, those of b must be packed.
void FusedSums(const FusedProduct& product, Matrix<float>& sums);

}  // namespace isoloss::kernels
