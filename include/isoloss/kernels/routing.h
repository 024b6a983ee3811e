// What a router makes of its scores: the choice of experts, combine weights and
// their gradient. Each function works token by token, and `scalar` has its
// definition for one of them.
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
  /// 0: no group limit. Otherwise experts lie in so many consecutive groups, of
  /// which `limited_groups` are kept.
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

/// Adjoint of CombineWeights and of the score function: dlogits from dweights.
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
