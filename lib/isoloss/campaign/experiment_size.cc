#include "isoloss/campaign/experiment_size.h"

#include <algorithm>
#include <cmath>

namespace isoloss::campaign {
namespace {

constexpr int64_t kTen = 10;

}  // namespace

int64_t MostSteps(size_t training_tokens, size_t tokens_per_step) {
  return static_cast<int64_t>(kMostReadings *
                              static_cast<double>(training_tokens) /
                              static_cast<double>(tokens_per_step));
}

size_t FewestTrainingTokens(size_t tokens_per_step) {
  return static_cast<size_t>(std::ceil(static_cast<double>(kFewestSteps) *
                                       static_cast<double>(tokens_per_step) /
                                       kMostReadings));
}

ExperimentSize LargestSize(
    const std::function<double(const ExperimentSize&)>& seconds,
    double budget_seconds, int64_t most_steps) {
  constexpr size_t kManySeeds = 8;
  constexpr size_t kMostSeeds = 24;
  const auto fits = [&](const ExperimentSize& size) {
    return seconds(size) <= budget_seconds;
  };
  ExperimentSize size{.steps = kFewestSteps, .seeds = kFewestSeeds};
  if (!fits(size)) return {};
  const auto add_seeds = [&](size_t most) {
    while (size.seeds + 2 <= most && fits({size.steps, size.seeds + 2})) {
      size.seeds += 2;
    }
  };
  add_seeds(kManySeeds);
  // In whole tens: the largest that fits.
  int64_t low = kFewestSteps / kTen;
  int64_t high = std::max(low, most_steps / kTen);
  while (low < high) {
    const int64_t middle = (low + high + 1) / 2;
    if (fits({middle * kTen, size.seeds})) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  size.steps = low * kTen;
  add_seeds(kMostSeeds);
  return size;
}

}  // namespace isoloss::campaign
