// One pre-norm transformer block: attention and feed-forward, each with its
// residual.
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
  /// Buffers that live within one Forward or Backward of a block; one set
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

  /// In place: the gradient of out becomes the gradient of x. Where the
  /// residual meets a branch, gradients are added with one rounding.
  void Backward(MatrixView<const float> x, MatrixView<float> dx);

  /// The experts of a MoE layer, or nullptr.
  MixtureOfExperts* moe() { return moe_ ? &*moe_ : nullptr; }

 private:
  LayerContext& context_;
  std::string name_;
  Scratch& scratch_;
  RmsNorm attention_norm_;
  MlaAttention attention_;
  RmsNorm ffn_norm_;
  // One of the two.
  std::optional<FeedForward> feed_forward_;
  std::optional<MixtureOfExperts> moe_;

  Matrix<float> attention_in_{context_.memory()};  // [T, D]
  Matrix<float> mid_{context_.memory()};           // [T, D]
  Matrix<float> ffn_in_{context_.memory()};        // [T, D]
  Matrix<float> out_{context_.memory()};           // [T, D]
};

}  // namespace isoloss::model
