// Verifies softmax attention and its gradients.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "isoloss/corpus/batches.h"
#include "isoloss/model/config.h"
#include "isoloss/oracle/estimate.h"
#include "isoloss/precision/recipe.h"
#include "isoloss/step_checks/report_sink.h"
#include "isoloss/step_checks/sampling.h"
#include "isoloss/step_checks/step_record.h"

namespace isoloss::step_checks {

/// Returns the factor on q.k: width^-1/2, with YaRN's mscale folded in.
float OracleSoftmaxScale(const model::ModelConfig& config);

/// Says how the products' operands are quantised. `seed` and `step` select the
/// random bits. The default quantises nothing.
struct AttentionFormats {
  precision::AttentionPrecision precision = {};
  uint64_t seed = 0;
  uint64_t step = 0;
  Sampling sampling = {};
};

/// Verifies what the attention of that name ("layers.0.attention.") announced
/// of its core. This is inner_attention's output, the gradients of queries and
/// keys, and the columns of wkv_b's gradient that belong to values.
///
/// Probabilities are recomputed from queries and keys, with their errors. A
/// recipe may quantise P or dS, which no run announces; an error may then
/// change a code (QuantizedUncertain).
///
/// A sample has the outputs of drawn queries and the gradients of drawn keys,
/// each under one head. If the recipe quantises, it has the whole document of a
/// drawn query under its head.
/// Errors   FormatError if the step did not announce one of them.
/// Cost     O(sum over documents of length^2 * heads * width); memory of
///          O(length * width), of O(length^2) where the recipe quantises.
void CheckAttentionCore(const StepRecord& record,
                        const model::ModelConfig& config,
                        const std::string& attention,
                        const corpus::Batch& batch, oracle::Grid activations,
                        ReportSink& sink, const AttentionFormats& formats);

}  // namespace isoloss::step_checks
