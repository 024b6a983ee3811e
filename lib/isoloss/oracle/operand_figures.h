// The tensors that an operand consists of, and what quantising them did, in
// figures.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "isoloss/oracle/moe_check.h"
#include "isoloss/oracle/scalar_quantize.h"
#include "isoloss/oracle/step_record.h"

namespace isoloss::oracle {

/// Rows of one tensor of an operand, and where they stand in the whole batch's.
struct Segment {
  uint64_t group = 0;
  /// Of the group's segments; of tokens, a sequence.
  uint64_t number = 0;
  /// Of its first row, in what its digest takes for one segment.
  uint64_t first_position = 0;
  std::vector<size_t> rows;
};

/// All of a tensor's, without the rows that fill up experts' lists; null: of
/// lists that have none.
std::vector<Segment> SegmentsOf(const RecordedTensor& tensor,
                                const ExpertRows* lists);

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

  /// Adds one tensor as the operand's products quantise it: along rows or
  /// `down` columns.
  void Add(const RecordedTensor& operand, const Segment& segment, bool down);

 private:
  void AddScale(const formats::Quantization& quantization, float scale);
  void AddCell(const formats::Quantization& quantization,
               const ScalarScale& scale, float tensor_scale,
               MatrixView<const float> elements, size_t counted);
  void AddErrors(const Matrix<float>& elements, const Matrix<float>& quantised,
                 size_t counted);
};

/// Of an operand that is quantised in that direction.
OperandFigures FiguresOf(const RecordedTensor& operand,
                         const std::vector<Segment>& segments, bool down);

}  // namespace isoloss::oracle
