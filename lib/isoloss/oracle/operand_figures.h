// What quantising an operand in one direction did to it, in figures.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "isoloss/base/matrix.h"
#include "isoloss/oracle/scalar_quantize.h"
#include "isoloss/oracle/step_record.h"

namespace isoloss::oracle {

/// Counts and sums over all tensors of an operand (docs/run-log.md, Tensors).
struct OperandFigures {
  double underflows = 0, saturated = 0, nan_scales = 0, pairs = 0;
  /// Bytes of E8M0, else what codes are multiplied by; NaN: there is none.
  double scale_min = std::numeric_limits<double>::quiet_NaN();
  double scale_max = std::numeric_limits<double>::quiet_NaN();
  double errors = 0, products = 0, quantized = 0, squares = 0;
  std::array<int64_t, 256> bytes = {};  ///< cells with each E8M0 scale
  /// Full blocks of 32 by the place of their largest magnitude.
  std::array<double, 32> places = {};

  /// Entropy of the places over its largest value; NaN without full blocks.
  double Spread() const;

  /// Adds the tensor with rows `rows`, ascending, of group `group`, the
  /// `number`th of its group, as the operand's products quantise it: along rows
  /// or `down` columns.
  void Add(const RecordedTensor& operand, MatrixView<const float> rows,
           size_t group, size_t number, bool down);

 private:
  void AddScale(const formats::Quantization& quantization, float scale);
  void AddCell(const formats::Quantization& quantization,
               const ScalarScale& scale, float tensor_scale,
               MatrixView<const float> elements, size_t counted);
  void AddErrors(const Matrix<float>& elements, const Matrix<float>& quantised,
                 size_t counted);
};

}  // namespace isoloss::oracle
