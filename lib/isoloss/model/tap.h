// Where the model announces its tensors as it computes them.
#pragma once

#include <cstdint>
#include <string_view>

#include "isoloss/base/matrix.h"

namespace isoloss::model {

/// Receives tensors at named points of the graph. Names are torchtitan's module
/// names: "tok_embeddings", "layers.0.attention.wq",
/// "layers.1.moe.router.scores", "layers.1", "norm", "logits". Views are valid
/// during the call only. Listening changes no bit.
class TapSink {
 public:
  virtual ~TapSink() = default;
  /// A forward value, [T, width]; of routed_experts.w1 and .w3 [T * K, width],
  /// rows ordered by (expert, token, slot).
  virtual void OnActivation(std::string_view name,
                            MatrixView<const float> values) = 0;
  /// The gradient of the loss with respect to that value.
  virtual void OnGradient(std::string_view name,
                          MatrixView<const float> values) = 0;
  /// Expert ids in slot order (score descending, then id ascending), [T, K].
  virtual void OnRouting(std::string_view name,
                         MatrixView<const int32_t> expert_ids) = 0;
};

}  // namespace isoloss::model
