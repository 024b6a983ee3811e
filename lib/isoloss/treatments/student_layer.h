// Computes one layer of a student, with its gradients.
#pragma once

#include <vector>

#include "isoloss/base/matrix.h"
#include "isoloss/formats/quantization.h"
#include "isoloss/optim/tensor.h"

namespace isoloss::treatments {

/// A layer is a_k = a + W2 relu(W1 (norm(a) * gain)), norm the layer norm
/// without bias (eps 1e-5).
/// Shapes   a [batch, width]; w1 [hidden, width]; w2 [width, hidden];
///          gain [1, width].
class StudentLayer {
 public:
  /// Weights are 0 and gains 1.
  StudentLayer(size_t width, size_t hidden);

  /// Computes a += W2 relu(W1 (norm(a) * gain)). Both operands of the products
  /// are quantised as `products` says and the gain as `gains` says; null: not
  /// at all.
  void Forward(const formats::Quantization* products,
               const formats::Quantization* gains, Matrix<float>& a);
  /// Does the same without a norm and its gain, and quantises nothing.
  void ForwardBare(Matrix<float>& a);

  /// Follows Forward. Adds to da the gradient that reaches a through the
  /// layer, and sets those of weights and gain. That of the gain does not
  /// depend on the gain.
  void Backward(const formats::Quantization* products, Matrix<float>& da);

  std::vector<optim::Tensor> Tensors();

  Matrix<float> w1, w2, gain;
  Matrix<float> dw1, dw2, dgain;

 private:
  void Normalise(const Matrix<float>& a);
  void AddNormGradient(Matrix<float>& da);

  Matrix<float> used_gain_, standard_, normed_, hidden_, dhidden_, dnormed_;
  std::vector<double> scales_;  // of each row's norm
};

}  // namespace isoloss::treatments
