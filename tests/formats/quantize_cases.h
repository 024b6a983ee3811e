// Small tensors that are quantised in tests.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string_view>
#include <vector>

#include "isoloss/formats/quantize.h"

namespace isoloss::formats {

/// A description with a scale of its own, of the whole tensor by default.
inline Quantization Scaled(std::string_view element, ScaleFormat format,
                           ScaleRule rule, Cell cell = {0, 0}) {
  Quantization quantization;
  quantization.element = &FormatByName(element);
  quantization.scale_format = format;
  quantization.scale_rule = rule;
  quantization.cell = cell;
  EXPECT_EQ(WrongQuantization(quantization), "");
  return quantization;
}

inline QuantizedTensor QuantizeRow(const std::vector<float>& row,
                                   const Quantization& quantization,
                                   const TensorState& state = {}) {
  return Quantize({row.data(), 1, row.size()}, quantization, state);
}

template <typename T>
std::vector<T> Flat(const Matrix<T>& matrix) {
  return {matrix.data(), matrix.data() + matrix.size()};
}

inline std::vector<uint32_t> CodesOfRow(const std::vector<float>& row,
                                        const Quantization& quantization,
                                        const TensorState& state = {}) {
  return Flat(QuantizeRow(row, quantization, state).codes);
}

}  // namespace isoloss::formats
