// Quantises values that FP32 computed but no run announced. A code may differ
// if an error crosses a boundary.
#pragma once

#include "isoloss/base/matrix.h"
#include "isoloss/formats/quantize.h"
#include "isoloss/oracle/estimate.h"

namespace isoloss::oracle {

/// Tells what a number computed in FP32 should be, and how far it may be off.
struct Uncertain {
  double exact;
  double bound;
  double variance;

  explicit Uncertain(const Estimate& e)
      : exact(e.exact), bound(e.bound), variance(e.noise * e.noise) {}
  Uncertain() = default;  ///< unspecified values; Uncertain{} is 0
};

/// Returns codes times scales, as ScalarQuantize has them, of a tensor whose
/// columns are the contraction axis. Numbers without an error give certain
/// results.
///
/// Bounds   a cell's magnitude lies between two limits, which its elements less
///          and plus their bounds have, and so does its scale. A code does not
///          fall if its element or the scale's inverse grows. So it lies
///          between the codes of the four corners. No rounding goes beyond the
///          next code.
/// Errors   as ScalarQuantize.
Matrix<Uncertain> QuantizedUncertain(const Matrix<Uncertain>& values,
                                     const formats::Quantization& quantization,
                                     const formats::TensorState& state);

}  // namespace isoloss::oracle
