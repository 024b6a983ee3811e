// Computes softmax(scale * Q K^T + causal mask) V for each document and head,
// with the precision of a recipe (docs/model.md, section 16).
#pragma once

#include <cstddef>
#include <deque>
#include <span>
#include <string>
#include <vector>

#include "isoloss/base/executor.h"
#include "isoloss/base/matrix.h"
#include "isoloss/kernels/gemm.h"
#include "isoloss/kernels/rounding.h"
#include "isoloss/kernels/rowwise.h"
#include "isoloss/kernels/score_plan.h"
#include "isoloss/model/gemm_queue.h"
#include "isoloss/model/operand_states.h"
#include "isoloss/precision/recipe.h"

namespace isoloss::model {

using kernels::HeadColumns;
using kernels::kQueryBlock;

struct AttentionInputs {
  HeadColumns<const float> queries;
  HeadColumns<const float> keys;
  HeadColumns<const float> values;
  /// Token t sees the tokens of its own document up to itself.
  std::span<const size_t> document_ends;
  float scale;
  /// The output and the gradients are rounded to this format.
  kernels::Rounding rounding = kernels::Rounding::kFp32;
  /// Random bits are drawn from this key.
  StepKey key = {};
  /// This process's first token has this number in the whole batch.
  size_t first_token = 0;
};

struct AttentionGradients {
  HeadColumns<float> queries;
  HeadColumns<float> keys;
  HeadColumns<float> values;
};

/// A site has the three products of S = Q K^T, or the three of O = P V.
struct AttentionSite {
  precision::LinearPrecision precision;
  std::string name;
};

/// Scores, probabilities and their product with the values are FP32; the output
/// is rounded once. dK and dV are sums over query blocks. Each block's product
/// is an FP32 chain over its queries. Blocks are added in ascending order in
/// FP32, and the sum is rounded once.
///
/// If the precision quantises an operand, each head of a document is computed
/// as a whole. A product without a quantised operand then has the same bits, if
/// all values are finite. One head of one document is one tensor, and a scale
/// may depend on each of its values. Quantisation blocks lie along the
/// contraction of the product that reads the tensor. Sums are those of
/// kernels::Gemm; dK and dV are one chain over the queries if they have a
/// quantised operand. The mean in dS = scale P (dP - mean) is sum(dP P'), where
/// P' is P as the forward product read it. FlashAttention computes this mean as
/// sum(dO O).
///
/// Random bits come from the operand's stream (StateOf), whose site is `site`
/// and kAttentionScores or kAttentionValues. The tensor's number in this stream
/// is (the number of the document's first token in the whole batch) * heads +
/// head.
class AttentionCore {
 public:
  /// One set of buffers serves all layers. Scores are computed in waves, whose
  /// size does not depend on the batch unless one head needs more.
  struct Scratch;

  AttentionCore(const precision::AttentionPrecision& precision,
                const std::string& site, GemmQueue& gemms, Executor& executor,
                Scratch& scratch);

  void Forward(const AttentionInputs& in, const HeadColumns<float>& out);
  /// Recomputes the probabilities (the same bits as in Forward).
  void Backward(const AttentionInputs& in, const HeadColumns<const float>& dout,
                const AttentionGradients& gradients);

  /// Return how many of a layer's two forward and four backward products have a
  /// quantised operand.
  size_t quantized_forward() const;
  size_t quantized_backward() const;

 private:
  const bool quantizes_;
  const AttentionSite scores_;
  const AttentionSite values_;
  GemmQueue& gemms_;
  Executor& executor_;
  Scratch& scratch_;
};

struct AttentionCore::Scratch {
  Memory& memory;
  kernels::ScorePlan plan{memory};
  Matrix<float> probabilities{memory};  // of a wave
  Matrix<float> gradients{memory};
  Matrix<float> read{memory};
  std::vector<kernels::PackedOperand> keys = {};    // of each document and head
  std::vector<kernels::PackedOperand> values = {};  // of each document and head
  std::deque<kernels::OperandState> states = {};
};

}  // namespace isoloss::model
