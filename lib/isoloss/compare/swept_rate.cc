#include "isoloss/compare/swept_rate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "isoloss/runlog/tuning.h"

namespace isoloss::compare {
namespace {

/// The best rate's neighbours may lie so many times apart: a factor of two,
/// which `study rates` takes, and a rounded figure of it.
constexpr double kWidestStep = 2.1;
/// The sweep reaches so many times below and beyond the best rate: nearer rates
/// differ by chance alone.
constexpr double kLeastReach = 1.4;

}  // namespace

bool IsNearRate(double rate, double best) {
  return std::max(rate / best, best / rate) <= kNearRate * (1 + 1e-9);
}

std::string SweepDefect(std::span<const double> rates,
                        std::span<const double> held_out, size_t seeds,
                        const stats::RateOptimum& optimum) {
  const double best = rates[optimum.best];
  if (seeds < runlog::kLeastSweepSeeds) {
    return fmt::format("the sweep has {} seed{} of each rate, but {} are due",
                       seeds, seeds == 1 ? "" : "s", runlog::kLeastSweepSeeds);
  }
  if (!optimum.bracketed) {
    return fmt::format(
        "the best learning rate tried, {:g}, is the outermost, so a better one "
        "may lie beyond",
        best);
  }
  const double lower = rates[optimum.best - 1];
  const double upper = rates[optimum.best + 1];
  if (best / lower > kWidestStep || upper / best > kWidestStep ||
      !std::isfinite(held_out[optimum.best - 1])) {
    return fmt::format(
        "the best learning rate tried, {:g}, has the neighbours {:g} and {:g}, "
        "but they must lie within a factor {:g}, and the lower must train",
        best, lower, upper, kWidestStep);
  }
  if (best / rates.front() < kLeastReach || rates.back() / best < kLeastReach) {
    return fmt::format(
        "the sweep reaches from {:g} to {:g}, but it must reach {:g} times "
        "below and beyond the best learning rate tried, {:g}",
        rates.front(), rates.back(), kLeastReach, best);
  }
  return "";
}

}  // namespace isoloss::compare
