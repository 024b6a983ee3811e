#include "isoloss/model/attention_mla.h"

#include "isoloss/kernels/rowwise.h"
#include "isoloss/model/layer_context.h"

namespace isoloss::model {
MlaAttention::MlaAttention(LayerContext& context, const std::string& name,
                           Scratch& scratch)
    : context_(context),
      name_(name),
      scratch_(scratch),
      core_(context.recipe.recipe().attention, name + kAttentionCore,
            context.gemms, context.executor, scratch.core),
      wkv_a_(context, name + ".wkv_a"),
      kv_norm_(context, name + ".kv_norm.weight"),
      wkv_b_(context, name + ".wkv_b"),
      wo_(context, name + ".wo") {
  if (context.config.q_lora_rank == 0) {
    wq_.emplace(context, name + ".wq");
  } else {
    wq_a_.emplace(context, name + ".wq_a");
    q_norm_.emplace(context, name + ".q_norm.weight");
    wq_b_.emplace(context, name + ".wq_b");
  }
  if (!context.recipe.recipe().attention.quantizes()) return;
  context.gemms_per_step += 6;
  context.quantized_gemms_per_step += static_cast<int64_t>(
      core_.quantized_forward() + core_.quantized_backward());
}

void MlaAttention::Forward(MatrixView<const float> a, MatrixView<float> y) {
  const ModelConfig& c = context_.config;
  const RowGroups rows = context_.SequenceLeaves();
  ForwardQueriesAndLatent(a);

  latent_.ResizeUninitialized(a.rows(), c.kv_lora_rank);
  kv_norm_.Forward(compressed_.cview().Cols(0, c.kv_lora_rank), latent_.view());
  context_.TapOutput(name_, "kv_norm", latent_.view());
  expanded_.ResizeUninitialized(
      a.rows(), c.n_heads * (c.qk_nope_head_dim + c.v_head_dim));
  wkv_b_.QueueForward(latent_.view(), rows, context_.rounding,
                      expanded_.view());
  context_.gemms.Run();

  RotateQueriesAndKey(queries_.view(), compressed_.view(), /*inverse=*/false);
  if (context_.tap != nullptr) TapRotated();
  AssembleKeys();

  out_.ResizeUninitialized(a.rows(), c.n_heads * c.v_head_dim);
  core_.Forward(Inputs(), Heads(out_.view(), 0, c.v_head_dim));
  context_.TapOutput(name_, "inner_attention", out_.view());
  wo_.QueueForward(out_.view(), rows, context_.rounding, y);
  context_.gemms.Run();
}

void MlaAttention::Backward(MatrixView<const float> a,
                            MatrixView<const float> dy, MatrixView<float> da) {
  const ModelConfig& c = context_.config;
  const RowGroups rows = context_.SequenceLeaves();
  Scratch& s = scratch_;
  s.dout.ResizeUninitialized(a.rows(), out_.cols());
  wo_.QueueBackward(out_.view(), dy, rows, s.dout.view());
  context_.gemms.Run();

  s.dqueries.ResizeUninitialized(a.rows(), queries_.cols());
  s.dkeys.ResizeUninitialized(a.rows(), keys_.cols());
  s.dexpanded.ResizeUninitialized(a.rows(), expanded_.cols());
  s.dcompressed.ResizeUninitialized(a.rows(), compressed_.cols());
  core_.Backward(
      Inputs(), Heads(s.dout.cview(), 0, c.v_head_dim),
      {.queries = Heads(s.dqueries.view(), 0, c.qk_head_dim()),
       .keys = Heads(s.dkeys.view(), 0, c.qk_head_dim()),
       .values = Heads(s.dexpanded.view(), c.qk_nope_head_dim, c.v_head_dim)});
  context_.TapGradient(name_, "inner_attention.q", s.dqueries.view());
  context_.TapGradient(name_, "inner_attention.k", s.dkeys.view());
  DisassembleKeyGradients();
  RotateQueriesAndKey(s.dqueries.view(), s.dcompressed.view(),
                      /*inverse=*/true);

  s.dlatent.ResizeUninitialized(a.rows(), c.kv_lora_rank);
  wkv_b_.QueueBackward(latent_.view(), s.dexpanded.view(), rows,
                       s.dlatent.view());
  context_.gemms.Run();
  kv_norm_.Backward(compressed_.cview().Cols(0, c.kv_lora_rank),
                    s.dlatent.view(),
                    s.dcompressed.view().Cols(0, c.kv_lora_rank));
  BackwardQueriesAndLatent(a, da);
}

void MlaAttention::ForwardQueriesAndLatent(MatrixView<const float> a) {
  const ModelConfig& c = context_.config;
  const RowGroups rows = context_.SequenceLeaves();
  queries_.ResizeUninitialized(a.rows(), c.n_heads * c.qk_head_dim());
  compressed_.ResizeUninitialized(a.rows(),
                                  c.kv_lora_rank + c.qk_rope_head_dim);
  wkv_a_.QueueForward(a, rows, context_.rounding, compressed_.view());
  if (wq_) {
    wq_->QueueForward(a, rows, context_.rounding, queries_.view());
    context_.gemms.Run();
  } else {
    q_low_.ResizeUninitialized(a.rows(), c.q_lora_rank);
    q_normed_.ResizeUninitialized(a.rows(), c.q_lora_rank);
    wq_a_->QueueForward(a, rows, context_.rounding, q_low_.view());
    context_.gemms.Run();
    q_norm_->Forward(q_low_.view(), q_normed_.view());
    context_.TapOutput(name_, "q_norm", q_normed_.view());
    wq_b_->QueueForward(q_normed_.view(), rows, context_.rounding,
                        queries_.view());
    context_.gemms.Run();
  }
}

void MlaAttention::BackwardQueriesAndLatent(MatrixView<const float> a,
                                            MatrixView<float> da) {
  const RowGroups rows = context_.SequenceLeaves();
  Scratch& s = scratch_;
  if (wq_) {
    wq_->QueueBackward(a, s.dqueries.view(), rows, da);
  } else {
    s.dq_normed.ResizeUninitialized(a.rows(), q_normed_.cols());
    s.dq_low.ResizeUninitialized(a.rows(), q_low_.cols());
    wq_b_->QueueBackward(q_normed_.view(), s.dqueries.view(), rows,
                         s.dq_normed.view());
    context_.gemms.Run();
    q_norm_->Backward(q_low_.view(), s.dq_normed.view(), s.dq_low.view());
    wq_a_->QueueBackward(a, s.dq_low.view(), rows, da);
  }
  context_.gemms.Run();
  wkv_a_.QueueBackward(a, s.dcompressed.view(), rows, da, /*addend=*/da);
  context_.gemms.Run();
}

void MlaAttention::RotateQueriesAndKey(MatrixView<float> queries,
                                       MatrixView<float> compressed,
                                       bool inverse) {
  const ModelConfig& c = context_.config;
  const kernels::RopeAngles angles = {context_.batch.positions,
                                      context_.rope.cos(), context_.rope.sin(),
                                      inverse};
  const size_t rope = c.qk_rope_head_dim;
  kernels::ApplyRope(Heads(queries, c.qk_nope_head_dim, rope), angles,
                     context_.rounding, context_.executor);
  kernels::ApplyRope({compressed, 1, 0, c.kv_lora_rank, rope}, angles,
                     context_.rounding, context_.executor);
}

/// The key of head h = [k_nope of head h, the one rotated k_pe of all heads].
void MlaAttention::AssembleKeys() {
  const ModelConfig& c = context_.config;
  const size_t nope = c.qk_nope_head_dim;
  const size_t rope = c.qk_rope_head_dim;
  keys_.ResizeUninitialized(queries_.rows(), queries_.cols());
  kernels::CopyHeads(Heads(expanded_.cview(), 0, nope),
                     Heads(keys_.view(), 0, nope), context_.executor);
  kernels::CopyHeads({compressed_.cview(), c.n_heads, 0, c.kv_lora_rank, rope},
                     Heads(keys_.view(), nope, rope), context_.executor);
}

/// Applies the adjoint of AssembleKeys: the gradient of k_pe is the sum over
/// heads.
void MlaAttention::DisassembleKeyGradients() {
  const ModelConfig& c = context_.config;
  const size_t nope = c.qk_nope_head_dim;
  const size_t rope = c.qk_rope_head_dim;
  kernels::CopyHeads(Heads(scratch_.dkeys.cview(), 0, nope),
                     Heads(scratch_.dexpanded.view(), 0, nope),
                     context_.executor);
  kernels::SumHeads(Heads(scratch_.dkeys.cview(), nope, rope),
                    context_.rounding,
                    scratch_.dcompressed.view().Cols(c.kv_lora_rank, rope),
                    context_.executor);
}

void MlaAttention::TapRotated() const {
  const ModelConfig& c = context_.config;
  const size_t rope = c.qk_rope_head_dim;
  Matrix<float> rotated(context_.memory());
  rotated.ResizeUninitialized(queries_.rows(), c.n_heads * rope);
  kernels::CopyHeads(Heads(queries_.cview(), c.qk_nope_head_dim, rope),
                     Heads(rotated.view(), 0, rope), context_.executor);
  context_.TapOutput(name_, "q_pe_rotated", rotated.view());
  context_.TapOutput(name_, "k_pe_rotated",
                     compressed_.cview().Cols(c.kv_lora_rank, rope));
}

AttentionInputs MlaAttention::Inputs() const {
  const ModelConfig& c = context_.config;
  return {.queries = Heads(queries_.cview(), 0, c.qk_head_dim()),
          .keys = Heads(keys_.cview(), 0, c.qk_head_dim()),
          .values = Heads(expanded_.cview(), c.qk_nope_head_dim, c.v_head_dim),
          .document_ends = context_.batch.document_ends,
          .scale = static_cast<float>(c.SoftmaxScale()),
          .rounding = context_.rounding,
          .key = context_.key,
          .first_token = context_.first_token};
}

}  // namespace isoloss::model
