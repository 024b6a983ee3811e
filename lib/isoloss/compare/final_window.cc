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

/// Returns how many steps each logged step stands for.
std::vector<double> StepsOfRows(std::span<const int64_t> steps) {
  std::vector<double> counts;
  for (size_t i = 0; i < steps.size(); ++i) {
    const size_t at = i == 0 && steps.size() > 1 ? 1 : i;
    counts.push_back(at == 0 ? 1
                             : static_cast<double>(steps[at] - steps[at - 1]));
  }
  return counts;
}

/// Returns the mean of the last `count` values, each with its weight.
double MeanOfLast(const std::vector<double>& values,
                  const std::vector<double>& weights, size_t count) {
  count = std::min(count, values.size());
  const auto last = std::span(values).last(count);
  const auto of_last = std::span(weights).last(count);
  if (std::ranges::adjacent_find(of_last, std::not_equal_to<>()) ==
      of_last.end()) {
    return stats::Mean(last);
  }
  double sum = 0;
  double all = 0;
  for (size_t i = 0; i < count; ++i) {
    sum += of_last[i] * last[i];
    all += of_last[i];
  }
  return sum / all;
}

/// Returns how many of `last` logged steps an end of them has: each end half as
/// many as the one before, and one at least.
size_t RowsOfEnd(size_t last, size_t end) {
  return std::max<size_t>(last >> (end + 1), 1);
}

/// `ends` is the number of ends of the last steps.
SeedDifference Compare(const SeedPair& pair, double window_share, size_t ends) {
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
  const std::vector<double> weights = StepsOfRows(baseline.steps.step);
  const size_t window = RowsOfWindow(baseline.steps.step, window_share);
  const size_t last = RowsOfWindow(baseline.steps.step, kLastShare);
  result.final_window = MeanOfLast(relative, weights, window);
  result.final_window_nats = MeanOfLast(gap, weights, window);
  result.last_steps = MeanOfLast(relative, weights, last);
  result.last_steps_nats = MeanOfLast(gap, weights, last);
  for (size_t end = 0; end < ends; ++end) {
    const size_t rows = RowsOfEnd(last, end);
    result.ends.push_back(MeanOfLast(relative, weights, rows));
    result.ends_nats.push_back(MeanOfLast(gap, weights, rows));
  }
  result.last_100_nats = MeanOfLast(gap, weights, kLastSteps);
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

std::vector<double> FinalWindow::EndPercents(size_t end) const {
  return OfSeeds(*this, 100,
                 [end](const SeedDifference& seed) { return seed.ends[end]; });
}

std::vector<double> FinalWindow::EndGaps(size_t end) const {
  return OfSeeds(*this, 1, [end](const SeedDifference& seed) {
    return seed.ends_nats[end];
  });
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

size_t RowsOfWindow(std::span<const int64_t> steps, double share) {
  ISOLOSS_ASSERT(!steps.empty());
  const std::vector<double> counts = StepsOfRows(steps);
  double all = 0;
  for (const double count : counts) all += count;
  double covered = 0;
  size_t rows = 0;
  while (rows < steps.size() && (rows == 0 || covered < share * all)) {
    covered += counts[steps.size() - 1 - rows];
    ++rows;
  }
  return rows;
}

FinalWindow CompareFinalWindow(const Pairing& pairing, double window_share) {
  ISOLOSS_ASSERT(!pairing.pairs.empty());
  const auto& first = pairing.pairs[0].baseline->log;
  const auto& steps = first.steps.step;
  const size_t window = RowsOfWindow(steps, window_share);
  const size_t last = RowsOfWindow(steps, kLastShare);
  FinalWindow result;
  result.first_step = steps[steps.size() - window];
  result.first_of_last_steps = steps[steps.size() - last];
  for (size_t end = 0; last >> (end + 1) > 0; ++end) {
    result.ends.push_back(steps[steps.size() - RowsOfEnd(last, end)]);
  }
  result.last_step = steps.back();
  result.last_100_steps = std::min(kLastSteps, steps.size());
  if (!first.eval.step.empty()) result.held_out_step = first.eval.step.back();
  for (const SeedPair& pair : pairing.pairs) {
    result.seeds.push_back(Compare(pair, window_share, result.ends.size()));
  }
  return result;
}

}  // namespace isoloss::compare
