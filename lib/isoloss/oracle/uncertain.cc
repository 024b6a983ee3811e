#include "isoloss/oracle/uncertain.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>

#include "isoloss/oracle/scalar_cast.h"
#include "isoloss/oracle/scalar_quantize.h"
#include "isoloss/oracle/scalar_scale.h"

namespace isoloss::oracle {
namespace {

using formats::NonFinitePolicy;
using formats::Quantization;

/// A magnitude lies between `least` and `most`.
struct Magnitude {
  float least = 0.0f;
  float exact = 0.0f;
  float most = 0.0f;
  double noise = 0.0;  ///< relative to the magnitude

  bool finite() const { return std::isfinite(exact); }
};

struct Interval {
  double least = 0.0;
  double most = 0.0;
};

Interval Around(std::initializer_list<double> values) {
  return {std::min(values), std::max(values)};
}

/// Returns the magnitude of a rectangle, which gives its cell's scale. Rounding
/// to FP32 keeps the order, and all of these stand for FP32 numbers.
Magnitude MagnitudeOf(MatrixView<const Uncertain> cell, bool skip_nan) {
  Magnitude result;
  const auto raise = [](float& to, double value) {
    to = std::max(to, static_cast<float>(value));
  };
  for (size_t row = 0; row < cell.rows(); ++row) {
    for (size_t col = 0; col < cell.cols(); ++col) {
      const Uncertain& x = cell(row, col);
      const double size = std::fabs(x.exact);
      if (std::isnan(size)) {
        if (!skip_nan) {
          result.exact = static_cast<float>(size);
          return result;
        }
        continue;
      }
      if (static_cast<float>(size) > result.exact) {
        result.noise = std::sqrt(x.variance) / size;
      }
      raise(result.least, size - x.bound);
      raise(result.exact, size);
      raise(result.most, size + x.bound);
    }
  }
  // If the largest magnitude is 0, all elements are 0, and no scale matters.
  if (result.most > 0.0f) {
    raise(result.least, 0x1p-149);
  }
  return result;
}

/// The scale of a cell; `decode` includes the tensor's scale.
struct UncertainScale {
  ScalarScale exact;
  double tensor = 1.0;
  Interval encode = {};
  Interval decode = {};

