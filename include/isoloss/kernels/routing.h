// A router turns its scores into a choice of experts and combine weights; the
// backward pass makes a gradient of the scores. Each function works token by
// token, and `scalar` has its definition for one token.
//
// T = tokens, E = experts, K = slots.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "isoloss/base/executor.h"
#include "isoloss/base/matrix.h"

namespace isoloss::kernels {

struct RouterRule {
  /// 0 means no group limit. Otherwise the experts lie in this number of
  /// consecutive groups, and `limited_groups` of them are kept.
  size_t groups = 0;
  size_t limited_groups = 0;
  bool normalises = true;  ///< weights by their sum
  float scale = 1;
  bool softmax = false;  ///< made the scores; else the sigmoid
};

/// Chooses the K experts by scores + bias, inside the best groups if the rule
/// limits groups (a group counts the sum of its two best). Of equals the lower
/// index wins, for groups and for experts.
/// Shapes   scores [T, E]; bias [E]; expert_ids [T, K] receives ids by falling
///          biased score.
/// Special  NaN compares with nothing, so a scan keeps what it has; still no id
///          is chosen twice or outside the kept groups.
void SelectExperts(const RouterRule& rule, MatrixView<const float> scores,
                   std::span<const float> bias, MatrixView<int32_t> expert_ids,
                   Executor& executor);

/// w_k = s[id_k] (unbiased); if the rule normalises divided by their sum +
/// 1e-20; then times the scale. FP32, sums over slots in slot order.
/// Shapes   scores [T, E]; expert_ids, weights [T, K].
void CombineWeights(const RouterRule& rule, MatrixView<const float> scores,
                    MatrixView<const int32_t> expert_ids,
                    MatrixView<float> weights, Executor& executor);

/// Computes dlogits from dweights, as the adjoint of CombineWeights and of the
/// score function.
/// Shapes   scores, dlogits [T, E]; expert_ids, dweights [T, K].
void RouterScoreBackward(const RouterRule& rule, MatrixView<const float> scores,
                         MatrixView<const int32_t> expert_ids,
                         MatrixView<const float> dweights,
                         MatrixView<float> dlogits, Executor& executor);

namespace scalar {

void SelectExperts(const RouterRule& rule, std::span<const float> scores,
                   std::span<const float> bias, std::span<int32_t> expert_ids);
void CombineWeights(const RouterRule& rule, std::span<const float> scores,
                    std::span<const int32_t> expert_ids,
                    std::span<float> weights);
void RouterScoreBackward(const RouterRule& rule, std::span<const float> scores,
                         std::span<const int32_t> expert_ids,
                         std::span<const float> dweights,
                         std::span<float> dlogits);

}  // namespace scalar
}  // namespace isoloss::kernels
