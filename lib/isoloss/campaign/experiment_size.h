// How long and how often a new experiment trains, for the time there is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

namespace isoloss::campaign {

/// Of each arm.
struct ExperimentSize {
  int64_t steps = 0;
  size_t seeds = 0;
};

// What a verdict needs at least: the mean of the last fifth of the steps is
// compared, and its interval comes from the seeds.
inline constexpr int64_t kFewestSteps = 100;
inline constexpr size_t kFewestSeeds = 4;

/// A text that is read up to four times teaches about as much as so much more
/// text. Source   Muennighoff et al., "Scaling Data-Constrained Language
/// Models", arXiv 2305.16264.
inline constexpr double kMostReadings = 4;

/// Steps that read `training_tokens` kMostReadings times.
int64_t MostSteps(size_t training_tokens, size_t tokens_per_step);

/// Tokens to train on that kFewestSteps need.
size_t FewestTrainingTokens(size_t tokens_per_step);

/// What fills `budget_seconds`, by the `seconds` that a size takes, which grow
/// with both: first seeds up to 8 and kFewestSteps, then steps up to
/// `most_steps` (at least kFewestSteps), then seeds up to 24. Steps are whole
/// tens.
/// Special  no seeds if the least size takes longer.
ExperimentSize LargestSize(
    const std::function<double(const ExperimentSize&)>& seconds,
    double budget_seconds, int64_t most_steps);

}  // namespace isoloss::campaign
