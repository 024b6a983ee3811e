#include "isoloss/model/moe.h"

#include "isoloss/expert_parallel/exchange.h"
#include "isoloss/kernels/rowwise.h"
#include "isoloss/model/layer_context.h"

namespace isoloss::model {
namespace {

FeedForwardParameters RoutedParameters(const std::string& name) {
  const std::string experts = name + ".routed_experts.inner_experts.";
  return {experts + "w1_EFD", experts + "w3_EFD", experts + "w2_EDF"};
}

}  // namespace

MixtureOfExperts::MixtureOfExperts(LayerContext& context,
                                   const std::string& name, Scratch& scratch)
    : context_(context),
      name_(name),
      scratch_(scratch),
      router_(context, name + ".router", scratch.router),
      routed_(context, name + ".routed_experts", RoutedParameters(name),
              context.config.num_experts, scratch.feed_forward) {
  if (context.config.num_shared_experts > 0) {
    shared_.emplace(MakeDenseFeedForward(context, name + ".shared_experts",
                                         scratch.feed_forward));
  }
}

void MixtureOfExperts::Forward(MatrixView<const float> b, MatrixView<float> y) {
  router_.Forward(b);
  plan_.Build(router_.expert_ids(), context_.config.num_experts);

  expert_in_.ResizeUninitialized(plan_.rows(), b.cols());
  expert_out_.ResizeUninitialized(plan_.rows(), b.cols());
  expert_parallel::Dispatch(plan_, b, expert_in_.view(), context_.team);
  routed_.Forward(expert_in_.view(), ExpertRows(), expert_out_.view());
  expert_parallel::Combine(plan_, expert_out_.view(), router_.weights(),
                           context_.rounding, y, context_.team);
  context_.TapActivation(name_, "routed_experts", y);

  if (shared_) {
    shared_out_.ResizeUninitialized(b.rows(), b.cols());
    shared_->Forward(b, context_.SequenceLeaves(), shared_out_.view());
    context_.TapActivation(name_, "shared_experts", shared_out_.view());
    kernels::Add(y, shared_out_.view(), context_.rounding, y, context_.team);
  }
  context_.TapActivation(name_, "", y);
}

void MixtureOfExperts::Backward(MatrixView<const float> b,
                                MatrixView<const float> dy,
                                MatrixView<float> db) {
  Scratch& s = scratch_;
  context_.TapGradient(name_, "", dy);
  s.dexpert_in.ResizeUninitialized(plan_.rows(), b.cols());
  s.dweights.ResizeUninitialized(plan_.tokens(), plan_.slots());
  // In place: what the experts gave is not needed again.
  const MatrixView<float> dexpert_out = expert_out_.view();
  expert_parallel::CombineBackward(plan_, expert_out_.view(), router_.weights(),
                                   dy, context_.rounding, dexpert_out,
                                   s.dweights.view(), context_.team);
  routed_.Backward(expert_in_.view(), dexpert_out, ExpertRows(),
                   s.dexpert_in.view());

  s.db_gate.ResizeUninitialized(b.rows(), b.cols());
  router_.Backward(b, s.dweights.view(), s.db_gate.view());
  if (shared_) {
    s.db_shared.ResizeUninitialized(b.rows(), b.cols());
    shared_->Backward(b, dy, context_.SequenceLeaves(), s.db_shared.view());
    kernels::Add(s.db_shared.view(), s.db_gate.view(), kernels::Rounding::kFp32,
                 s.db_gate.view(), context_.team);
  }
  expert_parallel::DispatchBackward(plan_, s.dexpert_in.view(),
                                    s.db_gate.view(), context_.rounding, db,
                                    context_.team);
}

}  // namespace isoloss::model
