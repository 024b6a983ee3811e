#include "isoloss/expert_parallel/local_exchange.h"

#include <algorithm>

#include "isoloss/base/error.h"
#include "isoloss/kernels/embedding.h"
#include "isoloss/kernels/rowwise.h"

namespace isoloss::expert_parallel {

void LocalExchange::Dispatch(MatrixView<const float> source,
                             MatrixView<const int32_t> expert_ids,
                             MatrixView<const float> weights) {
  plan_.Build(expert_ids, experts_);
  ISOLOSS_ASSERT(source.rows() == plan_.tokens());
  weights_ = weights;
  tokens_per_expert_.resize(experts_);
  for (size_t e = 0; e < experts_; ++e) {
    tokens_per_expert_[e] = plan_.TokensOf(e);
  }
  const auto tokens = static_cast<int64_t>(plan_.tokens());
  const auto rows = static_cast<int64_t>(plan_.rows());
  counts_ = {.assignments = rows,
             .dispatch_rows = rows,
             .rank_rows = tokens,
             .node_rows = tokens,
             .max_rows_per_rank = rows,
             .max_rows_per_expert = *std::max_element(
                 tokens_per_expert_.begin(), tokens_per_expert_.end()),
             .empty_experts = std::count(tokens_per_expert_.begin(),
                                         tokens_per_expert_.end(), 0)};

  expert_in_.ResizeUninitialized(plan_.rows(), source.cols());
  kernels::GatherRows(source, {plan_.token_of_row().data(), plan_.rows()},
                      expert_in_.view(), team_);
}

void LocalExchange::Combine(MatrixView<const float> expert_out,
                            MatrixView<float> out) {
  const MatrixView<const float> no_addend;
  kernels::GatherCombine(expert_out, plan_.row_of_slot(), weights_, no_addend,
                         rounding_, out, team_);
}

void LocalExchange::CombineBackward(MatrixView<const float> dout,
                                    MatrixView<float> expert_out) {
  dweights_.ResizeUninitialized(plan_.tokens(), plan_.slots());
  kernels::GatherCombineBackward(expert_out, plan_.row_of_slot(), weights_,
                                 dout, rounding_, expert_out, dweights_.view(),
                                 team_);
}

MatrixView<const float> LocalExchange::ReturnGradients(
    MatrixView<const float> dexpert_in) {
  dexpert_in_ = dexpert_in;
  return dweights_.view();
}

void LocalExchange::DispatchBackward(MatrixView<const float> addend,
                                     MatrixView<float> dsource) {
  const MatrixView<const float> unit_weights;
  kernels::GatherCombine(dexpert_in_, plan_.row_of_slot(), unit_weights, addend,
                         rounding_, dsource, team_);
}

}  // namespace isoloss::expert_parallel
