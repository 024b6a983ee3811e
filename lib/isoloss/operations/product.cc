#include "isoloss/operations/product.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "isoloss/base/error.h"
#include "isoloss/formats/format.h"
#include "isoloss/oracle/scalar_product.h"

namespace isoloss::operations {
namespace {

using oracle::Comparison;
using oracle::Estimate;
using oracle::ScalarOperand;
using oracle::ScalarProduct;
using oracle::ScalarTensor;

/// The operand of a side whose change is made, in the side's orientation.
bool MakeChange(Side& side) {
  const std::optional<ScalarTensor> tensor = Quantized(side);
  if (!tensor) return false;
  const size_t cols = side.down ? side.values.rows() : side.values.cols();
  Matrix<float> values = oracle::ScalarDequantize(*tensor, cols);
  side.Own(side.down ? Transposed(values.view()) : std::move(values));
  side.quantization.reset();
  side.before.reset();
  side.change = nullptr;
  return true;
}

ScalarOperand OperandOf(const Side& side) {
  return {.values = side.values,
          .down = side.down,
          .quantization = side.quantization ? &*side.quantization : nullptr,
          .before = side.before ? &*side.before : nullptr};
}

/// With a bias, before the last rounding. It may be what the sum begins with:
/// then each of K additions rounds it too.
Estimate WithBias(const Product& product, size_t depth, const Estimate& sum,
                  size_t column) {
  if (product.bias == nullptr) return sum;
  const Estimate bias = {
      .exact = static_cast<double>(product.bias[column]),
      .bound = oracle::Gamma(depth + 1) *
               std::fabs(static_cast<double>(product.bias[column]))};
  if (product.bias_after) {
    return oracle::Rounded32(oracle::RoundedOnTheWay(product.grid, sum) +
                             Estimate{.exact = bias.exact});
  }
  return oracle::Rounded32(sum + bias);
}

void CompareGroup(const Product& product, const ProductGroup& group,
                  Comparison& comparison) {
  precision::GemmPrecision precision;
  precision.accumulation = product.accumulation;
  const ScalarOperand left = OperandOf(group.left);
  const size_t depth = left.down ? left.values.rows() : left.values.cols();
  const ScalarProduct sums(left, OperandOf(group.right), precision);
  sums.ForEach([&](size_t i, size_t j, const Estimate& dot) {
    const size_t row = group.first_row + i;
    const float value = product.output(row, j);
    const Estimate sum = WithBias(product, depth, dot, j);
    if (sums.has_bits()) {
      comparison.AddExact(row, j, value, RoundTo(product.grid, sum.exact));
    } else {
      comparison.Add(row, j, value, sum);
    }
  });
}

float ScaleOf(uint8_t code) {
  constexpr uint8_t kNan = 255;
  return code == kNan ? std::numeric_limits<float>::quiet_NaN()
                      : std::ldexp(1.0f, code - 127);
}

}  // namespace

void Side::Own(Matrix<float> matrix) {
  owned = std::make_shared<const Matrix<float>>(std::move(matrix));
  values = owned->view();
}

std::optional<ScalarTensor> Quantized(const Side& side) {
  if (!side.quantization) return std::nullopt;
  Matrix<float> turned;
  MatrixView<const float> values = side.values;
  if (side.before) {
    turned = ScalarDequantize(oracle::ScalarQuantize(values, *side.before),
                              values.cols());
    values = turned.view();
  }
  if (side.down) {
    turned = Transposed(values);
    values = turned.view();
  }
  ScalarTensor tensor = oracle::ScalarQuantize(values, *side.quantization);
  if (side.change != nullptr && !side.change(tensor, *side.quantization)) {
    return std::nullopt;
  }
  return tensor;
}

std::optional<Comparison> Compare(const Product& product) {
  Comparison comparison(product.grid);
  try {
    for (const ProductGroup& group : product.groups) {
      if (group.left.change == nullptr && group.right.change == nullptr) {
        CompareGroup(product, group, comparison);
        continue;
      }
      ProductGroup changed = group;
      for (Side* side : {&changed.left, &changed.right}) {
        if (side->change != nullptr && !MakeChange(*side)) return std::nullopt;
      }
      CompareGroup(product, changed, comparison);
    }
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kShape) throw;
    return std::nullopt;
  }
  return comparison;
}

std::optional<Comparison> CompareCodes(const std::vector<const Side*>& sides,
                                       const Codes& codes,
                                       const Codes& scales) {
  Comparison comparison(oracle::Grid::kFp32);
  const formats::Format& format = formats::FormatByName(codes.type);
  size_t code = 0;
  size_t scale = 0;
  for (const Side* side : sides) {
    const std::optional<ScalarTensor> tensor = Quantized(*side);
    if (!tensor) return std::nullopt;
    const bool is_format = side->quantization->element == &format;
    const size_t rows = side->values.rows();
    const size_t cols = side->values.cols();
    for (size_t r = 0; r < rows; ++r) {
      for (size_t c = 0; c < cols; ++c) {
        const float found = formats::Decode(format, codes.values[code++]);
        const float wanted =
            side->down ? tensor->codes(c, r) : tensor->codes(r, c);
        if (is_format) {
          comparison.AddExact(r, c, found, wanted);
        } else {
          comparison.AddOther(r, c, found, static_cast<double>(wanted));
        }
      }
    }
    constexpr size_t kBlock = 32;
    const size_t scale_rows = side->down ? (rows + kBlock - 1) / kBlock : rows;
    const size_t scale_cols = side->down ? cols : (cols + kBlock - 1) / kBlock;
    for (size_t r = 0; r < scale_rows; ++r) {
      for (size_t c = 0; c < scale_cols; ++c) {
        const oracle::ScalarScale& wanted =
            side->down ? tensor->ScaleAt(c, kBlock * r)
                       : tensor->ScaleAt(r, kBlock * c);
        comparison.AddExact(r, c, ScaleOf(scales.values[scale++]),
                            wanted.decode);
      }
    }
  }
  return comparison;
}

double MultiplyAdds(const Product& product) {
  double sum = 0.0;
  for (const ProductGroup& group : product.groups) {
    const MatrixView<const float>& left = group.left.values;
    sum += static_cast<double>(left.rows()) * static_cast<double>(left.cols()) *
           static_cast<double>(product.output.cols());
  }
  return sum;
}

}  // namespace isoloss::operations
