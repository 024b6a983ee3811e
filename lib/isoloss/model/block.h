// Computes one pre-norm transformer block: attention and feed-forward, each
// with its residual.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "isoloss/base/matrix.h"
#include "isoloss/model/attention_mla.h"
#include "isoloss/model/feed_forward.h"
#include "isoloss/model/layer_context.h"
#include "isoloss/model/moe.h"
#include "isoloss/model/norm.h"

namespace isoloss::model {

class TransformerBlock {
 public:
  /// One set of buffers, which live within one Forward or Backward of a block,
  /// serves all layers.
  struct Scratch {
    Memory& memory;
    MlaAttention::Scratch attention{memory};
    FeedForward::Scratch feed_forward{memory};
    MixtureOfExperts::Scratch moe{memory};
    Matrix<float> branch{memory};  // [T, D]: what a branch adds to the residual
    Matrix<float> dnormalised{memory};  // [T, D]
  };

  TransformerBlock(LayerContext& context, size_t layer, Scratch& scratch);

  /// mid = x + Attention(Norm(x)); returns out = mid + F(Norm(mid)), kept here
  /// until the next Forward. Each sum is rounded. x must outlive Backward.
  MatrixView<const float> Forward(MatrixView<const float> x);

  /// Turns the gradient of out into the gradient of x, in place. Gradients are
  /// added with one rounding at each point where the residual meets a branch.
  void Backward(MatrixView<const float> x, MatrixView<float> dx);

  /// Returns the experts of a MoE layer, or nullptr for a dense layer.
  MixtureOfExperts* moe() { return moe_ ? &*moe_ : nullptr; }

 private:
  LayerContext& context_;
  std::string name_;
  Scratch& scratch_;
  RmsNorm attention_norm_;
  MlaAttention attention_;
  RmsNorm ffn_norm_;
  // A layer has exactly one of these two.
  std::optional<FeedForward> feed_forward_;
  std::optional<MixtureOfExperts> moe_;

  Matrix<float> attention_in_{context_.memory()};  // [T, D]
  Matrix<float> mid_{context_.memory()};           // [T, D]
  Matrix<float> ffn_in_{context_.memory()};        // [T, D]
  Matrix<float> out_{context_.memory()};           // [T, D]
};

}  // namespace isoloss::model
