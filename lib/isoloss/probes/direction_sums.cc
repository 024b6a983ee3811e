#include "isoloss/probes/direction_sums.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "isoloss/formats/format.h"
#include "isoloss/formats/mx_block.h"

namespace isoloss::probes {
namespace {

using formats::Cell;
using formats::Quantization;
using formats::ScaleFormat;

constexpr size_t kDirectionRun = 1024;

/// With `counts` pairs and underflows are counted, too.
void AddRowErrors(std::span<const float> elements,
                  std::span<const float> quantized, bool counts,
                  DirectionSums& sums) {
  const kernels::QuantizationErrors errors =
      kernels::ErrorsOf(elements, quantized);
  sums.errors.Add(errors.errors);
  sums.products.Add(errors.products);
  sums.quantized.Add(errors.quantized);
  sums.squares.Add(errors.squares);
  if (!counts) return;
  sums.pairs += errors.pairs;
  sums.underflows += errors.underflows;
}

/// An element whose magnitude exceeds this limit saturates. Scales that are no
/// powers of two are rounded a few times in FP32, which saturates nothing.
double LimitOf(const Quantization& quantization, double scale) {
  const bool rounded = quantization.scale_format == ScaleFormat::kFp32 ||
                       quantization.scale_format == ScaleFormat::kE4m3;
  return static_cast<double>(formats::MaxFinite(*quantization.element)) *
         scale * (rounded ? 1 + 0x1p-20 : 1);
}

/// Counts the place of a block's largest magnitude, the first of equals.
void TallyPlace(MatrixView<const float> block, DirectionSums& sums) {
  float largest = 0;
  size_t place = 0;
  for (size_t k = 0; k < block.cols(); ++k) {
    const float magnitude = std::fabs(block(0, k));
    if (!std::isfinite(magnitude) || magnitude <= largest) continue;
    largest = magnitude;
    place = k;
  }
  if (largest > 0) ++sums.blocks.places[place];
}

void TallyScale(const OperandTensor& tensor, const Quantization& quantization,
                size_t i, size_t j, DirectionSums& sums) {
  if (quantization.scale_format == ScaleFormat::kE8m0) {
    ++sums.blocks.bytes[tensor.quantized.scale_bytes(i, j)];
    return;
  }
  const auto scale = static_cast<double>(tensor.quantized.scales(i, j));
  if (std::isnan(scale)) {
    ++sums.nan_scales;
    return;
  }
  sums.largest_scale = std::max(sums.largest_scale, scale);
  if (scale > 0) {
    sums.negated_least_scale = std::max(sums.negated_least_scale, -scale);
  }
}

/// Elements of the first `counted` columns are counted.
void TallyCells(const OperandTensor& tensor, const Quantization& quantization,
                size_t counted, DirectionSums& sums) {
  const Cell cell = formats::CellOf(tensor.quantized, quantization);
  const MatrixView<const float> elements = tensor.elements.view();
  const Matrix<float>& scales = tensor.quantized.scales;
  for (size_t i = 0; i < scales.rows(); ++i) {
    const size_t row = i * cell.rows;
    const auto rows =
        elements.Rows(row, std::min(cell.rows, elements.rows() - row));
    for (size_t j = 0; j < scales.cols(); ++j) {
      const size_t col = j * cell.cols;
      const auto part =
          rows.Cols(col, std::min(cell.cols, elements.cols() - col));
      const double limit = LimitOf(
          quantization, static_cast<double>(scales(i, j)) *
                            static_cast<double>(tensor.quantized.tensor_scale));
      for (size_t r = 0; r < part.rows(); ++r) {
        for (size_t c = 0; c < part.cols() && col + c < counted; ++c) {
          const auto magnitude = static_cast<double>(std::fabs(part(r, c)));
          if (std::isfinite(magnitude) && magnitude > limit) {
            ++sums.blocks.saturated;
          }
        }
      }
      if (quantization.scale_format == ScaleFormat::kNone) continue;
      TallyScale(tensor, quantization, i, j, sums);
      const bool is_block = quantization.cell == Cell{};
      if (is_block && part.cols() == formats::kMxBlockSize) {
        TallyPlace(part, sums);
      }
    }
  }
}

}  // namespace

void AddErrors(MatrixView<const float> elements,
               MatrixView<const float> quantized, DirectionSums& sums) {
  for (size_t i = 0; i < elements.rows(); ++i) {
    AddRowErrors({elements.Row(i), elements.cols()},
                 {quantized.Row(i), elements.cols()}, /*counts=*/true, sums);
  }
}

void AddOperandTensor(const model::Tensor& tensor, Direction direction,
                      const RowRun& run, DirectionSums& sums) {
  const Quantization& quantization = *QuantizationOf(tensor, direction);
  const auto rows = tensor.values.Rows(run.begin, run.end - run.begin);
  const OperandTensor made =
      QuantizeTensor(rows, tensor, direction, StatesOf(tensor, run));
  const size_t counted =
      direction == Direction::kRowwise ? rows.cols() : rows.rows();
  TallyCells(made, quantization, counted, sums);
  const Matrix<float> values =
      formats::Dequantize(made.quantized, quantization);
  const Matrix<float>& elements =
      made.announced.size() > 0 ? made.announced : made.elements;
  for (size_t i = 0; i < values.rows(); ++i) {
    for (size_t j = 0; j < values.cols();) {
      const bool counts = j < counted;
      const size_t end = counts ? counted : values.cols();
      const size_t count = std::min(kDirectionRun, end - j);
      AddRowErrors({elements.Row(i) + j, count}, {values.Row(i) + j, count},
                   counts, sums);
      j += count;
    }
  }
}

}  // namespace isoloss::probes
