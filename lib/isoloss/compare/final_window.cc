#include "isoloss/compare/final_window.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <span>

#include "isoloss/base/error.h"
#include "isoloss/stats/summary.h"

namespace isoloss::compare {
namespace {

/// Other projects call the mean over this many last steps the difference.
constexpr size_t kLastSteps = 100;

double MeanOfLast(const std::vector<double>& values, size_t count) {
  return stats::Mean(std::span(values).last(std::min(count, values.size())));
}

SeedDifference Compare(const SeedPair& pair, size_t window, size_t last) {
  const auto& baseline = pair.baseline->log;
  const auto& candidate = pair.candidate->log;
  const auto& base_loss = baseline.steps.loss_nats;
  const auto& cand_loss = candidate.steps.loss_nats;
  ISOLOSS_ASSERT(base_loss.size() == cand_loss.size());

  SeedDifference result;
  result.seed = pair.seed;
  std::vector<double> gap(base_loss.size());
  std::vector<double> relative(base_loss.size());
  std::vector<double> squared(base_loss.size());
  for (size_t i = 0; i < gap.size(); ++i) {
    gap[i] = cand_loss[i] - base_loss[i];
    relative[i] = gap[i] / base_loss[i];
    squared[i] = gap[i] * gap[i];
    if (i == 0 || std::fabs(gap[i]) > result.max_gap_nats) {
      result.max_gap_nats = std::fabs(gap[i]);
      result.max_gap_step = baseline.steps.step[i];
    }
  }
  result.final_window = MeanOfLast(relative, window);
  result.final_window_nats = MeanOfLast(gap, window);
  result.last_steps = MeanOfLast(relative, last);
  result.last_steps_nats = MeanOfLast(gap, last);
  result.last_100_nats = MeanOfLast(gap, kLastSteps);
  result.trajectory_rmse_nats = std::sqrt(stats::Mean(squared));
  if (!baseline.eval.loss_nats.empty()) {
    const double held_out = baseline.eval.loss_nats.back();
    result.held_out_nats = candidate.eval.loss_nats.back() - held_out;
    result.held_out = *result.held_out_nats / held_out;
  }
  return result;
}

/// Returns a figure of each seed that has it, times `factor`.
std::vector<double> OfSeeds(
    const FinalWindow& window, double factor,
    const std::function<std::optional<double>(const SeedDifference&)>& figure) {
  std::vector<double> values;
  for (const SeedDifference& seed : window.seeds) {
    if (const auto value = figure(seed)) values.push_back(factor * *value);
  }
  return values;
}

}  // namespace

std::vector<double> FinalWindow::Percents() const {
  return OfSeeds(*this, 100, &SeedDifference::final_window);
}

std::vector<double> FinalWindow::Gaps() const {
  return OfSeeds(*this, 1, &SeedDifference::final_window_nats);
}

std::vector<double> FinalWindow::LastPercents() const {
  return OfSeeds(*this, 100, &SeedDifference::last_steps);
}

std::vector<double> FinalWindow::LastGaps() const {
  return OfSeeds(*this, 1, &SeedDifference::last_steps_nats);
}

std::vector<double> FinalWindow::HeldOutPercents() const {
  return OfSeeds(*this, 100, &SeedDifference::held_out);
}

std::vector<double> FinalWindow::HeldOutGaps() const {
  return OfSeeds(*this, 1, &SeedDifference::held_out_nats);
}

size_t WindowLength(size_t steps, double share) {
  const double length = std::ceil(share * static_cast<double>(steps));
  return std::min(steps, std::max<size_t>(1, static_cast<size_t>(length)));
}

FinalWindow CompareFinalWindow(const Pairing& pairing, double window_share) {
  ISOLOSS_ASSERT(!pairing.pairs.empty());
  const auto& first = pairing.pairs[0].baseline->log;
  const auto& steps = first.steps.step;
  const size_t window = WindowLength(steps.size(), window_share);
  const size_t last = WindowLength(steps.size(), kLastShare);
  FinalWindow result;
  result.first_step = steps[steps.size() - window];
  result.first_of_last_steps = steps[steps.size() - last];
  result.last_step = steps.back();
  result.last_100_steps = std::min(kLastSteps, steps.size());
  if (!first.eval.step.empty()) result.held_out_step = first.eval.step.back();
  for (const SeedPair& pair : pairing.pairs) {
    result.seeds.push_back(Compare(pair, window, last));
  }
  return result;
}

}  // namespace isoloss::compare
