#include "isoloss/model/feed_forward.h"

#include "isoloss/kernels/rowwise.h"
#include "isoloss/model/layer_context.h"

namespace isoloss::model {

FeedForward::FeedForward(LayerContext& context, const std::string& name,
                         const FeedForwardParameters& parameters, size_t groups,
                         Scratch& scratch)
    : context_(context),
      scratch_(scratch),
      w1_(context, name + ".w1", parameters.w1, groups),
      w3_(context, name + ".w3", parameters.w3, groups),
      w2_(context, name + ".w2", parameters.w2, groups) {}

void FeedForward::Forward(MatrixView<const float> x, const RowGroups& groups,
                          MatrixView<float> y) {
  for (Matrix<float>* m : {&gate_, &up_, &hidden_}) {
    m->ResizeUninitialized(x.rows(), w1_.out());
  }
  w1_.QueueForward(x, groups, context_.rounding, gate_.view());
  w3_.QueueForward(x, groups, context_.rounding, up_.view());
  context_.gemms.Run();
  context_.TapActivation(w1_.site(), "", gate_.view());
  context_.TapActivation(w3_.site(), "", up_.view());

  kernels::SwigluForward(gate_.view(), up_.view(), context_.rounding,
                         hidden_.view(), context_.team);
  w2_.QueueForward(hidden_.view(), groups, context_.rounding, y);
  context_.gemms.Run();
}

void FeedForward::Backward(MatrixView<const float> x,
                           MatrixView<const float> dy, const RowGroups& groups,
                           MatrixView<float> dx) {
  Matrix<float>& dhidden = scratch_.dhidden;
  dhidden.ResizeUninitialized(x.rows(), w1_.out());
  w2_.QueueBackward(hidden_.view(), dy, groups, dhidden.view());
  context_.gemms.Run();
  // Each gradient takes the place of what is read here for the last time.
  Matrix<float>& dgate = gate_;
  Matrix<float>& dup = dhidden;
  kernels::SwigluBackward(gate_.view(), up_.view(), dhidden.view(),
                          context_.rounding, dgate.view(), dup.view(),
                          context_.team);
  w1_.QueueInputGradient(dgate.view(), groups, dx);
  context_.gemms.Run();
  // Both weight gradients read x: in one batch it is packed once.
  w3_.QueueBackward(x, dup.view(), groups, dx, /*addend=*/dx);
  w1_.QueueWeightGradient(x, dgate.view(), groups);
  context_.gemms.Run();
}

FeedForward MakeDenseFeedForward(LayerContext& context, const std::string& name,
                                 FeedForward::Scratch& scratch) {
  return FeedForward(
      context, name,
      {name + ".w1.weight", name + ".w3.weight", name + ".w2.weight"}, 1,
      scratch);
}

}  // namespace isoloss::model
