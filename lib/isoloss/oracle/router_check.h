// The oracle of a router: scores, the choice of experts, combine weights, and
// the gradient of the logits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "isoloss/base/matrix.h"
#include "isoloss/model/config.h"
#include "isoloss/model/routing_mode.h"
#include "isoloss/oracle/report_sink.h"
#include "isoloss/oracle/step_record.h"

namespace isoloss::oracle {

/// The experts of one token in slot order, by the rule of docs/model.md,
/// section 6, in FP32; of equals the lower index, for groups and experts.
/// Shapes   scores, bias [E].
std::vector<int32_t> ChooseExperts(const model::ModelConfig& config,
                                   std::span<const float> scores,
                                   std::span<const float> bias);

/// How a token's experts compare with those that the oracle chooses.
enum class ChoiceClass {
  kEqual,
  kFlip,   ///< some choice within the rounding of scores and sums gives them
  kOther,  ///< no such choice
};

/// `expert_ids` [K], in slot order, against scores and biases [E] as announced.
/// A step of the choice is explained by rounding if the taken (group or
/// expert) falls short of the best by no more than the FP32 sums may be off.
/// Exact ties are decided by the rule (the lower index), not by rounding.
/// Special  `kOther` also for ids that repeat or are out of range.
ChoiceClass ClassifyChoice(const model::ModelConfig& config,
                           std::span<const float> scores,
                           std::span<const float> bias,
                           std::span<const int32_t> expert_ids);

/// What decides which experts the tokens of a step go to.
struct RoutingRule {
  model::RoutingMode mode = model::RoutingMode::kLearned;
  /// [E], before the step's update; kLearned only.
  std::span<const float> bias = {};
  /// [T, K], of the log; kReplay only.
  MatrixView<const int32_t> replayed = {};
};

/// The sum over tokens of a digest of number and choice.
/// Shapes   expert_ids [T, K], in slot order.
uint64_t RoutingDigestOf(MatrixView<const int32_t> expert_ids);

/// What the router of "layers.<layer>.moe" announced: scores, expert ids (a row
/// of the routing columns), topk_weights, the gate's gradient; and the counts
/// that were logged, as tensor "<router>_tokens_per_expert".
/// Shapes   tokens_per_expert [E].
/// Errors   FormatError if the step did not announce one of them.
void CheckRouter(const StepRecord& record, const model::ModelConfig& config,
                 size_t layer, const RoutingRule& rule,
                 std::span<const int64_t> tokens_per_expert, ReportSink& sink);

}  // namespace isoloss::oracle
