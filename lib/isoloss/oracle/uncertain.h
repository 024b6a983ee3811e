// Values that FP32 computed and nobody announced, and what a description makes
// of them: a code may be another one where an error reaches over a boundary.
#pragma once

#include "isoloss/base/matrix.h"
#include "isoloss/formats/quantize.h"
#include "isoloss/oracle/estimate.h"

namespace isoloss::oracle {

/// A number computed in FP32: what it should be and how far it may be off.
struct Uncertain {
  double exact;
  double bound;
  double variance;

  explicit Uncertain(const Estimate& e)
      : exact(e.exact), bound(e.bound), variance(e.noise * e.noise) {}
  Uncertain() = default;  ///< unspecified, as of numbers; Uncertain{} is 0
};

/// Codes times scales, as ScalarQuantize has them, of a tensor whose columns
/// are the contraction axis. Of numbers without an error nothing is uncertain.
///
/// Bounds   the largest magnitude of a cell lies between those of its elements
///          less and plus their bounds, so its scale between two; a code, which
///          does not fall if its element or the scale's inverse grows, between
///          those of the four corners. No rounding goes beyond the next code.
/// Errors   as ScalarQuantize.
Matrix<Uncertain> QuantizedUncertain(const Matrix<Uncertain>& values,
                                     const formats::Quantization& quantization,
                                     const formats::TensorState& state);

}  // namespace isoloss::oracle
