// Computes the router's scores, choice of experts and combine weights
// (docs/model.md, section 6).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "isoloss/base/matrix.h"
#include "isoloss/kernels/routing.h"
#include "isoloss/model/layer_context.h"
#include "isoloss/model/linear.h"
#include "isoloss/model/router_figures.h"
#include "isoloss/model/routing_source.h"

namespace isoloss::model {

class Router {
 public:
  /// One set of buffers for the backward pass serves all layers.
  struct Scratch {
    Memory& memory;
    Matrix<float> dlogits{memory};  // [T, E]
  };

  /// `name` is "layers.N.moe.router"; `moe_layer` counts from the first MoE
  /// layer.
  Router(LayerContext& context, const std::string& name, size_t moe_layer,
         Scratch& scratch);

  void LoadBias(std::span<const float> bias);

  /// Computes logits as an FP32 product of b and the gate's weight, and never
  /// rounds them.
  /// Shapes   b [T, D].
  void Forward(MatrixView<const float> b);
  /// Return the choice and the weights of the last Forward, [T, K], in the
  /// executor's memory.
  MatrixView<const int32_t> expert_ids() const { return expert_ids_.view(); }
  MatrixView<const float> weights() const { return weights_.view(); }
  /// Returns the choices of the batch's shares up to the last Forward, [T of
  /// all of them, K].
  MatrixView<const int32_t> chosen() const {
    const size_t slots = context_.config.top_k;
    return {chosen_.data(), chosen_.size() / slots, slots};
  }
  /// Returns the figures of the same tokens.
  RouterSums::Totals figures() const { return sums_.Sum(); }

  /// db = the gate's contribution, rounded like an activation.
  /// Shapes   dweights [T, K]; db [T, D].
  void Backward(MatrixView<const float> b, MatrixView<const float> dweights,
                MatrixView<float> db);

 private:
  void Choose();
  void ChooseBy(const RoutingSource& source);
  void EditChoice();
  void SumFigures();

  LayerContext& context_;
  std::string name_;
  size_t moe_layer_;
  Scratch& scratch_;
  const kernels::RouterRule rule_;
  Linear gate_;
  Matrix<float> bias_{context_.memory()};          // [1, E]
  Matrix<float> logits_{context_.memory()};        // [T, E]
  Matrix<float> scores_{context_.memory()};        // [T, E]
  Matrix<int32_t> expert_ids_{context_.memory()};  // [T, K]
  Matrix<float> weights_{context_.memory()};       // [T, K]
  std::vector<int32_t> chosen_;
  std::vector<int64_t> flips_;     // [T]
  std::vector<double> entropies_;  // [T]
  RouterSums sums_;
};

}  // namespace isoloss::model
