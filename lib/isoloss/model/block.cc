#include "isoloss/model/block.h"

#include "isoloss/kernels/rowwise.h"
#include "isoloss/model/layer_context.h"

namespace isoloss::model {

TransformerBlock::TransformerBlock(LayerContext& context, size_t layer,
                                   Scratch& scratch)
    : context_(context),
      name_("layers." + std::to_string(layer)),
      scratch_(scratch),
      attention_norm_(context, name_ + ".attention_norm.weight"),
      attention_(context, name_ + ".attention", scratch.attention),
      ffn_norm_(context, name_ + ".ffn_norm.weight") {
  if (context.config.IsMoeLayer(layer)) {
    moe_.emplace(context, name_ + ".moe", layer - context.config.n_dense_layers,
                 scratch.moe);
  } else {
    feed_forward_.emplace(context, name_ + ".feed_forward",
                          scratch.feed_forward);
  }
}

MatrixView<const float> TransformerBlock::Forward(MatrixView<const float> x) {
  for (Matrix<float>* m :
       {&attention_in_, &mid_, &ffn_in_, &out_, &scratch_.branch}) {
    m->ResizeUninitialized(x.rows(), x.cols());
  }
  const MatrixView<float> branch = scratch_.branch.view();

  attention_norm_.Forward(x, attention_in_.view());
  context_.TapOutput(name_, "attention_norm", attention_in_.view());
  attention_.Forward(attention_in_.view(), branch);
  kernels::Add(x, branch, context_.rounding, mid_.view(), context_.team);
  context_.TapOutput(name_, "attention_residual", mid_.view());

  ffn_norm_.Forward(mid_.view(), ffn_in_.view());
  context_.TapOutput(name_, "ffn_norm", ffn_in_.view());
  if (moe_) {
    moe_->Forward(ffn_in_.view(), branch);
  } else {
    feed_forward_->Forward(ffn_in_.view(), context_.SequenceLeaves(), branch);
  }
  kernels::Add(mid_.view(), branch, context_.rounding, out_.view(),
               context_.team);
  context_.TapOutput(name_, "", out_.view());
  return out_.view();
}

void TransformerBlock::Backward(MatrixView<const float> x,
                                MatrixView<float> dx) {
  scratch_.dnormalised.ResizeUninitialized(x.rows(), x.cols());
  const MatrixView<float> dnormalised = scratch_.dnormalised.view();
  context_.TapGradient(name_, "", dx);

  if (moe_) {
    moe_->Backward(ffn_in_.view(), dx, dnormalised);
  } else {
    feed_forward_->Backward(ffn_in_.view(), dx, context_.SequenceLeaves(),
                            dnormalised);
  }
  context_.TapGradient(name_, "ffn_norm", dnormalised);
  ffn_norm_.Backward(mid_.view(), dnormalised, dx, /*add=*/true);
  attention_.Backward(attention_in_.view(), dx, dnormalised);
  context_.TapGradient(name_, "attention_norm", dnormalised);
  attention_norm_.Backward(x, dnormalised, dx, /*add=*/true);
}

}  // namespace isoloss::model
