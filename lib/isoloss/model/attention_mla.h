// Computes multi-head latent attention (docs/model.md, section 3).
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "isoloss/base/matrix.h"
#include "isoloss/model/attention_core.h"
#include "isoloss/model/layer_context.h"
#include "isoloss/model/linear.h"
#include "isoloss/model/norm.h"

namespace isoloss::model {

class MlaAttention {
 public:
  /// One set of buffers for the backward pass serves all layers.
  struct Scratch {
    Memory& memory;
    AttentionCore::Scratch core{memory};
    Matrix<float> dout{memory};         // [T, H dv]
    Matrix<float> dqueries{memory};     // [T, H (dn + dr)]
    Matrix<float> dkeys{memory};        // [T, H (dn + dr)]
    Matrix<float> dexpanded{memory};    // [T, H (dn + dv)]
    Matrix<float> dlatent{memory};      // [T, kv_lora]
    Matrix<float> dcompressed{memory};  // [T, kv_lora + dr]
    Matrix<float> dq_normed{memory};    // [T, q_lora]
    Matrix<float> dq_low{memory};       // [T, q_lora]
  };

  /// `name` is e.g. "layers.N.attention".
  MlaAttention(LayerContext& context, const std::string& name,
               Scratch& scratch);

  /// y = Attention(a). Keeps what Backward needs.
  /// Shapes   a, y [T, D].
  void Forward(MatrixView<const float> a, MatrixView<float> y);
  /// da = the gradient of a, with a as in Forward.
  /// Shapes   a, dy, da [T, D].
  void Backward(MatrixView<const float> a, MatrixView<const float> dy,
                MatrixView<float> da);

 private:
  void ForwardQueriesAndLatent(MatrixView<const float> a);
  void BackwardQueriesAndLatent(MatrixView<const float> a,
                                MatrixView<float> da);
  void RotateQueriesAndKey(MatrixView<float> queries,
                           MatrixView<float> compressed, bool inverse);
  void AssembleKeys();
  void DisassembleKeyGradients();
  void TapRotated() const;
  AttentionInputs Inputs() const;
  /// Returns columns [offset, offset + width) of each head's equal share.
  template <typename T>
  HeadColumns<T> Heads(MatrixView<T> matrix, size_t offset,
                       size_t width) const {
    const size_t heads = context_.config.n_heads;
    return {matrix, heads, matrix.cols() / heads, offset, width};
  }

  LayerContext& context_;
  std::string name_;
  Scratch& scratch_;
  AttentionCore core_;
  // Queries have either the one projection wq, or wq_a, q_norm and wq_b.
  std::optional<Linear> wq_;
  std::optional<Linear> wq_a_;
  std::optional<RmsNorm> q_norm_;
  std::optional<Linear> wq_b_;
  Linear wkv_a_;
  RmsNorm kv_norm_;
  Linear wkv_b_;
  Linear wo_;

  Matrix<float> q_low_{context_.memory()};     // [T, q_lora]
  Matrix<float> q_normed_{context_.memory()};  // [T, q_lora]
  Matrix<float> queries_{context_.memory()};   // [T, H (dn + dr)], rotated
  // [T, kv_lora + dr] has the latent values and the rotated k_pe.
  Matrix<float> compressed_{context_.memory()};
  Matrix<float> latent_{context_.memory()};  // [T, kv_lora], normalised
  // [T, H (dn + dv)] has k_nope and v of each head.
  Matrix<float> expanded_{context_.memory()};
  Matrix<float> keys_{context_.memory()};  // [T, H (dn + dr)]
  Matrix<float> out_{context_.memory()};   // [T, H dv]
};

}  // namespace isoloss::model
