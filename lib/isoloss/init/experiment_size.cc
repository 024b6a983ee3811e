#include "isoloss/init/experiment_size.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace isoloss::init {
namespace {

/// Returns all sizes that an experiment may have, by steps and then by seeds.
std::vector<ExperimentSize> Sizes(int64_t most_steps) {
  constexpr int64_t kTen = 10;
  constexpr size_t kMostSeeds = 24;
  std::vector<ExperimentSize> sizes;
  for (int64_t steps = kFewestSteps;
       steps <= std::max(most_steps, kFewestSteps); steps += kTen) {
    for (size_t seeds = kFewestSeeds; seeds <= kMostSeeds; seeds += 2) {
      sizes.push_back({.steps = steps, .seeds = seeds});
    }
  }
  return sizes;
}

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

ExperimentSize MostTellingSize(const OfSize& seconds, const OfSize& power,
                               double budget_seconds, int64_t most_steps,
                               std::optional<int64_t> steps) {
  ExperimentSize best;
  double most = -1;
  for (const ExperimentSize& size :
       Sizes(std::max(most_steps, steps.value_or(0)))) {
    if (steps && size.steps != *steps) continue;
    if (seconds(size) > budget_seconds) continue;
    const double counted = std::min(power(size), kEnoughPower);
    // Among equal sizes the later one has more steps, or as many and more
    // seeds.
    if (counted < most) continue;
    most = counted;
    best = size;
  }
  return best;
}

double SecondsForWantedPower(const OfSize& seconds, const OfSize& power,
                             int64_t most_steps) {
  double least = std::numeric_limits<double>::infinity();
  for (const ExperimentSize& size : Sizes(most_steps)) {
    if (power(size) >= kWantedPower) least = std::min(least, seconds(size));
  }
  return least;
}

}  // namespace isoloss::init
