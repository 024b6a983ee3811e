// Computes a mixture of experts: router, routed experts, shared experts
// (docs/model.md, section 6).
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
  /// One set of buffers for the backward pass serves all layers.
  struct Scratch {
    Memory& memory;
    Router::Scratch router{memory};
    FeedForward::Scratch feed_forward{memory};
    Matrix<float> dexpert_in{memory};  // [R, D]
    Matrix<float> db_gate{memory};     // [T, D]
    Matrix<float> db_shared{memory};   // [T, D]
  };

  /// `name` is "layers.N.moe"; `moe_layer` counts from the first MoE layer.
  MixtureOfExperts(LayerContext& context, const std::string& name,
                   size_t moe_layer, Scratch& scratch);

  void LoadBias(std::span<const float> bias) { router_.LoadBias(bias); }

  /// y = routed(b) + shared(b). The exchange combines the routed sum (with
  /// `flat` it is rounded once). The sum with the shared experts' output is
  /// rounded.
  /// Shapes   b, y [T, D].
  void Forward(MatrixView<const float> b, MatrixView<float> y);

  /// db is the sum, rounded once, of two parts. The exchange adds the routed
  /// experts' contributions (with `flat` in slot order). The contributions of
  /// shared experts and gate are added to each other in FP32. Each contribution
  /// was rounded where it was made.
  void Backward(MatrixView<const float> b, MatrixView<const float> dy,
                MatrixView<float> db);

  /// The following values belong to the batch up to the last Forward, whose
  /// rows the exchange holds.
  const expert_parallel::Exchange& exchange() const { return *exchange_; }
  MatrixView<const int32_t> expert_ids() const { return router_.chosen(); }
  RouterSums::Totals router_figures() const { return router_.figures(); }

 private:
  RowGroups ExpertRows() const {
    return {.begins = exchange_->expert_begins(),
            .leaf_ends = exchange_->unit_ends(),
            .leaf_rows = exchange_->unit_rows(),
            .of_experts = true};
  }
  /// Returns whether the experts themselves apply the combine weights.
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
