// Splits an operand into its tensors and measures what quantisation did to
// them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "isoloss/oracle/scalar_quantize.h"
#include "isoloss/step_checks/moe_check.h"
#include "isoloss/step_checks/step_record.h"

namespace isoloss::step_checks {

/// Holds the rows of one tensor of an operand, as places in the whole batch.
struct Segment {
  uint64_t group = 0;
  /// Its place among the group's segments; a segment of tokens is a sequence.
  uint64_t number = 0;
  /// The position of its first row in the part that one digest covers.
  uint64_t first_position = 0;
  std::vector<size_t> rows;
};

/// Returns all segments of a tensor. Rows that fill up experts' `lists` are
/// left out; null means that no list has such rows.
std::vector<Segment> SegmentsOf(const RecordedTensor& tensor,
                                const ExpertRows* lists);

/// Counts and sums are over all tensors of an operand (docs/run-log.md,
/// Tensors).
struct OperandFigures {
  double underflows = 0, saturated = 0, nan_scales = 0, pairs = 0;
  /// They are bytes of E8M0, else the factors of codes; NaN if there is no
  /// scale.
  double scale_min = std::numeric_limits<double>::quiet_NaN();
  double scale_max = std::numeric_limits<double>::quiet_NaN();
  double errors = 0, products = 0, quantized = 0, squares = 0;
  std::array<int64_t, 256> bytes = {};  ///< cells with each E8M0 scale
  /// Counts full blocks of 32 by where their largest magnitude is.
  std::array<double, 32> places = {};

  /// Returns the entropy of `places` over its largest possible value. It is NaN
  /// without full blocks.
  double Spread() const;

  /// Adds one tensor as the operand's products quantise it: along rows or
  /// `down` columns.
  void Add(const RecordedTensor& operand, const Segment& segment, bool down);

 private:
  void AddScale(const formats::Quantization& quantization, float scale);
  void AddCell(const formats::Quantization& quantization,
               const oracle::ScalarScale& scale, float tensor_scale,
               MatrixView<const float> elements, size_t counted);
  void AddErrors(const Matrix<float>& elements, const Matrix<float>& quantised,
                 size_t counted);
};

/// Returns the figures of an operand that is quantised in that direction.
OperandFigures FiguresOf(const RecordedTensor& operand,
                         const std::vector<Segment>& segments, bool down);

}  // namespace isoloss::step_checks
