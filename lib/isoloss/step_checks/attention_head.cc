#include "isoloss/step_checks/attention_head.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "isoloss/oracle/estimate_math.h"

namespace isoloss::step_checks {
namespace {

using oracle::Estimate;
using oracle::FactorSums;
using oracle::kDotLanes;
using oracle::kFactorLanes;
using oracle::Uncertain;

size_t Padded(size_t width) {
  return (width + kFactorLanes - 1) / kFactorLanes * kFactorLanes;
}

std::vector<FactorSums> NoSums(size_t rows, size_t width) {
  std::vector<FactorSums> sums;
  for (size_t n = 0; n < rows; ++n) sums.emplace_back(Padded(width));
  return sums;
}

}  // namespace

Matrix<double> Widened(MatrixView<const float> values) {
  Matrix<double> wide(values.rows(), Padded(values.cols()));
  for (size_t i = 0; i < values.rows(); ++i) {
    std::copy_n(values.Row(i), values.cols(), wide.Row(i));
  }
  return wide;
}

void QuantizedDots(const double* left, const Matrix<double>& rows, size_t width,
                   std::vector<Estimate>& dots) {
  for (size_t j = 0; j < dots.size(); ++j) {
    double sum = 0.0;
    double size = 0.0;
    double variance = 0.0;
    for (size_t c = 0; c < width; ++c) {
      const double term = left[c] * rows(j, c);
      sum += term;
      size += std::fabs(term);
      variance += oracle::kRoundingVariance * sum * sum;
    }
    const double tiny = size == 0.0 ? 0.0 : oracle::kTiny;
    dots[j] =
        oracle::Overflowed32({.exact = sum,
                              .bound = oracle::Gamma(width + kOfScales) * size +
                                       static_cast<double>(width) * tiny,
                              .noise = std::sqrt(variance)});
  }
}

HeadSums::HeadSums(std::vector<size_t> of_queries, std::vector<size_t> of_keys,
                   size_t width, size_t value_width)
    : queries(std::move(of_queries)),
      keys(std::move(of_keys)),
      out(NoSums(queries.size(), value_width)),
      dq(NoSums(queries.size(), width)),
      dk(NoSums(keys.size(), width)),
      dv(NoSums(keys.size(), value_width)) {}

CausalDots::CausalDots(MatrixView<const float> left,
                       MatrixView<const float> right, bool rough)
    : left_(left), right_(right), rough_(rough) {
  for (size_t first = 0; first < right.rows(); first += kDotLanes) {
    panels_.emplace_back().Pack(right_, first);
  }
}

void CausalDots::At(size_t row, std::vector<Estimate>& dots) {
  if (row % oracle::kDotRows == 0) {
    tiles_.resize(row / kDotLanes + 1);
    for (size_t n = 0; n < tiles_.size(); ++n) {
      if (rough_) {
        panels_[n].RoughDots(left_, row, tiles_[n]);
      } else {
        panels_[n].Dots(left_, row, tiles_[n]);
      }
    }
  }
  dots.resize(row + 1);
  for (size_t j = 0; j <= row; ++j) {
    dots[j] = oracle::Overflowed32(
        tiles_[j / kDotLanes][row % oracle::kDotRows][j % kDotLanes]);
  }
}

HeadOperands::HeadOperands(const AttentionFormats& formats, std::string core,
                           size_t number)
    : formats_(formats), core_(std::move(core)), number_(number) {}

Matrix<double> HeadOperands::Read(
    const std::optional<formats::Quantization>& quantization,
    MatrixView<const float> values, bool down, const char* place) const {
  if (!quantization) return Widened(values);
  Matrix<double> result(values.rows(), Padded(values.cols()));
  const Matrix<float> turned = down ? Transposed(values) : Matrix<float>();
  const oracle::ScalarTensor tensor = oracle::ScalarQuantize(
      down ? turned.view() : values, *quantization, StateAt(place));
  for (size_t i = 0; i < values.rows(); ++i) {
    for (size_t j = 0; j < values.cols(); ++j) {
      const size_t row = down ? j : i;
      const size_t column = down ? i : j;
      result(i, j) = static_cast<double>(tensor.codes(row, column)) *
                     static_cast<double>(tensor.ScaleAt(row, column).decode) *
                     static_cast<double>(tensor.tensor_scale);
    }
  }
  return result;
}

Matrix<Uncertain> HeadOperands::Read(
    const std::optional<formats::Quantization>& quantization,
    const Matrix<Uncertain>& values, bool down, const char* place) const {
  Matrix<Uncertain> result = Transposed(values.cview());
  if (!down || !quantization) result.CopyFrom(values);
  if (!quantization) return result;
  result = QuantizedUncertain(result, *quantization, StateAt(place));
  return down ? Transposed(result.cview()) : std::move(result);
}

formats::TensorState HeadOperands::StateAt(const char* place) const {
  return oracle::StateOfTensor(formats_.seed, formats_.step, core_ + place,
                               number_);
}

}  // namespace isoloss::step_checks
