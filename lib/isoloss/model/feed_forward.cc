#include "isoloss/model/feed_forward.h"

#include <numeric>

#include "isoloss/kernels/rowwise.h"
#include "isoloss/model/layer_context.h"

namespace isoloss::model {

FeedForward::FeedForward(LayerContext& context, const std::string& name,
                         Scratch& scratch)
    : context_(context),
      scratch_(scratch),
      w1_(context, name + ".w1"),
      w3_(context, name + ".w3"),
      w2_(context, name + ".w2") {}

void FeedForward::Forward(MatrixView<const float> x, const RowGroups& groups,
                          MatrixView<float> y,
                          std::span<const float> row_weights) {
  for (Matrix<float>* m : {&gate_, &up_, &hidden_}) {
    m->ResizeUninitialized(x.rows(), w1_.out());
  }
  w1_.QueueForward(x, groups, context_.rounding, gate_.view());
  w3_.QueueForward(x, groups, context_.rounding, up_.view());
  context_.gemms.Run();

  kernels::SwigluForward(gate_.view(), up_.view(), context_.rounding,
                         hidden_.view(), context_.executor);
  const bool weighted = !row_weights.empty();
  if (weighted) ApplyWeights(row_weights);
  w2_.QueueForward(weighted ? weighted_.view() : hidden_.view(), groups,
                   context_.rounding, y);
  context_.gemms.Run();
}

/// weighted_ = round(row weight * hidden_).
void FeedForward::ApplyWeights(std::span<const float> row_weights) {
  const size_t rows = hidden_.rows();
  weighted_.ResizeUninitialized(rows, hidden_.cols());
  index_.resize(rows);
  std::iota(index_.begin(), index_.end(), 0);
  kernels::GatherCombine(hidden_.view(), {index_.data(), rows, 1},
                         {row_weights.data(), rows, 1}, {}, context_.rounding,
                         weighted_.view(), context_.executor);
}

void FeedForward::Backward(MatrixView<const float> x,
                           MatrixView<const float> dy, const RowGroups& groups,
                           MatrixView<float> dx,
                           const RowWeights& row_weights) {
  Matrix<float>& dhidden = scratch_.dhidden;
  const size_t rows = x.rows();
  dhidden.ResizeUninitialized(rows, w1_.out());
  const bool weighted = !row_weights.values.empty();
  w2_.QueueBackward(weighted ? weighted_.view() : hidden_.view(), dy, groups,
                    dhidden.view());
  context_.gemms.Run();
  if (weighted) {
    kernels::GatherCombineBackward(
        hidden_.view(), {index_.data(), rows, 1},
        {row_weights.values.data(), rows, 1}, dhidden.view(), context_.rounding,
        dhidden.view(), {row_weights.gradients.data(), rows, 1},
        context_.executor);
  }
  // Each gradient overwrites a matrix that is read here for the last time.
  Matrix<float>& dgate = gate_;
  Matrix<float>& dup = dhidden;
  kernels::SwigluBackward(gate_.view(), up_.view(), dhidden.view(),
                          context_.rounding, dgate.view(), dup.view(),
                          context_.executor);
  w1_.QueueInputGradient(dgate.view(), groups, dx);
  context_.gemms.Run();
  // Both weight gradients read x; one batch packs it only once.
  w3_.QueueBackward(x, dup.view(), groups, dx, /*addend=*/dx);
  w1_.QueueWeightGradient(x, dgate.view(), groups);
  context_.gemms.Run();
}

}  // namespace isoloss::model
