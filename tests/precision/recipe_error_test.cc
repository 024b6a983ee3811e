// The error of every recipe's three products lies where its number formats put
// it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "isoloss/base/matrix.h"
#include "isoloss/base/rng.h"
#include "isoloss/formats/bf16.h"
#include "isoloss/kernels/gemm.h"
#include "isoloss/precision/recipe.h"

namespace isoloss::precision::recipe_error_test {
namespace {

using formats::Quantization;

// Tokens and widths of y = x W^T.
constexpr size_t kTokens = 256;
constexpr size_t kIn = 384;
constexpr size_t kOut = 128;

/// Normal numbers (sums of twelve uniform ones), rounded to BF16.
Matrix<float> Normal(size_t rows, size_t cols, const char* name) {
  const CounterRng rng(1, StreamId(name));
  Matrix<float> values(rows, cols);
  for (size_t i = 0; i < values.size(); ++i) {
    double sum = -6;
    for (size_t j = 0; j < 12; ++j) sum += rng.Uniform(12 * i + j);
    values.data()[i] = formats::RoundToBf16(static_cast<float>(sum));
  }
  return values;
}

// ---- What formats say
// --------------------------------------------------------

/// Noise over signal, both as squares: between these.
struct Bounds {
  double low = 0;
  double high = 0;
};

/// Largest magnitude of the cell of (row, col); the contraction lies along the
/// columns.
float PeakOfCell(const Matrix<float>& values, formats::Cell cell, size_t row,
                 size_t col) {
  const size_t height = cell.rows == 0 ? values.rows() : cell.rows;
  const size_t width = cell.cols == 0 ? values.cols() : cell.cols;
  const size_t first_row = row / height * height;
  const size_t first_col = col / width * width;
  float peak = 0;
  for (size_t r = first_row; r < std::min(first_row + height, values.rows());
       ++r) {
    for (size_t c = first_col; c < std::min(first_col + width, values.cols());
         ++c) {
      peak = std::max(peak, std::fabs(values(r, c)));
    }
  }
  return peak;
}

/// An element of m mantissa bits has a step of 2^-m times the power of two at
/// or below it, which is between a half of it and itself. The error is uniform
/// within a step: its mean square is step^2/12, or, if stochastic rounding goes
/// up with the probability of what is dropped, step^2/6.
///
/// Above that go the smallest steps, which subnormal elements have, of a scale
/// at most twice peak / largest element; and under FLOOR, whose scale is at
/// least peak / 2^(emax + 1), elements beyond the largest that are cut off.
Bounds NoiseOf(const Matrix<float>& values, const Quantization& quantization) {
  const formats::Format& element = *quantization.element;
  const double step = std::exp2(-element.mantissa_bits);
  const double shape = quantization.is_stochastic() ? 6 : 12;
  const double least_step = std::exp2(1 - element.bias - element.mantissa_bits);
  const auto largest =
      static_cast<double>(formats::Decode(element, element.max_code));
  const double overflow = std::exp2(element.emax + 1);
  double signal = 0;
  double noise = 0;
  for (size_t row = 0; row < values.rows(); ++row) {
    double peak = 0;
    for (size_t col = 0; col < values.cols(); ++col) {
      const size_t width =
          quantization.cell.cols == 0 ? values.cols() : quantization.cell.cols;
      if (col % width == 0) {
        peak = static_cast<double>(
            PeakOfCell(values, quantization.cell, row, col));
      }
      const auto size = static_cast<double>(std::fabs(values(row, col)));
      const double subnormal_step = least_step * 2 * peak / largest;
      signal += size * size;
      noise +=
          (step * step * size * size + subnormal_step * subnormal_step) / shape;
      if (quantization.scale_rule == formats::ScaleRule::kFloor &&
          size > peak * largest / overflow) {
        const double cut = (overflow - largest) / overflow * 2 * peak;
        noise += cut * cut;
      }
    }
  }
  return {.low = step * step / (4 * shape), .high = noise / signal};
}

/// Of an operand that may not be quantised, or was quantised before, too.
Bounds NoiseOf(const Matrix<float>& values,
               const std::optional<Quantization>& quantization,
               const Quantization* before) {
  if (!quantization) return {};
  Bounds bounds = NoiseOf(values, *quantization);
  if (before != nullptr)
    bounds.high += NoiseOf(Transposed(values.view()), *before).high;
  return bounds;
}

double Decibels(double noise) { return -10 * std::log10(noise); }

// ---- What the kernels make of it
// ---------------------------------------------

struct Side {
  const Matrix<float>* values;
  kernels::Contraction contraction;

  /// Rows of the operand, contraction along the columns.
  Matrix<float> Oriented() const {
    Matrix<float> result = Transposed(values->view());
    if (contraction == kernels::Contraction::kColumns) {
      result = Transposed(result.view());
    }
    return result;
  }
};

class RecipeError : public ::testing::TestWithParam<const Recipe*> {
 protected:
  Side Left(GemmRole role) const {
    if (role == GemmRole::kFprop) return {&x_, kernels::Contraction::kColumns};
    return {&dy_, role == GemmRole::kDgrad ? kernels::Contraction::kColumns
                                           : kernels::Contraction::kRows};
  }
  Side Right(GemmRole role) const {
    if (role == GemmRole::kWgrad) return {&x_, kernels::Contraction::kRows};
    return {&w_, role == GemmRole::kFprop ? kernels::Contraction::kColumns
                                          : kernels::Contraction::kRows};
  }
  static const Quantization* Before(bool again, const Quantization* first) {
    return again ? first : nullptr;
  }
  const Quantization* BeforeLeft(GemmRole role) const {
    return Before(GetParam()->For(role).left_again,
                  GetParam()->dgrad.left_operand());
  }
  const Quantization* BeforeRight(GemmRole role) const {
    return Before(GetParam()->For(role).right_again,
                  GetParam()->fprop.left_operand());
  }

