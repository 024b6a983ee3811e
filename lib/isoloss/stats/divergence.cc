#include "isoloss/stats/divergence.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace isoloss::stats {
namespace {

constexpr int64_t kParts = 10;
constexpr double kLost = 0.1;
constexpr double kErrors = 6;

/// Returns the standard error of a window's mean by second differences, which
/// no steady fall alters. Second differences of independent losses have sqrt(6)
/// standard deviations. Their median magnitude, on which jumps have no effect,
/// is 0.6745 of that.
double ErrorOfWindow(std::span<const double> losses, size_t length) {
  if (losses.size() < 3) return 0;
  std::vector<double> differences;
  for (size_t i = 2; i < losses.size(); ++i) {
    differences.push_back(
        std::fabs(losses[i] - 2 * losses[i - 1] + losses[i - 2]));
  }
  const auto middle =
      differences.begin() + static_cast<long>(differences.size() / 2);
  std::nth_element(differences.begin(), middle, differences.end());
  return *middle / (0.6745 * std::sqrt(6.0)) /
         std::sqrt(static_cast<double>(length));
}

/// Returns the means of windows; the first is that of steps 1 to length.
std::vector<double> WindowMeans(std::span<const double> losses, size_t length) {
  std::vector<double> means;
  double sum = 0;
  for (size_t end = 1; end <= losses.size(); ++end) {
    sum += losses[end - 1];
    if (end > length) sum -= losses[end - 1 - length];
    if (end >= length) means.push_back(sum / static_cast<double>(length));
  }
  return means;
}

/// Returns the first step of the first window from which on all are bad.
std::optional<int64_t> FirstOfBadWindows(std::span<const double> losses,
                                         size_t length) {
  const std::vector<double> means = WindowMeans(losses, length);
  std::optional<int64_t> first;
  if (means.empty()) return first;
  // Losses after the best window do not measure chance, since the run may have
  // diverged there.
  const auto best = static_cast<size_t>(
      std::min_element(means.begin(), means.end()) - means.begin());
  const double chance =
      kErrors * ErrorOfWindow(losses.first(best + length), length);
  double least = std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < means.size(); ++i) {
    least = std::min(least, means[i]);
    const double learnt = losses.front() - least;
    if (means[i] <= least + std::max(kLost * learnt, chance)) {
      first.reset();
    } else if (!first) {
      first = static_cast<int64_t>(i) + 1;
    }
  }
  return first;
}

}  // namespace

std::optional<int64_t> DivergedAt(std::span<const double> losses,
                                  int64_t planned_steps, bool complete) {
  const auto bad = std::ranges::find_if(
      losses, [](double loss) { return !std::isfinite(loss); });
  const auto finite = static_cast<size_t>(bad - losses.begin());
  std::optional<int64_t> at;
  if (planned_steps >= kParts) {
    at = FirstOfBadWindows(losses.first(finite),
                           static_cast<size_t>(planned_steps / kParts));
  }
  if (at) return at;
  if (bad != losses.end()) return static_cast<int64_t>(finite) + 1;
  if (!complete) return static_cast<int64_t>(losses.size());
  return std::nullopt;
}

}  // namespace isoloss::stats
