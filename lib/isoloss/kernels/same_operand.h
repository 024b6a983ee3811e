// Tells which operands products share.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include "isoloss/kernels/operand.h"
#include "isoloss/kernels/prepared_operand.h"

namespace isoloss::kernels {

inline bool SameSpan(std::span<const size_t> x, std::span<const size_t> y) {
  return std::ranges::equal(x, y);
}

inline bool SameOperand(const Operand& x, const Operand& y) {
  return x.values.data() == y.values.data() &&
         x.values.rows() == y.values.rows() &&
         x.values.cols() == y.values.cols() &&
         x.values.stride() == y.values.stride() &&
         x.contraction == y.contraction && x.rounding == y.rounding &&
         x.quantization == y.quantization && x.state == y.state &&
         x.before == y.before && x.state_before == y.state_before &&
         SameSpan(x.tensor_ends, y.tensor_ends);
}

inline bool SamePieces(const Pieces& x, const Pieces& y) {
  return x.length == y.length && SameSpan(x.stored_ends, y.stored_ends) &&
         SameSpan(x.segment_ends, y.segment_ends);
}

}  // namespace isoloss::kernels
