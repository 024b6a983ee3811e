#include "isoloss/formats/quantize.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "isoloss/base/error.h"
#include "isoloss/formats/rules.h"

namespace isoloss::formats {
namespace {

size_t RoundUp(size_t value, size_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

size_t CellCount(size_t extent, size_t of_cell) {
  return extent == 0 ? 0 : RoundUp(extent, of_cell) / of_cell;
}

/// Returns the part of a tensor that belongs to the cell at (row, col).
MatrixView<const float> CellAt(MatrixView<const float> values, const Cell& cell,
                               size_t row, size_t col) {
  return values.Rows(row, std::min(cell.rows, values.rows() - row))
      .Cols(col, std::min(cell.cols, values.cols() - col));
}

template <typename Use>
void ForEachCell(MatrixView<const float> values, const Cell& cell,
                 const Use& use) {
  for (size_t row = 0; row < values.rows(); row += cell.rows) {
    for (size_t col = 0; col < values.cols(); col += cell.cols) {
      use(row, col, CellAt(values, cell, row, col));
    }
  }
}

}  // namespace

Cell CellOf(const QuantizedTensor& tensor, const Quantization& quantization) {
  return CellIn(quantization, tensor.codes.rows(), tensor.codes.cols());
}

Matrix<float> Transformed(MatrixView<const float> values,
                          const Quantization& quantization,
                          const TensorState& state) {
  const size_t length = RunLength(quantization.transform);
  const uint32_t negative =
      NegativeElements(quantization.transform, state.transform_key);
  Matrix<float> result(values.rows(), RoundUp(values.cols(), length));
  for (size_t row = 0; row < values.rows(); ++row) {
    std::copy_n(values.Row(row), values.cols(), result.Row(row));
    if (!quantization.transforms()) continue;
    for (size_t col = 0; col < result.cols(); col += length) {
      Hadamard16({result.Row(row) + col, length}, negative);
    }
  }
  return result;
}

Cell CellIn(const Quantization& quantization, size_t rows, size_t cols) {
  const auto extent = [](size_t of_cell, size_t whole) {
    return std::max<size_t>(of_cell == 0 ? whole : of_cell, 1);
  };
  return {extent(quantization.cell.rows, rows),
          extent(quantization.cell.cols, cols)};
}

uint32_t AmaxBits(MatrixView<const float> values, bool skip_nan) {
  uint32_t largest = 0;
  for (size_t row = 0; row < values.rows(); ++row) {
    for (size_t col = 0; col < values.cols(); ++col) {
      const uint32_t bits =
          std::bit_cast<uint32_t>(values(row, col)) & 0x7FFFFFFF;
      if (skip_nan && bits > fp32::kInfinity) continue;
      largest = std::max(largest, bits);
    }
  }
  return largest;
}

QuantizedTensor Quantize(MatrixView<const float> values,
                         const Quantization& quantization,
                         const TensorState& state) {
  ISOLOSS_ASSERT(quantization.element != nullptr);
  const Matrix<float> x = Transformed(values, quantization, state);
  const Cell cell = CellIn(quantization, x.rows(), x.cols());
  const bool skip_nan = quantization.non_finite == NonFinitePolicy::kTe;
  TensorAmax amax = {0, state.history};
  ForEachCell(x.view(), cell,
              [&](size_t, size_t, MatrixView<const float> part) {
                const uint32_t bits = AmaxBits(part, true);
                if (bits < fp32::kInfinity || skip_nan)
                  amax.current = std::max(amax.current, bits);
              });

  ScaleTensor(quantization, amax);

  QuantizedTensor result;
  result.codes.ResizeUninitialized(x.rows(), x.cols());
  result.scales.ResizeUninitialized(CellCount(x.rows(), cell.rows),
                                    CellCount(x.cols(), cell.cols));
  const bool stores_bytes = quantization.scale_format == ScaleFormat::kE8m0 ||
                            quantization.scale_format == ScaleFormat::kE4m3;
  if (stores_bytes) {
    result.scale_bytes.ResizeUninitialized(result.scales.rows(),
                                           result.scales.cols());
  }
  const auto quantize_cell = [&](size_t first_row, size_t first_col,
                                 MatrixView<const float> part) {
    const Scale scale =
        ScaleOfCell(quantization, AmaxBits(part, skip_nan), amax);
    const size_t i = first_row / cell.rows;
    const size_t j = first_col / cell.cols;
    result.scales(i, j) = scale.decode;
    if (stores_bytes) result.scale_bytes(i, j) = scale.byte;
    for (size_t row = 0; row < part.rows(); ++row) {
      for (size_t col = 0; col < part.cols(); ++col) {
        const RandomBits random =
            quantization.is_stochastic()
                ? RandomBitsOf(state, first_row + row, first_col + col,
                               quantization.random_bits)
                : RandomBits{};
        result.codes(first_row + row, first_col + col) =
            CodeOf(part(row, col), scale, quantization, random);
      }
    }
  };
  ForEachCell(x.view(), cell, quantize_cell);
  result.tensor_scale = amax.scale.decode;
  return result;
}

Matrix<float> CodeValues(const QuantizedTensor& tensor,
                         const Quantization& quantization) {
  Matrix<float> values;
  values.ResizeUninitialized(tensor.codes.rows(), tensor.codes.cols());
  std::transform(tensor.codes.data(), tensor.codes.data() + tensor.codes.size(),
                 values.data(), [&](uint32_t code) {
                   return Decode(*quantization.element, code);
                 });
  return values;
}

Matrix<float> CellValues(const QuantizedTensor& tensor,
                         const Quantization& quantization) {
  const Cell cell = CellOf(tensor, quantization);
  Matrix<float> values = CodeValues(tensor, quantization);
  for (size_t row = 0; row < values.rows(); ++row) {
    for (size_t col = 0; col < values.cols(); ++col) {
      values(row, col) *= tensor.scales(row / cell.rows, col / cell.cols);
    }
  }
  return values;
}

Matrix<float> Dequantize(const QuantizedTensor& tensor,
                         const Quantization& quantization) {
  Matrix<float> values = CellValues(tensor, quantization);
  for (size_t row = 0; row < values.rows(); ++row) {
    for (size_t col = 0; col < values.cols(); ++col) {
      values(row, col) *= tensor.tensor_scale;
    }
  }
  return values;
}

}  // namespace isoloss::formats
