// Operations as a correct trainer would record them, and parts of them to plant
// mistakes in.
#pragma once

#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "isoloss/base/matrix.h"
#include "isoloss/base/rng.h"
#include "isoloss/formats/bf16.h"
#include "isoloss/formats/quantize.h"
#include "isoloss/operations/operation.h"
#include "isoloss/operations/product.h"
#include "isoloss/precision/recipe.h"

namespace isoloss::test_support {

using operations::Codes;
using operations::Floats;
using operations::Integers;
using operations::Operation;

inline size_t CountOf(const std::vector<size_t>& extent) {
  size_t count = 1;
  for (const size_t size : extent) count *= size;
  return count;
}

/// Values on BF16's grid whose magnitudes differ by powers of two, so that
/// scales of blocks do.
inline Floats Random(const std::vector<size_t>& extent, const char* name,
                     const char* type = "bfloat16", double size = 1.0) {
  const CounterRng rng(7, StreamId(name));
  Floats floats = {.extent = extent, .values = {}, .type = type};
  for (size_t i = 0; i < CountOf(extent); ++i) {
    const auto bits = rng.Bits(i);
    const double unit =
        static_cast<double>(bits & 0xFFFF) / 0x8000 - 1.0;  // [-1, 1)
    const int exponent = static_cast<int>(bits >> 16 & 7) - 6;
    floats.values.push_back(formats::RoundToBf16(
        static_cast<float>(size * std::ldexp(unit, exponent))));
  }
  return floats;
}

inline Floats Zeros(const std::vector<size_t>& extent,
                    const char* type = "bfloat16") {
  return {.extent = extent,
          .values = std::vector<float>(CountOf(extent)),
          .type = type};
}

/// An operand as a GEMM reads it: [operand rows, depth].
inline Matrix<float> OperandValues(
    MatrixView<const float> values, bool down,
    const std::optional<formats::Quantization>& quantization) {
  Matrix<float> operand = Transposed(values);
  if (!down) operand = Transposed(operand.cview());
  if (!quantization) return operand;
  return formats::Dequantize(formats::Quantize(operand.view(), *quantization),
                             *quantization);
}

/// left right^T, an FP32 chain for each element, rounded to BF16 or not.
inline void Multiply(const Matrix<float>& left, const Matrix<float>& right,
                     bool bf16, float* out) {
  for (size_t i = 0; i < left.rows(); ++i) {
    for (size_t j = 0; j < right.rows(); ++j) {
      float sum = 0.0f;
      for (size_t k = 0; k < left.cols(); ++k) {
        sum = std::fma(left(i, k), right(j, k), sum);
      }
      *out++ = bf16 ? formats::RoundToBf16(sum) : sum;
    }
  }
}

/// Codes and scales of one operand, appended.
inline void AppendCodes(MatrixView<const float> values, bool down,
                        const formats::Quantization& quantization, Codes& codes,
                        Codes& scales) {
  const auto tensor = formats::Quantize(
      down ? Transposed(values).view() : MatrixView<const float>(values),
      quantization);
  const size_t rows = values.rows();
  const size_t cols = values.cols();
  for (size_t r = 0; r < rows; ++r) {
    for (size_t c = 0; c < cols; ++c) {
      codes.values.push_back(
          static_cast<uint8_t>(down ? tensor.codes(c, r) : tensor.codes(r, c)));
    }
  }
  const size_t deep = ((down ? rows : cols) + 31) / 32;
  const size_t cell = quantization.cell.rows;
  const auto scale = [&](size_t row, size_t block) {
    return tensor.scale_bytes(row / cell, block);
  };
  if (down) {
    for (size_t b = 0; b < deep; ++b) {
      for (size_t c = 0; c < cols; ++c) scales.values.push_back(scale(c, b));
    }
  } else {
    for (size_t r = 0; r < rows; ++r) {
      for (size_t b = 0; b < deep; ++b) scales.values.push_back(scale(r, b));
    }
  }
}

/// The three products of a layer by `precision`. `left` and `right` replace
/// nothing unless a test sets them.
inline void Compute(const precision::LinearPrecision& precision,
                    Operation& operation) {
  const MatrixView<const float> x = operation.Find("x")->Rows();
  const Floats& weight = *operation.Find("weight");
  const MatrixView<const float> dy = operation.Find("grad_output")->Rows();
  std::vector<int64_t> ends = {static_cast<int64_t>(x.rows())};
  if (const Integers* given = operation.FindIntegers("group_ends")) {
    ends = given->values;
  }
  const size_t out = weight.extent[weight.extent.size() - 2];
  Floats& y = operation.floats["output"];
  Floats& dx = operation.floats["grad_input"];
  Floats& dw = operation.floats["grad_weight"];
  y = Zeros({x.rows(), out});
  dx = Zeros({x.rows(), x.cols()});
  dw = Zeros(weight.extent, "float32");
  size_t begin = 0;
  for (size_t g = 0; g < ends.size(); ++g) {
    const size_t count = static_cast<size_t>(ends[g]) - begin;
    const auto rows = x.Rows(begin, count);
    const auto grads = dy.Rows(begin, count);
    const auto w = weight.Rows().Rows(g * out, out);
    Multiply(OperandValues(rows, false, precision.fprop.left),
             OperandValues(w, false, precision.fprop.right), true,
             y.values.data() + begin * out);
    Multiply(OperandValues(grads, false, precision.dgrad.left),
             OperandValues(w, true, precision.dgrad.right), true,
             dx.values.data() + begin * x.cols());
    Multiply(OperandValues(grads, true, precision.wgrad.left),
             OperandValues(rows, true, precision.wgrad.right), false,
             dw.values.data() + g * out * x.cols());
    begin += count;
  }
}

/// Of a quantised layer with one group: all codes.
inline void AddCodes(const precision::LinearPrecision& precision,
                     Operation& operation) {
  const auto add = [&](const std::string& name, const char* tensor, bool down,
                       const std::optional<formats::Quantization>& q) {
    if (!q) return;
    const auto values = operation.Find(tensor)->Rows();
    Codes& codes = operation.codes[name + "_codes"];
    Codes& scales = operation.codes[name + "_scales"];
    AppendCodes(values, down, *q, codes, scales);
    codes.extent = {values.rows(), values.cols()};
    codes.type = q->element->name;
    scales.extent =
        down ? std::vector<size_t>{(values.rows() + 31) / 32, values.cols()}
             : std::vector<size_t>{values.rows(), (values.cols() + 31) / 32};
  };
  add("fprop_x", "x", false, precision.fprop.left);
  add("fprop_w", "weight", false, precision.fprop.right);
  add("dgrad_dy", "grad_output", false, precision.dgrad.left);
  add("dgrad_w", "weight", true, precision.dgrad.right);
  add("wgrad_dy", "grad_output", true, precision.wgrad.left);
  add("wgrad_x", "x", true, precision.wgrad.right);
}

inline constexpr size_t kTokens = 64;
inline constexpr size_t kIn = 96;
inline constexpr size_t kOut = 64;

inline Operation LinearInputs(const std::string& module = "layers.0.wq") {
  Operation operation = {.type = "linear", .module = module};
  operation.floats["x"] = Random({kTokens, kIn}, "x");
  operation.floats["weight"] = Random({kOut, kIn}, "weight");
  operation.floats["grad_output"] = Random({kTokens, kOut}, "dy");
  return operation;
}

inline Operation GroupedInputs() {
  Operation operation = {.type = "grouped_linear", .module = "moe.experts.w1"};
  operation.floats["x"] = Random({kTokens, kIn}, "x");
  operation.floats["weight"] = Random({4, kOut, kIn}, "weight");
  operation.floats["grad_output"] = Random({kTokens, kOut}, "dy");
  operation.integers["group_ends"] = {.extent = {4},
                                      .values = {20, 20, 49, 64}};
  return operation;
}

}  // namespace isoloss::test_support
