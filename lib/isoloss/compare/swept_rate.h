// Judges sweeps of learning rates, and rates by them.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "isoloss/stats/rate_optimum.h"

namespace isoloss::compare {

/// A tuned rate is at most so many times the best one, and that at most so many
/// times the rate.
inline constexpr double kNearRate = 1.5;
bool IsNearRate(double rate, double best);

/// Says what keeps a sweep from showing where its `optimum` lies. Returns "" if
/// the sweep shows that: each rate has enough seeds, the best rate has near
/// neighbours, the lower one trains, and rates lie well apart from the best on
/// both sides.
std::string SweepDefect(std::span<const double> rates,
                        std::span<const double> held_out, size_t seeds,
                        const stats::RateOptimum& optimum);

}  // namespace isoloss::compare
