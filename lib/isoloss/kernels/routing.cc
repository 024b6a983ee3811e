#include "isoloss/kernels/routing.h"

#include <vector>

#include "isoloss/base/error.h"
#include "isoloss/kernels/route_token.h"
#include "isoloss/kernels/row_tasks.h"

namespace isoloss::kernels {
namespace scalar {
void SelectExperts(const RouterRule& rule, std::span<const float> scores,
                   std::span<const float> bias, std::span<int32_t> expert_ids) {
  const size_t of_group = rule.groups == 0 ? 0 : scores.size() / rule.groups;
  const size_t free =
      rule.groups == 0 ? scores.size() : of_group * rule.limited_groups;
  ISOLOSS_ASSERT(expert_ids.size() <= free &&
                 (rule.groups == 0 || of_group >= 2));
  static thread_local std::vector<char> marks;
  static thread_local std::vector<float> group_scores;
  marks.resize(scores.size() + rule.groups);
  group_scores.resize(rule.groups);
  SelectExpertsOfToken(rule, scores.size(), scores.data(), bias.data(),
                       expert_ids.size(), expert_ids.data(), marks.data(),
                       group_scores.data(), marks.data() + scores.size());
}

void CombineWeights(const RouterRule& rule, std::span<const float> scores,
                    std::span<const int32_t> expert_ids,
                    std::span<float> weights) {
  CombineWeightsOfToken(rule, scores.data(), expert_ids.data(), weights.size(),
                        weights.data());
}

void RouterScoreBackward(const RouterRule& rule, std::span<const float> scores,
                         std::span<const int32_t> expert_ids,
                         std::span<const float> dweights,
                         std::span<float> dlogits) {
  RouterScoreBackwardOfToken(rule, scores.size(), scores.data(),
                             expert_ids.data(), dweights.size(),
                             dweights.data(), dlogits.data());
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
  RequireLength("SelectExperts", "bias", bias.size(), scores.cols());
  if (RanElsewhere(&SelectExperts, rule, scores, bias, expert_ids, executor))
    return;
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
  RequireShape("RouterScoreBackward", "dlogits", dlogits, scores.rows(),
               scores.cols());
  if (RanElsewhere(&RouterScoreBackward, rule, scores, expert_ids, dweights,
                   dlogits, executor))
    return;
  ForEachRow(scores.rows(), executor, [&](size_t t) {
    scalar::RouterScoreBackward(rule, RowOf(scores, t), RowOf(expert_ids, t),
                                RowOf(dweights, t), RowOf(dlogits, t));
  });
}

}  // namespace isoloss::kernels
