#include "isoloss/expert_parallel/ranked_exchange.h"

#include <algorithm>

#include "isoloss/base/error.h"
#include "isoloss/kernels/rowwise.h"

namespace isoloss::expert_parallel {

using transport::OpKind;

RankedExchange::RankedExchange(const ExchangeSetup& setup, int layer,
                               Conservation& conservation)
    : setup_(setup),
      layer_(layer),
      conservation_(conservation),
      local_(setup.transport.local_ranks()),
      book_(setup, layer),
      states_(static_cast<size_t>(local_.size())) {}

/// Gives the experts' lists their extent; padding is zero.
void RankedExchange::ClearLists(size_t width) {
  width_ = width;
  expert_in_.ResizeUninitialized(book_.layout().rows(), width);
  row_weights_.resize(book_.layout().rows());
  row_weight_gradients_.resize(book_.layout().rows());
  for (const Layout::Run& run : book_.layout().padding()) {
    std::fill(expert_in_.Row(run.first), expert_in_.Row(run.end), 0.0f);
    std::fill(row_weights_.begin() + static_cast<std::ptrdiff_t>(run.first),
              row_weights_.begin() + static_cast<std::ptrdiff_t>(run.end),
              0.0f);
  }
}

void RankedExchange::Dispatch(MatrixView<const float> source,
                              MatrixView<const int32_t> expert_ids,
                              MatrixView<const float> weights) {
  local_tokens_ = source.rows();
  book_.Count(expert_ids, weights);
  ClearLists(source.cols());
  SendRows(OpKind::kDispatch, source, &RankedExchange::ReceiveTokens);
}

void RankedExchange::Combine(MatrixView<const float> expert_out,
                             MatrixView<float> out) {
  ISOLOSS_ASSERT(expert_out.rows() == book_.layout().rows() &&
                 out.rows() == local_tokens_);
  ReturnRows(OpKind::kCombine, expert_out, out);
}

void RankedExchange::CombineBackward(MatrixView<const float> dout,
                                     MatrixView<float> expert_out) {
  expert_out_ = expert_out;
  for (const Layout::Run& run : book_.layout().padding()) {
    std::fill(expert_out.Row(run.first), expert_out.Row(run.end), 0.0f);
  }
  SendRows(OpKind::kDispatchGradient, dout,
           &RankedExchange::ReceiveOutputGradients);
}

MatrixView<const float> RankedExchange::ReturnGradients(
    MatrixView<const float> dexpert_in) {
  returned_.ResizeUninitialized(local_tokens_, width_);
  dweights_.ResizeUninitialized(local_tokens_, book_.slots());
  ReturnRows(OpKind::kCombineGradient, dexpert_in, returned_.view());
  return dweights_.view();
}

void RankedExchange::DispatchBackward(MatrixView<const float> addend,
                                      MatrixView<float> dsource) {
  kernels::Add(returned_.view(), addend, setup_.rounding, dsource,
               setup_.executor);
}

}  // namespace isoloss::expert_parallel
