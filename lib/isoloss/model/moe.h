// Mixture of experts: router, routed experts, shared experts (docs/model.md,
// section 6).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "isoloss/base/matrix.h"
#include "isoloss/expert_parallel/exchange.h"
#include "isoloss/model/feed_forward.h"
#include "isoloss/model/layer_context.h"
#include "isoloss/model/router.h"

namespace isoloss::model {

class MixtureOfExperts {
 public:
  /// Buffers of the backward pass; one set serves all layers.
  struct Scratch {
    Memory& memory;
    Router::Scratch router{memory};
    FeedForward::Scratch feed_forward{memory};
    Matrix<float> dexpert_in{memory};  // [R, D]
    Matrix<float> db_gate{memory};     // [T, D]
    Matrix<float> db_shared{memory};   // [T, D]
  };

  /// `name`: "layers.N.moe"; `moe_layer`: N counted from the first MoE layer.
  MixtureOfExperts(LayerContext& context, const std::string& name,
                   size_t moe_layer, Scratch& scratch);

  void LoadBias(std::span<const float> bias) { router_.LoadBias(bias); }

  /// y = routed(b) + shared(b): the routed sum is what the exchange combines
  /// (with `flat` rounded once), then the sum with the shared experts is
  /// rounded.
  /// Shapes   b, y [T, D].
  void Forward(MatrixView<const float> b, MatrixView<float> y);

  /// db collects the routed experts' contributions as the exchange adds them
  /// (with `flat` in slot order), then that of shared experts and gate (added
  /// to each other in FP32), with one rounding; every contribution was rounded
  /// where it was made.
  void Backward(MatrixView<const float> b, MatrixView<const float> dy,
                MatrixView<float> db);

  /// Of the last Forward.
  const expert_parallel::Exchange& exchange() const { return *exchange_; }
  MatrixView<const int32_t> expert_ids() const { return router_.expert_ids(); }
  RouterSums::Totals router_figures() const { return router_.figures(); }

 private:
  RowGroups ExpertRows() const {
    return {.begins = exchange_->expert_begins(),
            .leaf_ends = exchange_->unit_ends(),
            .leaf_rows = exchange_->unit_rows(),
            .of_experts = true};
  }
  /// Do the experts weigh their rows themselves?
  bool WeighsBeforeFc2() const;

  LayerContext& context_;
  std::string name_;
  Scratch& scratch_;
  Router router_;
  FeedForward routed_;
  std::optional<FeedForward> shared_;
  std::unique_ptr<expert_parallel::Exchange> exchange_;
  // [R, D]; Backward turns it into its gradient
  Matrix<float> expert_out_{context_.memory()};
  Matrix<float> shared_out_{context_.memory()};  // [T, D]
};

}  // namespace isoloss::model
