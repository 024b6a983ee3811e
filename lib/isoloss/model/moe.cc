#include "isoloss/model/moe.h"

#include "isoloss/kernels/rowwise.h"
#include "isoloss/model/layer_context.h"

namespace isoloss::model {

MixtureOfExperts::MixtureOfExperts(LayerContext& context,
                                   const std::string& name, size_t moe_layer,
                                   Scratch& scratch)
    : context_(context),
      name_(name),
      scratch_(scratch),
      router_(context, name + ".router", moe_layer, scratch.router),
      routed_(context, name + ".routed_experts", scratch.feed_forward),
      exchange_(context.mesh.exchanges().Make(context.rounding)) {
  if (context.config.num_shared_experts > 0) {
    shared_.emplace(context, name + ".shared_experts", scratch.feed_forward);
  }
}

bool MixtureOfExperts::WeighsBeforeFc2() const {
  return context_.mesh.config().options.weight_site ==
         expert_parallel::WeightSite::kBeforeFc2;
}

void MixtureOfExperts::Forward(MatrixView<const float> b, MatrixView<float> y) {
  router_.Forward(b);
  exchange_->Dispatch(b, router_.expert_ids(), router_.weights());
  const MatrixView<const float> expert_in = exchange_->expert_in();
  expert_out_.ResizeUninitialized(expert_in.rows(), b.cols());
  routed_.Forward(
      expert_in, ExpertRows(), expert_out_.view(),
      WeighsBeforeFc2() ? exchange_->row_weights() : std::span<const float>());
  exchange_->Combine(expert_out_.view(), y);
  context_.TapOutput(name_, "routed_experts", y);

  if (shared_) {
    shared_out_.ResizeUninitialized(b.rows(), b.cols());
    shared_->Forward(b, context_.SequenceLeaves(), shared_out_.view());
    kernels::Add(y, shared_out_.view(), context_.rounding, y,
                 context_.executor);
    context_.TapOutput(name_, "", y);
  }
}

void MixtureOfExperts::Backward(MatrixView<const float> b,
                                MatrixView<const float> dy,
                                MatrixView<float> db) {
  Scratch& s = scratch_;
  const MatrixView<const float> expert_in = exchange_->expert_in();
  s.dexpert_in.ResizeUninitialized(expert_in.rows(), b.cols());
  // This works in place, because the experts' output is not needed again.
  const MatrixView<float> dexpert_out = expert_out_.view();
  exchange_->CombineBackward(dy, dexpert_out);
  RowWeights row_weights;
  if (WeighsBeforeFc2()) {
    row_weights = {exchange_->row_weights(), exchange_->row_weight_gradients()};
  }
  routed_.Backward(expert_in, dexpert_out, ExpertRows(), s.dexpert_in.view(),
                   row_weights);
  const MatrixView<const float> dweights =
      exchange_->ReturnGradients(s.dexpert_in.view());

  s.db_gate.ResizeUninitialized(b.rows(), b.cols());
  router_.Backward(b, dweights, s.db_gate.view());
  if (shared_) {
    s.db_shared.ResizeUninitialized(b.rows(), b.cols());
    shared_->Backward(b, dy, context_.SequenceLeaves(), s.db_shared.view());
    kernels::Add(s.db_shared.view(), s.db_gate.view(), kernels::Rounding::kFp32,
                 s.db_gate.view(), context_.executor);
  }
  exchange_->DispatchBackward(s.db_gate.view(), db);
}

}  // namespace isoloss::model
