// Verifies the way of rows to their experts and back.
#pragma once

#include <cstddef>
#include <vector>

#include "isoloss/base/matrix.h"
#include "isoloss/expert_parallel/mesh.h"
#include "isoloss/model/config.h"
#include "isoloss/oracle/estimate.h"
#include "isoloss/step_checks/report_sink.h"
#include "isoloss/step_checks/sampling.h"
#include "isoloss/step_checks/step_record.h"

namespace isoloss::step_checks {

/// Tells which (token, slot) stands in which row of the experts' lists. Rows
/// are ordered by (expert, dispatch unit, token, slot), and each unit's list is
/// filled up to a multiple of the padding.
struct ExpertRows {
  Matrix<int32_t> row_of_slot;        ///< [T, K]
  std::vector<int32_t> token_of_row;  ///< [R]; -1: padding
  std::vector<int32_t> slot_of_row;   ///< [R]
  std::vector<size_t> begins;         ///< [E + 1]
  /// Each unit's list ends here, counted from the expert's first row, [E *
  /// units]. It is empty with one unit.
  std::vector<size_t> unit_ends;

  size_t rows() const { return token_of_row.size(); }
};
/// Errors   FormatError for an id that is no expert.
ExpertRows PlaceRows(MatrixView<const int32_t> expert_ids, size_t experts,
                     const expert_parallel::MeshConfig& mesh);

/// Returns the combine weight of each row of a layer's lists, as topk_weights
/// says; 0 for padding. With WeightSite::kBeforeFc2 the experts apply it.
std::vector<float> ExpertRowWeights(const StepRecord& record,
                                    const model::ModelConfig& config,
                                    size_t layer,
                                    const expert_parallel::MeshConfig& mesh);

/// Returns `rows` after a journey as `payload`; each row is encoded by itself.
/// A chain of single FP32 operations defines a payload, so the result is exact.
/// Errors   ConfigError for a payload that the oracle does not know.
Matrix<float> AfterPayload(MatrixView<const float> rows,
                           const std::string& payload,
                           oracle::Grid activations);

/// Verifies what the experts of "layers.<layer>.moe" got and gave:
///   routed_experts.w1, .w3 activation   rows of ffn_norm, padding +0;
///   routed_experts output               combined outputs of w2;
///   routed_experts.w2 gradient, router.topk_weights gradient
///                                       from the gradient of the layer;
///   ffn_norm gradient                   the experts' dgrads, combined, with
///                                       the shared experts' and the gate's.
/// This covers all exchanges, weight sites and payloads. The order in which
/// ranks and slots are added in FP32 is free, since it only changes roundings.
/// Errors   FormatError if the step did not announce one of them.
void CheckMoe(const StepRecord& record, const model::ModelConfig& config,
              size_t layer, const expert_parallel::MeshConfig& mesh,
              oracle::Grid activations, ReportSink& sink,
              const Sampling& sampling = {});

}  // namespace isoloss::step_checks
