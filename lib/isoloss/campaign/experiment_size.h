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

/// The power that an experiment should have at least, and the power beyond
/// which more of it is worth less than more steps.
inline constexpr double kWantedPower = 0.8;
inline constexpr double kEnoughPower = 0.95;

/// Steps that read `training_tokens` kMostReadings times.
int64_t MostSteps(size_t training_tokens, size_t tokens_per_step);

/// Tokens to train on that kFewestSteps need.
size_t FewestTrainingTokens(size_t tokens_per_step);

/// A figure of a size: the seconds that it takes, which grow with both, or the
/// probability that recipes that do not differ pass.
using OfSize = std::function<double(const ExperimentSize&)>;

/// Of the sizes that fit into `budget_seconds` the one of most power. Sizes of
/// kEnoughPower count alike: of them the one of most steps, and then of most
/// seeds. So no larger budget gives a size of less power, up to kEnoughPower.
/// Steps are whole tens from kFewestSteps to `most_steps`, seeds even numbers
/// from kFewestSeeds to 24.
/// Special  no seeds if the least size takes longer.
ExperimentSize MostTellingSize(const OfSize& seconds, const OfSize& power,
                               double budget_seconds, int64_t most_steps);

/// Seconds of the cheapest of these sizes that has kWantedPower; infinite if
/// none has.
double SecondsForWantedPower(const OfSize& seconds, const OfSize& power,
                             int64_t most_steps);

}  // namespace isoloss::campaign
