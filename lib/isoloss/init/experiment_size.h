// Chooses how long and how often a new experiment trains in the available time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>

namespace isoloss::init {

/// Each arm has this size.
struct ExperimentSize {
  int64_t steps = 0;
  size_t seeds = 0;
};

// A verdict compares the mean of the last fifth of the steps, and its interval
// comes from the seeds. It needs at least these numbers.
inline constexpr int64_t kFewestSteps = 100;
inline constexpr size_t kFewestSeeds = 4;

/// A text that is read up to four times teaches about as much as that many
/// times the text.
/// Source   Muennighoff et al., "Scaling Data-Constrained Language Models",
///          arXiv 2305.16264.
inline constexpr double kMostReadings = 4;

/// An experiment should have at least kWantedPower. Beyond kEnoughPower more
/// power is worth less than more steps.
inline constexpr double kWantedPower = 0.8;
inline constexpr double kEnoughPower = 0.95;

/// Returns the steps that read `training_tokens` kMostReadings times.
int64_t MostSteps(size_t training_tokens, size_t tokens_per_step);

/// Returns the number of training tokens that kFewestSteps need.
size_t FewestTrainingTokens(size_t tokens_per_step);

/// Computes one figure of a size. It is the time in seconds, which grows with
/// steps and seeds, or the probability that recipes that do not differ pass.
using OfSize = std::function<double(const ExperimentSize&)>;

/// Returns the size with the most power that fits into `budget_seconds`. Sizes
/// of at least kEnoughPower count alike: among them most steps win, and then
/// most seeds. So no larger budget gives a size of less power, up to
/// kEnoughPower. Steps are whole tens from kFewestSteps to `most_steps`, seeds
/// even numbers from kFewestSeeds to 24.
/// With `steps` they are so many.
/// Special  no seeds if the least size takes longer.
ExperimentSize MostTellingSize(const OfSize& seconds, const OfSize& power,
                               double budget_seconds, int64_t most_steps,
                               std::optional<int64_t> steps = std::nullopt);

/// Returns the seconds of the cheapest of these sizes that has kWantedPower;
/// infinite if none has.
double SecondsForWantedPower(const OfSize& seconds, const OfSize& power,
                             int64_t most_steps);

}  // namespace isoloss::init
