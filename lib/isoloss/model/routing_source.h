// Defines sources of expert ids that do not come from the router's scores.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

namespace isoloss::model {

/// Chooses experts in the router's place; combine weights still come from the
/// router's scores.
class RoutingSource {
 public:
  virtual ~RoutingSource() = default;
  /// Writes the ids of `token` of the global batch in MoE layer `layer` (from
  /// 0), in slot order.
  /// Shapes   expert_ids [K].
  virtual void Choose(size_t layer, size_t token,
                      std::span<int32_t> expert_ids) const = 0;
  /// Returns whether the source stands for a choice that a router made. Then
  /// the ids that this run's router would not have chosen are counted.
  virtual bool IsReplay() const { return true; }
};

/// Holds the decision on one token, which a RoutingEdit may change.
struct RoutedToken {
  size_t layer;                   ///< MoE layer, from 0
  size_t token;                   ///< of the global batch
  std::span<const float> scores;  ///< [E]
  std::span<const float> bias;    ///< [E], of the selection
  std::span<int32_t> expert_ids;  ///< [K]
  std::span<float> weights;       ///< [K]
};

/// Changes a decision after the router or the source made it. Several threads
/// call this at once, for different tokens.
using RoutingEdit = std::function<void(const RoutedToken& decided)>;

/// Slot k of token t goes to expert (t * K + k) mod E, so every expert gets the
/// same number of tokens if E divides T * K. This is torchtitan's round-robin
/// debug mode; the published speed comparisons forced balance like this.
class ForcedBalance : public RoutingSource {
 public:
  explicit ForcedBalance(size_t experts) : experts_(experts) {}
  bool IsReplay() const override { return false; }
  void Choose(size_t /*layer*/, size_t token,
              std::span<int32_t> expert_ids) const override {
    for (size_t k = 0; k < expert_ids.size(); ++k) {
      expert_ids[k] =
          static_cast<int32_t>((token * expert_ids.size() + k) % experts_);
    }
  }

 private:
  size_t experts_;
};

}  // namespace isoloss::model
