#include "isoloss/operations/expert_groups.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "isoloss/base/error.h"
#include "isoloss/operations/estimates.h"

namespace isoloss::operations {
namespace {

double LargestMagnitude(std::span<const double> sums) {
  double most = 0;
  for (const double sum : sums) most = std::max(most, std::fabs(sum));
  return most;
}

/// Returns the sum of the two largest numbers of a group, or its only one.
double ScoreOf(std::span<const double> group) {
  std::vector<double> sums(group.begin(), group.end());
  std::ranges::sort(sums, std::greater());
  return sums.size() < 2 ? sums[0] : sums[0] + sums[1];
}

}  // namespace

ExpertGroups::ExpertGroups(const OperationCase& given) {
  const double groups = given.operation.Number("groups", 1);
  const double limited = given.operation.Number("limited_groups", groups);
  const auto experts =
      static_cast<double>(given.operation.Find("scores")->extent[1]);
  if (!(groups >= 1 && limited >= 1 && limited <= groups &&
        groups <= experts) ||
      std::fmod(experts, groups) != 0) {
    ThrowError(ErrorKind::kFormat,
               "{}: groups is {} and limited_groups {} of {} experts, but "
               "groups must divide the experts, and a token choose from 1 to "
               "all of them. Give the router's own numbers.",
               given.where, groups, limited, experts);
  }
  groups_ = static_cast<size_t>(groups);
  limited_ = static_cast<size_t>(limited);
}

std::vector<bool> ExpertGroups::Open(std::span<const double> sums,
                                     std::span<const int64_t> chosen) const {
  if (!limits()) return std::vector<bool>(sums.size(), true);
  const size_t size = sums.size() / groups_;
  std::vector<double> scores(groups_);
  for (size_t g = 0; g < groups_; ++g) {
    scores[g] = ScoreOf(sums.subspan(g * size, size));
  }
  std::vector<double> ranked = scores;
  std::ranges::sort(ranked, std::greater());
  const double last = ranked[limited_ - 1];
  const double next = ranked[limited_];
  // Each sum of score and bias is rounded to FP32, and so is the sum of two:
  // three roundings of at most twice the largest on either side.
  const double near = 12 * oracle::kUnitRoundoff * LargestMagnitude(sums);
  std::vector<bool> taken(groups_, false);
  for (const int64_t expert : chosen) {
    taken[static_cast<size_t>(expert) / size] = true;
  }
  std::vector<bool> open(sums.size());
  for (size_t e = 0; e < sums.size(); ++e) {
    const size_t group = e / size;
    const bool inside = scores[group] >= last;
    const bool at_limit =
        last - next <= near && std::fabs(scores[group] - last) <= near;
    open[e] = at_limit ? static_cast<bool>(taken[group]) : inside;
  }
  return open;
}

}  // namespace isoloss::operations
