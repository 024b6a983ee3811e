#include "isoloss/gate/seed_watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "isoloss/base/error.h"
#include "isoloss/compare/final_window.h"
#include "isoloss/stats/equivalence.h"
#include "isoloss/stats/group_sequential.h"
#include "isoloss/stats/mean_interval.h"
#include "isoloss/stats/summary.h"

namespace isoloss::gate {
namespace {

bool IsFinite(const runlog::StepRow& row) {
  return std::isfinite(row.loss_nats) && std::isfinite(row.grad_norm) &&
         row.nonfinite_gradients == 0;
}

std::string NotFinite(const char* arm, const runlog::StepRow& row) {
  return fmt::format(
      "the {} has loss {}, gradient norm {} and {} gradient elements that are "
      "not finite",
      arm, row.loss_nats, row.grad_norm, row.nonfinite_gradients);
}

}  // namespace

PairWatch::PairWatch(const Policy& policy, int64_t steps)
    : policy_(policy),
      steps_(steps),
      window_(static_cast<int64_t>(compare::WindowLength(
          static_cast<size_t>(steps), policy.window_share))) {}

std::string PairWatch::Add(const runlog::StepRow& baseline,
                           const runlog::StepRow& candidate) {
  if (baseline.step != candidate.step || baseline.step != step_ + 1) {
    ThrowError(ErrorKind::kConfig,
               "watch of a pair: got step {} of the baseline and {} of the "
               "candidate after step {}, but both arms' steps must be the same "
               "and ascend by one. Feed each step once.",
               baseline.step, candidate.step, step_);
  }
  step_ = baseline.step;
  if (!IsFinite(baseline)) return NotFinite("baseline", baseline);
  if (!IsFinite(candidate)) return NotFinite("candidate", candidate);
  if (step_ == 1) first_loss_ = candidate.loss_nats;
  if (step_ > steps_ - window_) {
    window_sum_ +=
        compare::PercentDifference(candidate.loss_nats, baseline.loss_nats);
  }
  return AddToBatch(baseline.loss_nats, candidate.loss_nats);
}

std::string PairWatch::AddToBatch(double baseline, double candidate) {
  batch_baseline_ += baseline;
  batch_candidate_ += candidate;
  if (step_ % policy_.sequential_batch != 0) return "";
  const double steps = static_cast<double>(policy_.sequential_batch);
  const double mean = batch_candidate_ / steps;
  const double percent =
      compare::PercentDifference(batch_candidate_, batch_baseline_);
  batch_baseline_ = 0;
  batch_candidate_ = 0;
  if (!(mean > first_loss_ &&
        percent > policy_.gross_factor * policy_.margin_percent)) {
    return "";
  }
  return fmt::format(
      "the candidate diverges: its mean loss over {} steps is {:.4f} nats, "
      "{:.3g} % above the baseline's and above the {:.4f} nats of its first "
      "step",
      policy_.sequential_batch, mean, percent, first_loss_);
}

std::optional<double> PairWatch::window_percent() const {
  if (step_ < steps_) return std::nullopt;
  return window_sum_ / static_cast<double>(window_);
}

WatchLevels LevelsOfWatch(const Policy& policy, int64_t planned_pairs,
                          int64_t candidates) {
  constexpr int64_t kMostLooks = 32;
  const double sides = policy.one_sided ? 1 : 2;
  const double alpha = policy.sequential_alpha / sides /
                       static_cast<double>(std::max<int64_t>(1, candidates));
  stats::LookLevels levels(stats::Spending::kPocock, alpha,
                           std::max<int64_t>(1, planned_pairs));
  const int64_t every = (planned_pairs + kMostLooks - 1) / kMostLooks;
  WatchLevels watch;
  for (int64_t pairs = 2; pairs <= planned_pairs; ++pairs) {
    if (pairs < policy.min_seeds) continue;
    if (pairs % every == 0) watch[pairs] = levels.Next(pairs);
  }
  return watch;
}

std::string SeedWatch::Add(double percent) {
  percent_.push_back(percent);
  const auto pairs = static_cast<int64_t>(percent_.size());
  const auto level = levels_.find(pairs);
  if (level == levels_.end() || level->second == 0) return "";
  const double alpha = level->second;
  const stats::EquivalenceOptions options{.margin = policy_.margin_percent,
                                          .alpha = alpha,
                                          .one_sided = policy_.one_sided};
  const stats::MeanInterval interval =
      stats::IntervalOfMean(stats::Summarize(percent_), alpha);
  if (stats::WhereIs(interval.lower, interval.upper, options) !=
      stats::Equivalence::kOutside) {
    return "";
  }
  return fmt::format(
      "the mean difference of the final windows of {} pairs lies in [{:+.3f} "
      "%, {:+.3f} %], beyond {}{:g} % ({:g} % interval)",
      pairs, interval.lower, interval.upper, policy_.one_sided ? "+" : "+-",
      policy_.margin_percent, 100 * (1 - 2 * alpha));
}

}  // namespace isoloss::gate
