// The router's choice for one token, as routing.h defines it. It is constexpr,
// so that kernels of a device can share this text.
#pragma once

#include <cstddef>
#include <cstdint>

#include "isoloss/kernels/lanes.h"
#include "isoloss/kernels/routing.h"

namespace isoloss::kernels {

/// This constant (torchtitan's) keeps the division by the sum of scores finite.
inline constexpr float kNormFloor = 1e-20f;

/// Returns the index of the largest value that is not marked, the lower index
/// of equals, and marks it. At least one value must be free. `value(i)` and
/// `marks[i]` are of element i.
template <typename Value>
constexpr size_t TakeLargest(size_t count, const Value& value, char* marks) {
  size_t best = count;
  for (size_t i = 0; i < count; ++i) {
    if (marks[i] != 0) continue;
    if (best == count || value(i) > value(best)) best = i;
  }
  marks[best] = 1;
  return best;
}

/// Marks the experts outside the best groups as taken; no expert is taken
/// before. A group counts the sum of its two best scores.
/// Shapes   taken [experts]; group_scores, kept [groups], both written.
template <typename Value>
constexpr void LimitGroups(const RouterRule& rule, size_t experts,
                           const Value& biased, char* taken,
                           float* group_scores, char* kept) {
  const size_t size = experts / rule.groups;
  for (size_t g = 0; g < rule.groups; ++g) {
    const auto of_group = [&biased, g, size](size_t i) {
      return biased(g * size + i);
    };
    char* const marks = taken + g * size;
    const float best = of_group(TakeLargest(size, of_group, marks));
    group_scores[g] = best + of_group(TakeLargest(size, of_group, marks));
    kept[g] = 0;
  }
  for (size_t n = 0; n < rule.limited_groups; ++n) {
    TakeLargest(
        rule.groups, [group_scores](size_t g) { return group_scores[g]; },
        kept);
  }
  for (size_t e = 0; e < experts; ++e) taken[e] = kept[e / size] == 0 ? 1 : 0;
}

/// Chooses a token's `slots` experts.
/// Shapes   scores, bias, taken [experts]; group_scores, kept [groups]. The
///          last three are room to work in.
constexpr void SelectExpertsOfToken(const RouterRule& rule, size_t experts,
                                    const float* scores, const float* bias,
                                    size_t slots, int32_t* expert_ids,
                                    char* taken, float* group_scores,
                                    char* kept) {
  const auto biased = [scores, bias](size_t e) { return scores[e] + bias[e]; };
  for (size_t e = 0; e < experts; ++e) taken[e] = 0;
  if (rule.groups > 0) {
    LimitGroups(rule, experts, biased, taken, group_scores, kept);
  }
  for (size_t k = 0; k < slots; ++k) {
    expert_ids[k] = static_cast<int32_t>(TakeLargest(experts, biased, taken));
  }
}

/// Returns what weights are divided by: the sum of the chosen scores, if the
/// rule normalises.
constexpr float WeightDivisor(const RouterRule& rule, const float* scores,
                              const int32_t* expert_ids, size_t slots) {
  if (!rule.normalises) return 1.0f;
  float sum = 0.0f;
  for (size_t k = 0; k < slots; ++k) {
    sum += scores[static_cast<size_t>(expert_ids[k])];
  }
  return sum + kNormFloor;
}

constexpr void CombineWeightsOfToken(const RouterRule& rule,
                                     const float* scores,
                                     const int32_t* expert_ids, size_t slots,
                                     float* weights) {
  const float sum = WeightDivisor(rule, scores, expert_ids, slots);
  for (size_t k = 0; k < slots; ++k) {
    weights[k] = scores[static_cast<size_t>(expert_ids[k])] / sum * rule.scale;
  }
}

constexpr void RouterScoreBackwardOfToken(const RouterRule& rule,
                                          size_t experts, const float* scores,
                                          const int32_t* expert_ids,
                                          size_t slots, const float* dweights,
                                          float* dlogits) {
  const float sum = WeightDivisor(rule, scores, expert_ids, slots);
  // Normalising removes the part of dweights that only scales the sum.
  float mean = 0.0f;
  for (size_t k = 0; rule.normalises && k < slots; ++k) {
    mean += dweights[k] * (scores[static_cast<size_t>(expert_ids[k])] / sum);
  }
  // dlogits holds dscores first: zero for experts that were not chosen.
  for (size_t e = 0; e < experts; ++e) dlogits[e] = 0.0f;
  for (size_t k = 0; k < slots; ++k) {
    dlogits[static_cast<size_t>(expert_ids[k])] =
        rule.scale / sum * (dweights[k] - mean);
  }
  if (!rule.softmax) {
    for (size_t e = 0; e < experts; ++e) {
      dlogits[e] *= scores[e] * (1.0f - scores[e]);
    }
    return;
  }
  const float dot = LaneDot<float>(
      experts, [dlogits](size_t e) { return dlogits[e]; },
      [scores](size_t e) { return scores[e]; });
  for (size_t e = 0; e < experts; ++e) {
    dlogits[e] = scores[e] * (dlogits[e] - dot);
  }
}

}  // namespace isoloss::kernels
