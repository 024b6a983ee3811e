// Replays the experts of one step in another step that shall choose the same.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "isoloss/base/matrix.h"
#include "isoloss/model/routing_source.h"

namespace isoloss::treatments {

/// Holds the experts that a run chose in one step, layer by layer.
class ChosenExperts : public model::RoutingSource {
 public:
  /// A step begins with this call.
  void Clear() { layers_.clear(); }
  /// Adds the ids of an MoE layer [tokens, top_k]. Layers come in their order.
  void Add(MatrixView<const int32_t> ids) {
    Matrix<int32_t>& layer = layers_.emplace_back(ids.rows(), ids.cols());
    for (size_t row = 0; row < ids.rows(); ++row) {
      std::copy_n(ids.Row(row), ids.cols(), layer.Row(row));
    }
  }
  void Choose(size_t layer, size_t token,
              std::span<int32_t> expert_ids) const override {
    std::copy_n(layers_.at(layer).Row(token), expert_ids.size(),
                expert_ids.begin());
  }
  /// Returns the number of pairs of a token and an expert.
  int64_t size() const {
    int64_t pairs = 0;
    for (const Matrix<int32_t>& layer : layers_) {
      pairs += static_cast<int64_t>(layer.size());
    }
    return pairs;
  }

 private:
  std::vector<Matrix<int32_t>> layers_;
};

}  // namespace isoloss::treatments