  /// Noise over signal of one product.
  double Measured(GemmRole role) const {
    const GemmPrecision& precision = GetParam()->For(role);
    const Side left = Left(role);
    const Side right = Right(role);
    const Matrix<float> a = left.Oriented();
    const Matrix<float> b = right.Oriented();
    const kernels::OperandState state_a = StateOf(a, 1);
    const kernels::OperandState state_b = StateOf(b, 2);
    Matrix<float> product(a.rows(), b.rows());
    kernels::Gemm({
        .a = {.values = left.values->view(),
              .contraction = left.contraction,
              .quantization = precision.left_operand(),
              .state = &state_a,
              .before = BeforeLeft(role),
              .state_before = &state_a},
        .b = {.values = right.values->view(),
              .contraction = right.contraction,
              .quantization = precision.right_operand(),
              .state = &state_b,
              .before = BeforeRight(role),
              .state_before = &state_b},
        .c = product.view(),
        .accumulation = precision.accumulation,
    });
    double signal = 0;
    double noise = 0;
    for (size_t i = 0; i < a.rows(); ++i) {
      for (size_t j = 0; j < b.rows(); ++j) {
        double exact = 0;
        for (size_t k = 0; k < a.cols(); ++k) {
          exact += static_cast<double>(a(i, k)) * static_cast<double>(b(j, k));
        }
        const double error = static_cast<double>(product(i, j)) - exact;
        signal += exact * exact;
        noise += error * error;
      }
    }
    return noise / signal;
  }

  /// With the history of a tensor that was always as it is.
  static kernels::OperandState StateOf(const Matrix<float>& values,
                                       uint64_t stream) {
    kernels::OperandState state;
    state.common.history = PeakOfCell(values, {0, 0}, 0, 0);
    state.common.stream = stream;
    state.common.transform_key = 0xB00F;
    return state;
  }

  const Matrix<float> x_ = Normal(kTokens, kIn, "x");
  const Matrix<float> w_ = Normal(kOut, kIn, "w");
  const Matrix<float> dy_ = Normal(kTokens, kOut, "dy");
};

// A product's noise over signal is the sum of its operands' (their errors are
// independent of the other operand), and their product. The elements of a row
// of the result share one operand row's error: its square is a sum of at least
// 128 such rows, whose relative deviation is sqrt(2/128) = 0.125; four of them
// are 10 log10(1.5) = 1.8 dB.
constexpr double kScatter = 1.8;

TEST_P(RecipeError, LiesWhereItsFormatsPutIt) {
  for (const GemmRole role : kGemmRoles) {
    const GemmPrecision& precision = GetParam()->For(role);
    if (!precision.quantized()) continue;
    const Bounds a =
        NoiseOf(Left(role).Oriented(), precision.left, BeforeLeft(role));
    const Bounds b =
        NoiseOf(Right(role).Oriented(), precision.right, BeforeRight(role));
    const double sqnr = Decibels(Measured(role));

    const std::string product(GemmRoleName(role));
    EXPECT_GE(sqnr, Decibels(a.high + b.high + a.high * b.high) - kScatter)
        << product;
    EXPECT_LE(sqnr, Decibels(a.low + b.low + a.low * b.low) + kScatter)
        << product;
    RecordProperty(product, std::to_string(sqnr));
  }
}

/// Recipes that torchao has.
class TorchaoRecipe : public RecipeError {};

TEST_P(TorchaoRecipe, StaysWithinTorchaosThresholds) {
  // test_mxfp8_linear.py of torchao 36027d82d (docs/sources.md).
  EXPECT_GE(Decibels(Measured(GemmRole::kFprop)), 27);
  EXPECT_GE(Decibels(Measured(GemmRole::kDgrad)), 25);
  EXPECT_GE(Decibels(Measured(GemmRole::kWgrad)),
            GetParam()->wgrad.quantized() ? 24 : 34);
}

std::vector<const Recipe*> QuantizingRecipes() {
  std::vector<const Recipe*> recipes = AllRecipes();
  std::erase_if(recipes, [](const Recipe* r) { return !r->quantizes(); });
  return recipes;
}

std::string NameOf(const testing::TestParamInfo<const Recipe*>& test) {
  return test.param->name;
}

INSTANTIATE_TEST_SUITE_P(All, RecipeError,
                         testing::ValuesIn(QuantizingRecipes()), NameOf);
INSTANTIATE_TEST_SUITE_P(
    All, TorchaoRecipe,
    testing::Values(&RecipeByName("mxfp8_rceil"),
                    &RecipeByName("mxfp8_rceil_wgrad_with_hp"),
                    &RecipeByName("mxfp8_cublas_rceil")),
    NameOf);

}  // namespace
}  // namespace isoloss::precision::recipe_error_test
