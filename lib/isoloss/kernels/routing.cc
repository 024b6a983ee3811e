#include "isoloss/kernels/routing.h"

#include <algorithm>
#include <vector>

#include "isoloss/base/error.h"
#include "isoloss/kernels/row_tasks.h"
#include "isoloss/kernels/rowwise.h"

namespace isoloss::kernels {
namespace scalar {
namespace {

/// This constant (torchtitan's) keeps the division by the sum of scores finite.
constexpr float kNormFloor = 1e-20f;

/// Returns the index of the largest value not yet taken, the lower index of
/// equals, and marks it as taken. At least one value must be free.
size_t TakeLargest(std::span<const float> values, std::span<char> taken) {
  size_t best = values.size();
  for (size_t i = 0; i < values.size(); ++i) {
    if (taken[i]) continue;
    if (best == values.size() || values[i] > values[best]) best = i;
  }
  ISOLOSS_ASSERT(best < values.size());
  taken[best] = 1;
  return best;
}

/// The buffers of the choice for one token are kept from token to token.
struct Selection {
  std::vector<float> biased;        // [E]
  std::vector<char> taken;          // [E]
  std::vector<float> group_scores;  // [groups]
  std::vector<char> group_kept;     // [groups]
};

/// Marks the experts outside the best groups as taken. No expert is taken
/// before.
void LimitGroups(const RouterRule& rule, Selection& s) {
  const size_t groups = rule.groups;
  const size_t size = s.taken.size() / groups;
  s.group_scores.resize(groups);
  for (size_t g = 0; g < groups; ++g) {
    const auto scores = std::span(s.biased).subspan(g * size, size);
    const auto taken = std::span(s.taken).subspan(g * size, size);
    const size_t first = TakeLargest(scores, taken);
    s.group_scores[g] = scores[first] + scores[TakeLargest(scores, taken)];
  }
  s.group_kept.assign(groups, 0);
  for (size_t n = 0; n < rule.limited_groups; ++n) {
    TakeLargest(s.group_scores, s.group_kept);
  }
  for (size_t e = 0; e < s.taken.size(); ++e) {
    s.taken[e] = s.group_kept[e / size] == 0 ? 1 : 0;
  }
}

float SumOfChosen(std::span<const float> scores,
                  std::span<const int32_t> expert_ids) {
  float sum = 0.0f;
  for (const int32_t id : expert_ids) sum += scores[static_cast<size_t>(id)];
  return sum + kNormFloor;
}

}  // namespace

void SelectExperts(const RouterRule& rule, std::span<const float> scores,
                   std::span<const float> bias, std::span<int32_t> expert_ids) {
  static thread_local Selection selection;
  Selection& s = selection;
  s.biased.resize(scores.size());
  for (size_t e = 0; e < scores.size(); ++e) s.biased[e] = scores[e] + bias[e];
  s.taken.assign(scores.size(), 0);
  if (rule.groups > 0) LimitGroups(rule, s);
  for (int32_t& id : expert_ids) {
    id = static_cast<int32_t>(TakeLargest(s.biased, s.taken));
  }
}

void CombineWeights(const RouterRule& rule, std::span<const float> scores,
                    std::span<const int32_t> expert_ids,
                    std::span<float> weights) {
  const float sum = rule.normalises ? SumOfChosen(scores, expert_ids) : 1.0f;
  for (size_t k = 0; k < weights.size(); ++k) {
    weights[k] = scores[static_cast<size_t>(expert_ids[k])] / sum * rule.scale;
  }
}

void RouterScoreBackward(const RouterRule& rule, std::span<const float> scores,
                         std::span<const int32_t> expert_ids,
                         std::span<const float> dweights,
                         std::span<float> dlogits) {
  const float sum = rule.normalises ? SumOfChosen(scores, expert_ids) : 1.0f;
  const auto score = [&](size_t k) {
    return scores[static_cast<size_t>(expert_ids[k])];
  };
  // Normalising removes the part of dweights that only scales the sum.
  float mean = 0.0f;
  if (rule.normalises) {
    for (size_t k = 0; k < dweights.size(); ++k) {
      mean += dweights[k] * (score(k) / sum);
    }
  }
  // dlogits holds dscores first: zero for experts that were not chosen.
  std::fill(dlogits.begin(), dlogits.end(), 0.0f);
  for (size_t k = 0; k < dweights.size(); ++k) {
    dlogits[static_cast<size_t>(expert_ids[k])] =
        rule.scale / sum * (dweights[k] - mean);
  }
  if (!rule.softmax) {
    for (size_t e = 0; e < scores.size(); ++e) {
      dlogits[e] *= scores[e] * (1.0f - scores[e]);
    }
  } else {
    const float dot = kernels::RowDot(dlogits, scores);
    for (size_t e = 0; e < scores.size(); ++e) {
      dlogits[e] = scores[e] * (dlogits[e] - dot);
    }
  }
}

}  // namespace scalar

namespace {

template <typename T>
std::span<T> RowOf(MatrixView<T> matrix, size_t row) {
  return {matrix.Row(row), matrix.cols()};
}

}  // namespace

void SelectExperts(const RouterRule& rule, MatrixView<const float> scores,
                   std::span<const float> bias, MatrixView<int32_t> expert_ids,
                   Executor& executor) {
  if (RanElsewhere(&SelectExperts, rule, scores, bias, expert_ids, executor))
    return;
  RequireLength("SelectExperts", "bias", bias.size(), scores.cols());
  ForEachRow(scores.rows(), executor, [&](size_t t) {
    scalar::SelectExperts(rule, RowOf(scores, t), bias, RowOf(expert_ids, t));
  });
}

void CombineWeights(const RouterRule& rule, MatrixView<const float> scores,
                    MatrixView<const int32_t> expert_ids,
                    MatrixView<float> weights, Executor& executor) {
  if (RanElsewhere(&CombineWeights, rule, scores, expert_ids, weights,
                   executor))
    return;
  ForEachRow(scores.rows(), executor, [&](size_t t) {
    scalar::CombineWeights(rule, RowOf(scores, t), RowOf(expert_ids, t),
                           RowOf(weights, t));
  });
}

void RouterScoreBackward(const RouterRule& rule, MatrixView<const float> scores,
                         MatrixView<const int32_t> expert_ids,
                         MatrixView<const float> dweights,
                         MatrixView<float> dlogits, Executor& executor) {
  if (RanElsewhere(&RouterScoreBackward, rule, scores, expert_ids, dweights,
                   dlogits, executor))
    return;
  RequireShape("RouterScoreBackward", "dlogits", dlogits, scores.rows(),
               scores.cols());
  ForEachRow(scores.rows(), executor, [&](size_t t) {
    scalar::RouterScoreBackward(rule, RowOf(scores, t), RowOf(expert_ids, t),
                                RowOf(dweights, t), RowOf(dlogits, t));
  });
}

}  // namespace isoloss::kernels
