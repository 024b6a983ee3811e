// Mixture of experts: router, routed experts, shared experts (docs/model.md,
// section 6).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "isoloss/base/matrix.h"
#include "isoloss/expert_parallel/routing_plan.h"
#include "isoloss/model/feed_forward.h"
#include "isoloss/model/router.h"

namespace isoloss::model {

struct LayerContext;

class MixtureOfExperts {
 public:
  /// Buffers of the backward pass; one set serves all layers.
  struct Scratch {
    Router::Scratch router;
    FeedForward::Scratch feed_forward;
    Matrix<float> dexpert_in;  // [T K, D]
    Matrix<float> dweights;    // [T, K]
    Matrix<float> db_gate;     // [T, D]
    Matrix<float> db_shared;   // [T, D]
  };

  /// `name`: "layers.N.moe".
  MixtureOfExperts(LayerContext& context, const std::string& name,
                   Scratch& scratch);

  void LoadBias(std::span<const float> bias) { router_.LoadBias(bias); }

  /// y = routed(b) + shared(b): the routed sum is rounded once (the `flat`
  /// combine), then the sum with the shared experts.
  /// Shapes   b, y [T, D].
  void Forward(MatrixView<const float> b, MatrixView<float> y);

  /// db collects the routed experts' contributions in slot order, then that of
  /// shared experts and gate (added to each other in FP32), with one rounding;
  /// every contribution was rounded where it was made.
  void Backward(MatrixView<const float> b, MatrixView<const float> dy,
                MatrixView<float> db);

  /// Of the last Forward.
  const expert_parallel::RoutingPlan& plan() const { return plan_; }

 private:
  RowGroups ExpertRows() const { return {plan_.expert_begins(), {}}; }

  LayerContext& context_;
  std::string name_;
  Scratch& scratch_;
  Router router_;
  FeedForward routed_;
  std::optional<FeedForward> shared_;
  expert_parallel::RoutingPlan plan_;
  Matrix<float> expert_in_;   // [T K, D]
  Matrix<float> expert_out_;  // [T K, D]; Backward turns it into its gradient
  Matrix<float> shared_out_;  // [T, D]
};

}  // namespace isoloss::model
