// The router: scores, choice of experts, combine weights (docs/model.md,
// section 6).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "isoloss/base/matrix.h"
#include "isoloss/model/config.h"
#include "isoloss/model/linear.h"
#include "isoloss/model/router_figures.h"

namespace isoloss::model {

struct LayerContext;

/// Chooses the top_k experts of one token by scores + bias, inside the best
/// groups if the configuration limits groups (a group counts the sum of its two
/// best). Of equals the lower index wins, for groups and for experts.
/// Shapes   scores, bias [E]; expert_ids [K] receives ids by falling biased
///          score.
/// Special  NaN compares with nothing, so a scan keeps what it has; still no id
///          is chosen twice or outside the kept groups.
void SelectExperts(const ModelConfig& config, std::span<const float> scores,
                   std::span<const float> bias, std::span<int32_t> expert_ids);

/// w_k = s[id_k] (unbiased); with route_norm divided by their sum + 1e-20; then
/// times route_scale. FP32, sums over slots in slot order.
void CombineWeights(const ModelConfig& config, std::span<const float> scores,
                    std::span<const int32_t> expert_ids,
                    std::span<float> weights);

/// Adjoint of CombineWeights and of the score function: dlogits from dweights.
/// Shapes   scores, dlogits [E]; expert_ids, dweights [K].
void RouterScoreBackward(const ModelConfig& config,
                         std::span<const float> scores,
                         std::span<const int32_t> expert_ids,
                         std::span<const float> dweights,
                         std::span<float> dlogits);

class Router {
 public:
  /// Buffers of the backward pass; one set serves all layers.
  struct Scratch {
    Matrix<float> dlogits;  // [T, E]
  };

  /// `name`: "layers.N.moe.router"; `moe_layer`: N counted from the first MoE
  /// layer.
  Router(LayerContext& context, const std::string& name, size_t moe_layer,
         Scratch& scratch);

  void LoadBias(std::span<const float> bias);

  /// Logits are never rounded: an FP32 product of b and the gate's weight.
  /// Shapes   b [T, D].
  void Forward(MatrixView<const float> b);
  /// Of the last Forward, [T, K].
  MatrixView<const int32_t> expert_ids() const { return expert_ids_.view(); }
  MatrixView<const float> weights() const { return weights_.view(); }
  /// Of this process's tokens.
  RouterSums::Totals figures() const { return sums_.Sum(); }

  /// db: the gate's contribution, rounded like an activation.
  /// Shapes   dweights [T, K]; db [T, D].
  void Backward(MatrixView<const float> b, MatrixView<const float> dweights,
                MatrixView<float> db);

 private:
  void Choose(size_t token);

  LayerContext& context_;
  std::string name_;
  size_t moe_layer_;
  Scratch& scratch_;
  Linear gate_;
  std::vector<float> bias_;     // [E]
  Matrix<float> logits_;        // [T, E]
  Matrix<float> scores_;        // [T, E]
  Matrix<int32_t> expert_ids_;  // [T, K]
  Matrix<float> weights_;       // [T, K]
  RouterSums sums_;
};

}  // namespace isoloss::model
