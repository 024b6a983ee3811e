// Computes a SwiGLU feed-forward: dense, shared experts, or all routed experts
// at once (docs/model.md, section 5).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "isoloss/base/matrix.h"
#include "isoloss/model/layer_context.h"
#include "isoloss/model/linear.h"

namespace isoloss::model {

/// Weights of rows apply where the rows enter W2. The weights have gradients,
/// too.
struct RowWeights {
  std::span<const float> values;  ///< [rows]; empty: all are 1
  std::span<float> gradients;     ///< [rows]
};

/// y = (silu(x W1^T) * (x W3^T)) W2^T, with one set of weights or one set for
/// each routed expert. RowGroups say which rows of x meet which set.
class FeedForward {
 public:
  /// One set of buffers for the backward pass serves all layers.
  struct Scratch {
    Memory& memory;
    Matrix<float> dhidden{memory};  // [rows, F]
  };

  /// The GEMM sites are `name`.w1, .w3 and .w2.
  FeedForward(LayerContext& context, const std::string& name, Scratch& scratch);

  /// Shapes   x, y [rows, D].
  void Forward(MatrixView<const float> x, const RowGroups& groups,
               MatrixView<float> y, std::span<const float> row_weights = {});
  /// Takes x and groups as in Forward, and uses up the intermediate values of
  /// that call. W1 and W3 each contribute a rounded term to dx, whose sum is
  /// rounded once more.
  void Backward(MatrixView<const float> x, MatrixView<const float> dy,
                const RowGroups& groups, MatrixView<float> dx,
                const RowWeights& row_weights = {});

 private:
  void ApplyWeights(std::span<const float> row_weights);

  LayerContext& context_;
  Scratch& scratch_;
  Linear w1_;
  Linear w3_;
  Linear w2_;
  Matrix<float> gate_{context_.memory()};    // [rows, F]
  Matrix<float> up_{context_.memory()};      // [rows, F]
  Matrix<float> hidden_{context_.memory()};  // [rows, F]
  // These two are used only if rows have weights.
  Matrix<float> weighted_{context_.memory()};  // [rows, F]
  std::vector<int32_t> index_;                 // 0, 1, 2, …
};

}  // namespace isoloss::model
