// Is the `flat` exchange of one rank: rows are copied, nothing travels. The
// exchange between ranks must equal this definition to the bit.
#pragma once

#include <vector>

#include "isoloss/base/executor.h"
#include "isoloss/expert_parallel/exchange.h"
#include "isoloss/expert_parallel/routing_plan.h"

namespace isoloss::expert_parallel {

/// Let r(t, k) be the row of (token, slot) in the plan's order. The outputs are
///   expert_in[r(t, k)] = source[t]
///   out[t] = round(sum over k, ascending, of weights[t, k] *
///            expert_out[r(t, k)], by FP32 FMA from +0).
/// The adjoints are
///   dexpert_out[r(t, k)] = round(weights[t, k] * dout[t])
///   dweights[t, k] = <dout[t], expert_out[r(t, k)]> (kernels::RowDot)
///   dsource[t] = round(sum over k, ascending, of dexpert_in[r(t, k)] +
///                addend[t]).
/// Source   docs/distributed.md, "Algorithms", `flat`.
class LocalExchange : public Exchange {
 public:
  LocalExchange(size_t experts, kernels::Rounding rounding, Executor& executor)
      : experts_(experts), rounding_(rounding), executor_(executor) {}

  void Dispatch(MatrixView<const float> source,
                MatrixView<const int32_t> expert_ids,
                MatrixView<const float> weights) override;
  MatrixView<const float> expert_in() const override {
    return expert_in_.view();
  }
  std::span<const size_t> expert_begins() const override {
    return plan_.expert_begins();
  }
  std::span<const size_t> unit_ends() const override { return {}; }
  std::span<const size_t> unit_rows() const override { return {}; }
  std::span<const float> row_weights() const override { return {}; }
  std::span<float> row_weight_gradients() override { return {}; }
  void Combine(MatrixView<const float> expert_out,
               MatrixView<float> out) override;
  void CombineBackward(MatrixView<const float> dout,
                       MatrixView<float> expert_out) override;
  MatrixView<const float> ReturnGradients(
      MatrixView<const float> dexpert_in) override;
  void DispatchBackward(MatrixView<const float> addend,
                        MatrixView<float> dsource) override;
  std::span<const int64_t> tokens_per_expert() const override {
    return tokens_per_expert_;
  }
  const DispatchCounts& counts() const override { return counts_; }

 private:
  size_t experts_;
  kernels::Rounding rounding_;
  Executor& executor_;
  RoutingPlan plan_;
  MatrixView<const float> weights_;
  MatrixView<const float> dexpert_in_;
  Matrix<float> expert_in_{executor_.memory()};  // [T K, D]
  Matrix<float> dweights_{executor_.memory()};   // [T, K]
  std::vector<int64_t> tokens_per_expert_;
  DispatchCounts counts_;
};

}  // namespace isoloss::expert_parallel
