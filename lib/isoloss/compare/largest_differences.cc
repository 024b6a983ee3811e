#include "isoloss/compare/largest_differences.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "isoloss/compare/common_steps.h"
#include "isoloss/compare/tensor_divergence.h"

namespace isoloss::compare {
namespace {

double Relative(double a, double b) {
  if (std::isnan(a) && std::isnan(b)) return 0;
  if (a == b) return 0;
  const double relative =
      std::fabs(a - b) / std::max(std::fabs(a), std::fabs(b));
  return std::isnan(relative) ? std::numeric_limits<double>::infinity()
                              : relative;
}

/// Names and steps of one of the two logs' groups.
struct Side {
  const std::vector<int64_t>& step;
  const std::vector<std::string>& names;
};

class Ranking {
 public:
  Ranking(Side a, Side b)
      : a_(a),
        b_(b),
        steps_(CommonSteps(a.step, b.step)),
        names_(MatchNames(a.names, b.names).shared) {}

  /// [rows, names] each; an empty array has nothing to rank. `logged` says of
  /// a row and place of each side whether there are values.
  template <typename Logged>
  void Add(const std::string& quantity, const std::vector<double>& a,
           const std::vector<double>& b, const Logged& logged) {
    const size_t width_a = a_.names.size();
    const size_t width_b = b_.names.size();
    if (a.size() < a_.step.size() * width_a ||
        b.size() < b_.step.size() * width_b) {
      return;
    }
    for (const SharedName& name : names_) {
      LargestDifference worst{a_.names[name.a], quantity, 0, 0, 0, 0};
      for (const int64_t step : steps_) {
        const size_t row_a = *RowOfStep(a_.step, step);
        const size_t row_b = *RowOfStep(b_.step, step);
        if (!logged(row_a, row_b, name)) continue;
        const double x = a[row_a * width_a + name.a];
        const double y = b[row_b * width_b + name.b];
        const double relative = Relative(x, y);
        if (relative <= worst.relative) continue;
        worst.step = step;
        worst.a = x;
        worst.b = y;
        worst.relative = relative;
      }
      if (worst.relative > 0) all_.push_back(worst);
    }
  }

  std::vector<LargestDifference> Top(size_t count) {
    std::stable_sort(
        all_.begin(), all_.end(),
        [](const LargestDifference& x, const LargestDifference& y) {
          return x.relative > y.relative;
        });
    all_.resize(std::min(all_.size(), count));
    return all_;
  }

 private:
  Side a_;
  Side b_;
  std::vector<int64_t> steps_;
  std::vector<SharedName> names_;
  std::vector<LargestDifference> all_;
};

}  // namespace

std::vector<LargestDifference> LargestParameterDifferences(
    const runlog::RunLog& a, const runlog::RunLog& b, size_t top) {
  const auto& of_a = a.parameters;
  const auto& of_b = b.parameters;
  Ranking ranking({of_a.step, of_a.names}, {of_b.step, of_b.names});
  const auto always = [](size_t, size_t, const SharedName&) { return true; };
  ranking.Add("grad_norm", of_a.grad_norm, of_b.grad_norm, always);
  ranking.Add("update_ratio", of_a.update_ratio, of_b.update_ratio, always);
  return ranking.Top(top);
}

std::vector<LargestDifference> LargestTensorDifferences(const runlog::RunLog& a,
                                                        const runlog::RunLog& b,
                                                        size_t top) {
  Ranking ranking({a.tensors.step, a.tensors.names},
                  {b.tensors.step, b.tensors.names});
  const auto logged = [&](size_t row_a, size_t row_b, const SharedName& name) {
    return HasStatistics(a.tensors, row_a, name.a) &&
           HasStatistics(b.tensors, row_b, name.b);
  };
  for (const size_t s :
       {runlog::kStat_l2_norm, runlog::kStat_cur_amax, runlog::kStat_std}) {
    ranking.Add(runlog::kTensorStatistics[s].name, a.tensors.statistics[s],
                b.tensors.statistics[s], logged);
  }
  return ranking.Top(top);
}

}  // namespace isoloss::compare
