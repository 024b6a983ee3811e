// Verifies latent attention between its projections: rotation, softmax
// attention, and their gradients.
#pragma once

#include <cstddef>

#include "isoloss/corpus/batches.h"
#include "isoloss/model/config.h"
#include "isoloss/oracle/estimate.h"
#include "isoloss/step_checks/attention_core_check.h"
#include "isoloss/step_checks/report_sink.h"
#include "isoloss/step_checks/step_record.h"

namespace isoloss::step_checks {

/// Verifies what "layers.<layer>.attention" announced between its GEMMs:
///   q_pe_rotated, k_pe_rotated   from wq (or wq_b) and wkv_a outputs;
///   inner_attention output       from those, k_nope and v of wkv_b's output;
///   inner_attention.q, .k gradients, wkv_b gradient   from wo's dgrad;
///   wq (or wq_b) gradient        inner_attention.q's, rotated back;
///   wkv_a gradient               columns of k_pe only: the sum over heads,
///                                rounded, rotated back, rounded.
/// Probabilities are recomputed from queries and keys, with their errors.
/// Errors   FormatError if the step did not announce one of them.
/// Cost     O(sum over documents of length^2 * heads * width).
void CheckAttention(const StepRecord& record, const model::ModelConfig& config,
                    size_t layer, const corpus::Batch& batch,
                    oracle::Grid activations, ReportSink& sink,
                    const AttentionFormats& formats = {});

}  // namespace isoloss::step_checks
