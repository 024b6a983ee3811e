// Verifies a router: scores, the choice of experts, combine weights, and the
// gradient of the logits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "isoloss/base/matrix.h"
#include "isoloss/model/config.h"
#include "isoloss/model/routing_mode.h"
#include "isoloss/step_checks/report_sink.h"
#include "isoloss/step_checks/step_record.h"

namespace isoloss::step_checks {

/// Returns the experts of one token in slot order, by the FP32 rule of
/// docs/model.md, section 6. Of equal groups or experts the lower index wins.
/// Shapes   scores, bias [E].
std::vector<int32_t> ChooseExperts(const model::ModelConfig& config,
                                   std::span<const float> scores,
                                   std::span<const float> bias);

/// Tells how a token's experts compare with those that the oracle chooses.
enum class ChoiceClass {
  kEqual,
  kFlip,   ///< rounding of scores and sums explains the choice
  kOther,  ///< rounding does not explain the choice
};

/// Compares `expert_ids` [K], in slot order, with the choice by the announced
/// scores and biases [E]. Rounding explains a chosen group or expert if it
/// falls short of the best by at most the error of the FP32 sums. Exact ties
/// are decided by the rule (the lower index), not by rounding.
/// Special  `kOther` also for ids that repeat or are out of range.
ChoiceClass ClassifyChoice(const model::ModelConfig& config,
                           std::span<const float> scores,
                           std::span<const float> bias,
                           std::span<const int32_t> expert_ids);

/// Decides to which experts the tokens of a step go.
struct RoutingRule {
  model::RoutingMode mode = model::RoutingMode::kLearned;
  /// It is [E], before the step's update; only kLearned uses it.
  std::span<const float> bias = {};
  /// It is [T, K] and comes from the log; only kReplay uses it.
  MatrixView<const int32_t> replayed = {};
};

/// Returns the sum over tokens of a digest of number and choice.
/// Shapes   expert_ids [T, K], in slot order.
uint64_t RoutingDigestOf(MatrixView<const int32_t> expert_ids);

/// Verifies what the router of "layers.<layer>.moe" announced: scores, expert
/// ids (a row of the routing columns), topk_weights and the gate's gradient.
/// The logged counts are compared as tensor "<router>_tokens_per_expert".
/// Shapes   tokens_per_expert [E].
/// Errors   FormatError if the step did not announce one of them.
void CheckRouter(const StepRecord& record, const model::ModelConfig& config,
                 size_t layer, const RoutingRule& rule,
                 std::span<const int64_t> tokens_per_expert, ReportSink& sink);

}  // namespace isoloss::step_checks