  bool certain() const {
    return encode.least == encode.most && decode.least == decode.most;
  }
};

UncertainScale ScaleOf(const Quantization& quantization, const Magnitude& cell,
                       const Magnitude& tensor) {
  const auto scale_at = [&](float amax, float of_tensor) {
    return ScaleOfCell(quantization, amax, {of_tensor, {}});
  };
  const auto tensor_at = [&](float of_tensor) {
    return static_cast<double>(ScaleOfTensor(quantization, {of_tensor, {}}));
  };
  UncertainScale scale = {.exact = scale_at(cell.exact, tensor.exact),
                          .tensor = tensor_at(tensor.exact)};
  const auto encode = static_cast<double>(scale.exact.encode);
  const double decode = static_cast<double>(scale.exact.decode) * scale.tensor;
  scale.encode = {encode, encode};
  scale.decode = {decode, decode};
  if (!cell.finite() || !tensor.finite()) return scale;
  for (const float amax : {cell.least, cell.most}) {
    for (const float of_tensor : {tensor.least, tensor.most}) {
      const ScalarScale corner = scale_at(amax, of_tensor);
      const auto at = static_cast<double>(corner.encode);
      const double back =
          static_cast<double>(corner.decode) * tensor_at(of_tensor);
      scale.encode = Around({scale.encode.least, scale.encode.most, at});
      scale.decode = Around({scale.decode.least, scale.decode.most, back});
    }
  }
  // A scale of two levels may leave the range of the corners by as much as the
  // tensor's magnitude is uncertain.
  if (quantization.scaling == formats::Scaling::kTwoLevel &&
      tensor.most > 0.0f) {
    const double room =
        static_cast<double>(tensor.most) / static_cast<double>(tensor.least);
    const auto widen = [room](Interval& range) {
      constexpr auto kLargest =
          static_cast<double>(std::numeric_limits<float>::max());
      range = {range.least / room, std::min(range.most * room, kLargest)};
    };
    widen(scale.encode);
    widen(scale.decode);
  }
  return scale;
}

/// Quantises one element.
Uncertain ValueOf(const Uncertain& x, const UncertainScale& scale, double noise,
                  const Quantization& quantization, const ScalarCoder& coder,
                  uint32_t random) {
  const auto code = [&](double value, double encode) {
    return static_cast<double>(
        coder.Code(static_cast<float>(value),
                   {static_cast<float>(encode), scale.exact.decode}, random));
  };
  const double decode = static_cast<double>(scale.exact.decode) * scale.tensor;
  const auto encode = static_cast<double>(scale.exact.encode);
  Uncertain result{};
  result.exact = code(x.exact, encode) * decode;
  if ((x.bound == 0.0 && scale.certain()) || !std::isfinite(result.exact)) {
    return result;
  }
  const double low = x.exact - x.bound;
  const double high = x.exact + x.bound;
  const Interval codes =
      Around({code(low, scale.encode.least), code(low, scale.encode.most),
              code(high, scale.encode.least), code(high, scale.encode.most)});
  const Interval values =
      Around({codes.least * scale.decode.least, codes.least * scale.decode.most,
              codes.most * scale.decode.least, codes.most * scale.decode.most});
  // No rounding goes further than to the next code.
  const int m = quantization.element->mantissa_bits;
  const double step = std::ldexp(1.0, LeastExponent(*quantization.element) - m);
  const double limit = std::max(std::fabs(low), std::fabs(high)) *
                           (1.0 + std::ldexp(1.0, -m)) * (1.0 + 0x1p-20) +
                       step * scale.decode.most;
  result.bound = std::max(std::min(values.most, limit) - result.exact,
                          result.exact - std::max(values.least, -limit));
  // A boundary within two deviations is crossed about every other time.
  const double reach =
      2.0 * RootOfSquares(std::sqrt(x.variance), noise * x.exact);
  const double jump =
      (code(x.exact + reach, encode) - code(x.exact - reach, encode)) * decode;
  result.variance = 0.25 * jump * jump;
  if (!scale.certain()) {
    result.variance += result.exact * result.exact * noise * noise;
  }
  return result;
}

}  // namespace

Matrix<Uncertain> QuantizedUncertain(const Matrix<Uncertain>& values,
                                     const Quantization& quantization,
                                     const formats::TensorState& state) {
  const bool takes_all = quantization.non_finite == NonFinitePolicy::kTe;
  const auto extent = [](size_t of_cell, size_t whole) {
    return std::max<size_t>(1, of_cell == 0 ? whole : of_cell);
  };
  const size_t rows = extent(quantization.cell.rows, values.rows());
  const size_t cols = extent(quantization.cell.cols, values.cols());
  const auto for_each_cell = [&](const auto& use) {
    for (size_t row = 0; row < values.rows(); row += rows) {
      const auto part =
          values.cview().Rows(row, std::min(rows, values.rows() - row));
      for (size_t col = 0; col < values.cols(); col += cols) {
        use(row, col, part.Cols(col, std::min(cols, values.cols() - col)));
      }
    }
  };
  Magnitude tensor;
  for_each_cell([&](size_t, size_t, MatrixView<const Uncertain> cell) {
    const Magnitude of_cell = MagnitudeOf(cell, /*skip_nan=*/true);
    if (!of_cell.finite() && !takes_all) return;
    tensor.least = std::max(tensor.least, of_cell.least);
    tensor.exact = std::max(tensor.exact, of_cell.exact);
    tensor.most = std::max(tensor.most, of_cell.most);
  });
  Matrix<Uncertain> result(values.rows(), values.cols());
  const ScalarCoder coder(quantization);
  for_each_cell([&](size_t row, size_t col, MatrixView<const Uncertain> cell) {
    const Magnitude magnitude = MagnitudeOf(cell, takes_all);
    const UncertainScale scale = ScaleOf(quantization, magnitude, tensor);
    for (size_t i = 0; i < cell.rows(); ++i) {
      for (size_t j = 0; j < cell.cols(); ++j) {
        const uint32_t random = quantization.random_bits == 0
                                    ? 0
                                    : ScalarRandom(state, row + i, col + j,
                                                   quantization.random_bits);
        result(row + i, col + j) = ValueOf(cell(i, j), scale, magnitude.noise,
                                           quantization, coder, random);
      }
    }
  });
  return result;
}

}  // namespace isoloss::oracle
