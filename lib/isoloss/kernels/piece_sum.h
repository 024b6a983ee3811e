// How the sums of pieces are added up. It is constexpr, so that kernels of a
// device can share this text.
#pragma once

#include <cmath>

#include "isoloss/kernels/rounding.h"

namespace isoloss::kernels {

/// Adds pieces of a segment in order.
struct PieceSum {
  /// True if operands have factors; else factors are not read.
  bool scaled;
  Rounding outer;

  /// Returns the segment's sum with one more piece. `sum` is not read before
  /// the first one.
  constexpr float Add(bool is_first, float sum, float piece,
                      float factor) const {
    if (scaled) {
      return Rounded(is_first ? piece * factor : std::fma(piece, factor, sum),
                     outer);
    }
    return Rounded(is_first ? piece : sum + piece, outer);
  }
};

}  // namespace isoloss::kernels
