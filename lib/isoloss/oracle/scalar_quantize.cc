#include "isoloss/oracle/scalar_quantize.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <span>
#include <string_view>

#include "isoloss/base/rng.h"

namespace isoloss::oracle {
namespace {

using formats::NonFinitePolicy;
using formats::Quantization;
using formats::ScaleFormat;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// ---- transforms
// --------------------------------------------------------------

/// A run has this many elements.
constexpr size_t kRun = 16;
using Run = std::array<float, kRun>;

/// Returns element i of H x for x[first, first + length), where length is a
/// power of two. The halves are transformed, then added, or subtracted if i
/// lies in the second half of its own 2^n. So neighbours are added first,
/// halves of the run last.
float HadamardElement(const Run& x, size_t i, size_t first, size_t length) {
  if (length == 1) return x[first];
  const size_t half = length / 2;
  const float low = HadamardElement(x, i, first, half);
  const float high = HadamardElement(x, i, first + half, half);
  return (i / half) % 2 == 1 ? low - high : low + high;
}

/// Returns +1 or -1 for each element of a run.
std::array<int, kRun> SignsOf(formats::Transform transform, uint64_t key) {
  if (transform == formats::Transform::kHadamard16Te) {
    return {1, 1, 1, -1, 1, -1, -1, -1, -1, -1, -1, 1, -1, 1, -1, -1};
  }
  std::array<int, kRun> signs;
  signs.fill(1);
  if (transform != formats::Transform::kHadamard16Random) return signs;
  for (size_t i = 0; i < kRun; ++i) signs[i] = (key >> i) % 2 == 1 ? -1 : 1;
  return signs;
}

/// Zeros fill up the last run of a row.
Matrix<float> Transformed(MatrixView<const float> values,
                          const Quantization& quantization, uint64_t key) {
  const bool transforms = quantization.transforms();
  const size_t runs = (values.cols() + kRun - 1) / kRun;
  Matrix<float> result(values.rows(), transforms ? runs * kRun : values.cols());
  for (size_t row = 0; row < values.rows(); ++row) {
    std::copy_n(values.Row(row), values.cols(), result.Row(row));
  }
  if (!transforms) return result;
  const std::array<int, kRun> signs = SignsOf(quantization.transform, key);
  Run run;
  for (size_t row = 0; row < values.rows(); ++row) {
    for (float* x = result.Row(row); x < result.Row(row) + result.cols();
         x += kRun) {
      for (size_t i = 0; i < kRun; ++i) run[i] = signs[i] < 0 ? -x[i] : x[i];
      for (size_t i = 0; i < kRun; ++i) {
        x[i] = HadamardElement(run, i, 0, kRun) / 4.0f;
      }
    }
  }
  return result;
}

// ---- elements
// ----------------------------------------------------------------

/// Returns the largest magnitude in a rectangle. It is infinite or NaN if an
/// element is, unless NaN is skipped.
float MagnitudeOf(MatrixView<const float> cell, bool skip_nan) {
  // Magnitudes are ordered as their bits, infinity and NaN after all others.
  constexpr int32_t kInfinity = 0x7F800000;
  int32_t largest = 0;
  int32_t number = 0;  // the largest that is no NaN
  for (size_t row = 0; row < cell.rows(); ++row) {
    const float* values = cell.Row(row);
    for (size_t col = 0; col < cell.cols(); ++col) {
      const int32_t bits = std::bit_cast<int32_t>(values[col]) & 0x7FFFFFFF;
      largest = std::max(largest, bits);
      number = std::max(number, bits > kInfinity ? 0 : bits);
    }
  }
  if (largest > kInfinity && !skip_nan) return kNan;
  return std::bit_cast<float>(number);
}

/// Calls use(first row, first column, cell) for all cells of x, row by row.
template <typename Use>
void ForEachCell(const Matrix<float>& x, const ScalarTensor& tensor,
                 const Use& use) {
  for (size_t row = 0; row < x.rows(); row += tensor.cell_rows) {
    const size_t rows = std::min(tensor.cell_rows, x.rows() - row);
    for (size_t col = 0; col < x.cols(); col += tensor.cell_cols) {
      const size_t cols = std::min(tensor.cell_cols, x.cols() - col);
      use(row, col, x.view().Rows(row, rows).Cols(col, cols));
    }
  }
}

size_t Extent(size_t of_cell, size_t whole) {
  return std::max<size_t>(1, of_cell == 0 ? whole : of_cell);
}

}  // namespace

uint32_t ScalarRandom(const formats::TensorState& state, size_t row, size_t col,
                      int bits) {
  const std::array<uint32_t, 4> words =
      CounterRng(state.seed, state.stream)
          .Block((uint64_t{row} << 32) + uint64_t{col / 8});
  const uint32_t word = words[col % 8 / 2];
  const uint32_t half = col % 2 == 0 ? word % 65536 : word / 65536;
  return half / (uint32_t{1} << (16 - bits));
}

ScalarCoder::ScalarCoder(const Quantization& quantization)
    : quantization_(quantization),
      cast_(*quantization.element, quantization.rounding) {}

float ScalarCoder::Code(float value, const ScalarScale& scale,
                        uint32_t random) const {
  const formats::Format& element = *quantization_.element;
  if (std::isnan(scale.decode)) return element.has_nan() ? kNan : 0.0f;
  if (std::isnan(value) && !element.has_nan()) {
    return static_cast<float>(LargestOf(element));
  }
  const bool overflows =
      quantization_.scale_format == ScaleFormat::kNone && element.has_infinity;
  return cast_.Cast(value * scale.encode, overflows, random,
                    quantization_.random_bits);
}

void ScalarCoder::Codes(const float* values, size_t count,
                        const ScalarScale& scale, float* codes) const {
  if (quantization_.rounding == formats::RoundingMode::kNearestEven &&
      !quantization_.element->has_infinity) {
    return cast_.CastToNearest(values, scale.encode, count, codes);
  }
  for (size_t i = 0; i < count; ++i) codes[i] = Code(values[i], scale, 0);
}

formats::TensorState StateOfTensor(uint64_t seed, uint64_t step,
                                   const std::string& operand, size_t number) {
  constexpr uint64_t kGroups = 1 << 24;
  const uint64_t stream =
      CounterRng(seed, StreamId("quantize/" + operand)).Bits(step * kGroups);
  return {.seed = seed, .stream = CounterRng(seed, stream).Bits(number)};
}

bool NeedsState(const Quantization& quantization) {
  return quantization.random_bits > 0 || quantization.history > 0 ||
         quantization.transform == formats::Transform::kHadamard16Random;
}

ScalarTensor ScalarQuantize(MatrixView<const float> values,
                            const Quantization& quantization,
                            const formats::TensorState& state) {
  ScalarTensor tensor;
  tensor.elements = Transformed(values, quantization, state.transform_key);
  const Matrix<float>& x = tensor.elements;
  tensor.cell_rows = Extent(quantization.cell.rows, x.rows());
  tensor.cell_cols = Extent(quantization.cell.cols, x.cols());
  TensorMagnitudes magnitudes = {0.0f, state.history};
  if (quantization.scaling == formats::Scaling::kTwoLevel) {
    ForEachCell(x, tensor, [&](size_t, size_t, MatrixView<const float> cell) {
      const float largest = MagnitudeOf(cell, true);
      // TransformerEngine takes the maximum over the whole tensor, with
      // infinities.
      if (std::isfinite(largest) ||
          quantization.non_finite == NonFinitePolicy::kTe) {
        magnitudes.current = std::max(magnitudes.current, largest);
      }
    });
  }
  tensor.tensor_scale = ScaleOfTensor(quantization, magnitudes);
  tensor.codes.ResizeUninitialized(x.rows(), x.cols());
  const bool skip_nan = quantization.non_finite == NonFinitePolicy::kTe;
  const ScalarCoder coder(quantization);
  ForEachCell(x, tensor,
              [&](size_t row, size_t col, MatrixView<const float> cell) {
                const float largest = MagnitudeOf(cell, skip_nan);
                const ScalarScale scale =
                    ScaleOfCell(quantization, largest, magnitudes);
                tensor.scales.push_back(scale);
                const bool is_simple = quantization.random_bits == 0 &&
                                       !skip_nan && std::isfinite(largest) &&
                                       !std::isnan(scale.decode);
                for (size_t i = 0; i < cell.rows(); ++i) {
                  if (is_simple) {
                    coder.Codes(cell.Row(i), cell.cols(), scale,
                                tensor.codes.Row(row + i) + col);
                    continue;
                  }
                  for (size_t j = 0; j < cell.cols(); ++j) {
                    const uint32_t random =
                        quantization.random_bits == 0
                            ? 0
                            : ScalarRandom(state, row + i, col + j,
                                           quantization.random_bits);
                    tensor.codes(row + i, col + j) =
                        coder.Code(cell(i, j), scale, random);
                  }
                }
              });
  return tensor;
}

Matrix<float> ScalarDequantize(const ScalarTensor& tensor, size_t cols) {
  Matrix<float> values(tensor.codes.rows(), cols);
  tensor.ForEachRun(
      [&](size_t row, size_t first, size_t end, const ScalarScale& scale) {
        for (size_t col = first; col < std::min(end, cols); ++col) {
          values(row, col) =
              tensor.codes(row, col) * scale.decode * tensor.tensor_scale;
        }
      });
  return values;
}

}  // namespace isoloss::oracle
