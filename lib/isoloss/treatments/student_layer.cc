#include "isoloss/treatments/student_layer.h"

#include <algorithm>
#include <cmath>

#include "isoloss/formats/quantize.h"
#include "isoloss/kernels/gemm.h"

namespace isoloss::treatments {
namespace {

constexpr double kNormEps = 1e-5;
using kernels::Contraction;

/// Computes c = a b, or c = c + a b if `add`.
void Multiply(MatrixView<const float> a, Contraction along_a,
              MatrixView<const float> b, Contraction along_b,
              const formats::Quantization* quantization, Matrix<float>& c,
              bool add = false) {
  kernels::GemmProblem problem{
      .a = {.values = a, .contraction = along_a, .quantization = quantization},
      .b = {.values = b, .contraction = along_b, .quantization = quantization},
      .c = c.view()};
  if (add) problem.addend = c.cview();
  kernels::Gemm(problem);
}

void Relu(Matrix<float>& values) {
  for (size_t i = 0; i < values.size(); ++i) {
    values.data()[i] = std::max(values.data()[i], 0.0F);
  }
}

}  // namespace

StudentLayer::StudentLayer(size_t width, size_t hidden)
    : w1(hidden, width),
      w2(width, hidden),
      gain(1, width),
      dw1(hidden, width),
      dw2(width, hidden),
      dgain(1, width) {
  std::fill_n(gain.data(), width, 1.0F);
}

void StudentLayer::Forward(const formats::Quantization* products,
                           const formats::Quantization* gains,
                           Matrix<float>& a) {
  used_gain_.CopyFrom(gain);
  if (gains != nullptr) {
    used_gain_ =
        formats::Dequantize(formats::Quantize(gain.view(), *gains), *gains);
  }
  Normalise(a);
  hidden_.ResizeUninitialized(a.rows(), w1.rows());
  Multiply(normed_.view(), Contraction::kColumns, w1.view(),
           Contraction::kColumns, products, hidden_);
  Relu(hidden_);
  Multiply(hidden_.view(), Contraction::kColumns, w2.view(),
           Contraction::kColumns, products, a, /*add=*/true);
}

void StudentLayer::ForwardBare(Matrix<float>& a) {
  hidden_.ResizeUninitialized(a.rows(), w1.rows());
  Multiply(a.view(), Contraction::kColumns, w1.view(), Contraction::kColumns,
           nullptr, hidden_);
  Relu(hidden_);
  Multiply(hidden_.view(), Contraction::kColumns, w2.view(),
           Contraction::kColumns, nullptr, a, /*add=*/true);
}

void StudentLayer::Backward(const formats::Quantization* products,
                            Matrix<float>& da) {
  Multiply(da.view(), Contraction::kRows, hidden_.view(), Contraction::kRows,
           products, dw2);
  dhidden_.ResizeUninitialized(hidden_.rows(), hidden_.cols());
  Multiply(da.view(), Contraction::kColumns, w2.view(), Contraction::kRows,
           products, dhidden_);
  for (size_t i = 0; i < hidden_.size(); ++i) {
    if (!(hidden_.data()[i] > 0)) dhidden_.data()[i] = 0;
  }
  Multiply(dhidden_.view(), Contraction::kRows, normed_.view(),
           Contraction::kRows, products, dw1);
  dnormed_.ResizeUninitialized(normed_.rows(), normed_.cols());
  Multiply(dhidden_.view(), Contraction::kColumns, w1.view(),
           Contraction::kRows, products, dnormed_);
  AddNormGradient(da);
}

std::vector<optim::Tensor> StudentLayer::Tensors() {
  return {{{w1.data(), w1.size()}, {dw1.data(), dw1.size()}},
          {{w2.data(), w2.size()}, {dw2.data(), dw2.size()}},
          {{gain.data(), gain.size()}, {dgain.data(), dgain.size()}}};
}

void StudentLayer::Normalise(const Matrix<float>& a) {
  const size_t width = a.cols();
  standard_.ResizeUninitialized(a.rows(), width);
  normed_.ResizeUninitialized(a.rows(), width);
  scales_.resize(a.rows());
  for (size_t row = 0; row < a.rows(); ++row) {
    double sum = 0;
    for (size_t i = 0; i < width; ++i) sum += double{a(row, i)};
    const double mean = sum / static_cast<double>(width);
    double squares = 0;
    for (size_t i = 0; i < width; ++i) {
      const double apart = double{a(row, i)} - mean;
      squares += apart * apart;
    }
    const double scale =
        1 / std::sqrt(squares / static_cast<double>(width) + kNormEps);
    scales_[row] = scale;
    for (size_t i = 0; i < width; ++i) {
      standard_(row, i) =
          static_cast<float>((double{a(row, i)} - mean) * scale);
      normed_(row, i) = standard_(row, i) * used_gain_(0, i);
    }
  }
}

/// With g = dnormed * gain: da += scale (g - mean(g) - s mean(g s)). Here s is
/// the normed a.
void StudentLayer::AddNormGradient(Matrix<float>& da) {
  const size_t width = da.cols();
  dgain.SetZero();
  for (size_t row = 0; row < da.rows(); ++row) {
    double sum = 0;
    double along = 0;
    for (size_t i = 0; i < width; ++i) {
      const double g = double{dnormed_(row, i)} * double{used_gain_(0, i)};
      sum += g;
      along += g * double{standard_(row, i)};
      dgain(0, i) += dnormed_(row, i) * standard_(row, i);
    }
    const double mean = sum / static_cast<double>(width);
    const double slope = along / static_cast<double>(width);
    for (size_t i = 0; i < width; ++i) {
      const double g = double{dnormed_(row, i)} * double{used_gain_(0, i)};
      da(row, i) += static_cast<float>(
          scales_[row] * (g - mean - double{standard_(row, i)} * slope));
    }
  }
}

}  // namespace isoloss::treatments
