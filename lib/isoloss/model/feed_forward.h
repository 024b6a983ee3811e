// SwiGLU feed-forward: dense, shared experts, or all routed experts at once
// (docs/model.md, section 5).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "isoloss/base/matrix.h"
#include "isoloss/model/linear.h"

namespace isoloss::model {

struct LayerContext;

/// Names of a feed-forward's three parameters.
struct FeedForwardParameters {
  std::string w1;  ///< the gated one
  std::string w3;
  std::string w2;
};

/// Weights of rows, applied where they enter W2, and their gradients.
struct RowWeights {
  std::span<const float> values;  ///< [rows]; empty: all are 1
  std::span<float> gradients;     ///< [rows]
};

/// y = (silu(x W1^T) * (x W3^T)) W2^T with `groups` independent sets of
/// weights; RowGroups say which rows of x meet which set.
class FeedForward {
 public:
  /// Buffers of the backward pass; one set serves all layers.
  struct Scratch {
    Matrix<float> dhidden;  // [rows, F]
  };

  /// GEMM sites are `name`.w1, .w3 and .w2.
  FeedForward(LayerContext& context, const std::string& name,
              const FeedForwardParameters& parameters, size_t groups,
              Scratch& scratch);

  /// Shapes   x, y [rows, D].
  void Forward(MatrixView<const float> x, const RowGroups& groups,
               MatrixView<float> y, std::span<const float> row_weights = {});
  /// x and groups as in Forward, whose intermediate values are used up. dx is
  /// the sum of W1's and W3's contribution, each rounded, added with one more
  /// rounding.
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
  Matrix<float> gate_;    // [rows, F]
  Matrix<float> up_;      // [rows, F]
  Matrix<float> hidden_;  // [rows, F]
  // With row weights only.
  Matrix<float> weighted_;      // [rows, F]
  std::vector<int32_t> index_;  // 0, 1, 2, …
};

/// A feed-forward on all tokens with one set of weights, named as torchtitan
/// does: `name`.w1.weight and so on.
FeedForward MakeDenseFeedForward(LayerContext& context, const std::string& name,
                                 FeedForward::Scratch& scratch);

}  // namespace isoloss::model
