// Attention whose products read quantised operands (docs/model.md, section 16).
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "isoloss/model/attention_core.h"
#include "isoloss/model/operand_states.h"
#include "isoloss/precision/recipe.h"

namespace isoloss::model {

/// As AttentionForward and AttentionBackward, but each head of a document is
/// computed as a whole. A product without a quantised operand has the bits that
/// they give it, if all values are finite.
///
/// A tensor, of which a scale may depend on every value, is one head of one
/// document. Blocks lie along the contraction of the product that reads it.
/// Sums are those of kernels::Gemm; dK and dV are one chain over the queries
/// where they have a quantised operand.
/// The mean in dS = scale P (dP - mean) is sum(dP P'), P' being what the
/// forward product read of P: what FlashAttention computes as sum(dO O).
///
/// Random bits: tensor (number of the document's first token in the whole
/// batch) * heads + head of the operand's stream (StateOf), whose site is
/// `site` and kAttentionScores or kAttentionValues.
/// Memory   of a thread: two matrices of [length, length].
class QuantizedAttention {
 public:
  QuantizedAttention(const precision::AttentionPrecision& precision,
                     std::string site);

  /// `first_token`: of this process, in the batch of all.
  void Forward(const AttentionInputs& in, const StepKey& key,
               size_t first_token, kernels::Rounding rounding,
               const HeadColumns<float>& out, ThreadTeam& team) const;
  void Backward(const AttentionInputs& in, const HeadColumns<const float>& dout,
                const StepKey& key, size_t first_token,
                kernels::Rounding rounding, const HeadColumns<float>& dqueries,
                const HeadColumns<float>& dkeys,
                const HeadColumns<float>& dvalues, ThreadTeam& team) const;

  /// Of the two products of the forward pass, and the four of the other.
  size_t quantized_forward() const;
  size_t quantized_backward() const;

 private:
  const precision::LinearPrecision scores_;
  const precision::LinearPrecision values_;
  const std::string site_;
};

}  // namespace isoloss::model
