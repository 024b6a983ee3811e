#include "isoloss/step_checks/operand_figures.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "isoloss/base/portable_math.h"
#include "isoloss/oracle/scalar_cast.h"
#include "isoloss/oracle/scalar_operand.h"

namespace isoloss::step_checks {
namespace {

using formats::Quantization;
using formats::ScaleFormat;

/// Returns the state of a group. Operands whose quantisation needs no state are
/// announced without one.
formats::TensorState StateOf(std::span<const kernels::OperandState> states,
                             const Segment& segment) {
  if (segment.group >= states.size()) return {};
  return oracle::StateOfTensor(states[segment.group].common, segment.number);
}

}  // namespace

std::vector<Segment> SegmentsOf(const RecordedTensor& tensor,
                                const ExpertRows* lists) {
  std::vector<size_t> begins = tensor.begins;
  if (begins.empty()) begins = {0, tensor.values.rows()};
  const size_t groups = begins.size() - 1;
  const size_t per_group =
      tensor.segment_ends.empty() ? 1 : tensor.segment_ends.size() / groups;
  std::vector<Segment> segments;
  for (size_t g = 0; g < groups; ++g) {
    size_t row = begins[g];
    for (size_t s = 0; s < per_group; ++s) {
      const size_t end =
          tensor.segment_ends.empty()
              ? begins[g + 1]
              : begins[g] + tensor.segment_ends[g * per_group + s];
      Segment& segment = segments.emplace_back();
      segment.group = g;
      segment.number = s;
      // Rows of all sequences are numbered through.
      segment.first_position = tensor.begins.empty() ? row : 0;
      for (; row < end; ++row) {
        if (lists != nullptr && lists->token_of_row[row] < 0) continue;
        segment.rows.push_back(row);
      }
    }
  }
  return segments;
}

double OperandFigures::Spread() const {
  double all = 0;
  for (const double count : places) all += count;
  if (all == 0) return std::numeric_limits<double>::quiet_NaN();
  double nats = 0;
  for (const double count : places) {
    if (count > 0) nats -= count / all * portable::Log(count / all);
  }
  return nats / portable::Log(static_cast<double>(places.size()));
}

OperandFigures FiguresOf(const RecordedTensor& operand,
                         const std::vector<Segment>& segments, bool down) {
  OperandFigures figures;
  for (const Segment& segment : segments) {
    if (!segment.rows.empty()) figures.Add(operand, segment, down);
  }
  return figures;
}

void OperandFigures::Add(const RecordedTensor& operand, const Segment& segment,
                         bool down) {
  const Quantization& quantization =
      down ? operand.columnwise : operand.rowwise;
  const auto along = StateOf(operand.rowwise_states, segment);
  const auto state = down ? StateOf(operand.columnwise_states, segment) : along;
  // Rows that fill up lists come after the rows of a segment.
  const auto rows =
      operand.values.view().Rows(segment.rows.front(), segment.rows.size());
  const Matrix<float> turned = down ? Transposed(rows) : Matrix<float>();
  const MatrixView<const float> values = down ? turned.view() : rows;
  oracle::ScalarTensor tensor =
      oracle::ScalarQuantize(values, quantization, state);
  // Elements are compared with the announced values, not with the result of the
  // first quantisation.
  Matrix<float> announced;
  if (down && operand.columnwise_again && operand.quantized_rowwise) {
    announced = std::move(tensor.elements);
    const Matrix<float> first = oracle::ScalarDequantize(
        oracle::ScalarQuantize(rows, operand.rowwise, along), rows.cols());
    tensor = oracle::ScalarQuantize(Transposed(first.view()).view(),
                                    quantization, state);
  }
  const Matrix<float>& x = tensor.elements;
  for (size_t i = 0; i < x.rows(); i += tensor.cell_rows) {
    const auto band =
        x.view().Rows(i, std::min(tensor.cell_rows, x.rows() - i));
    for (size_t j = 0; j < x.cols(); j += tensor.cell_cols) {
      const size_t counted = values.cols() > j ? values.cols() - j : 0;
      AddCell(quantization, tensor.ScaleAt(i, j), tensor.tensor_scale,
              band.Cols(j, std::min(tensor.cell_cols, x.cols() - j)), counted);
    }
  }
  AddErrors(announced.size() > 0 ? announced : x,
            ScalarDequantize(tensor, x.cols()), values.cols());
}

/// `counted` is the number of columns without those that a transform added.
void OperandFigures::AddCell(const Quantization& quantization,
                             const oracle::ScalarScale& scale,
                             float tensor_scale,
                             MatrixView<const float> elements, size_t counted) {
  // FP32 and E4M3 scales are rounded, which saturates nothing.
  const bool is_rounded = quantization.scale_format == ScaleFormat::kFp32 ||
                          quantization.scale_format == ScaleFormat::kE4m3;
  const double limit = oracle::LargestOf(*quantization.element) *
                       static_cast<double>(scale.decode) *
                       static_cast<double>(tensor_scale) *
                       (is_rounded ? 1 + 0x1p-20 : 1.0);
  double largest = 0;
  size_t place = 0;
  for (size_t i = 0; i < elements.rows(); ++i) {
    for (size_t j = 0; j < elements.cols(); ++j) {
      const double size = std::fabs(static_cast<double>(elements(i, j)));
      if (!std::isfinite(size)) continue;
      if (size > limit && j < counted) ++saturated;
      if (size > largest) place = j;
      largest = std::max(largest, size);
    }
  }
  if (quantization.scale_format == ScaleFormat::kNone) return;
  AddScale(quantization, scale.decode);
  const bool is_block = quantization.cell == formats::Cell{1, places.size()};
  if (is_block && elements.cols() == places.size() && largest > 0) {
    ++places[place];
  }
}

void OperandFigures::AddScale(const Quantization& quantization, float scale) {
  nan_scales += std::isnan(scale) ? 1 : 0;
  auto figure = static_cast<double>(scale);
  if (quantization.scale_format == ScaleFormat::kE8m0) {
    const int byte = std::isnan(scale) ? 255 : std::ilogb(scale) + 127;
    ++bytes[static_cast<size_t>(byte)];
    figure = byte;
  }
  if (figure > 0) scale_min = std::fmin(scale_min, figure);
  scale_max = std::fmax(scale_max, figure);
}

void OperandFigures::AddErrors(const Matrix<float>& elements,
                               const Matrix<float>& quantised, size_t counted) {
  for (size_t i = 0; i < elements.rows(); ++i) {
    for (size_t j = 0; j < elements.cols(); ++j) {
      const auto x = static_cast<double>(elements(i, j));
      const auto q = static_cast<double>(quantised(i, j));
      if (!std::isfinite(x) || !std::isfinite(q)) continue;
      errors += (x - q) * (x - q);
      products += x * q;
      quantized += q * q;
      squares += x * x;
      if (j >= counted) continue;
      ++pairs;
      underflows += x != 0 && q == 0 ? 1 : 0;
    }
  }
}

}  // namespace isoloss::step_checks
