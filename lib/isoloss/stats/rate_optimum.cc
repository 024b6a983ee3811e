#include "isoloss/stats/rate_optimum.h"

#include <cmath>

#include "isoloss/base/error.h"
#include "isoloss/base/portable_math.h"

namespace isoloss::stats {
namespace {

/// Returns where the parabola through three points of ascending x is lowest.
/// The middle point is the lowest of the three, so the result lies between the
/// middles of both gaps.
double LowestOfParabola(const double (&x)[3], const double (&y)[3]) {
  const double left = (y[1] - y[0]) / (x[1] - x[0]);
  const double right = (y[2] - y[1]) / (x[2] - x[1]);
  const double curvature = (right - left) / (x[2] - x[0]);
  if (!(curvature > 0)) return x[1];  // three equal losses
  return (x[0] + x[1]) / 2 - left / (2 * curvature);
}

}  // namespace

std::optional<RateOptimum> FindRateOptimum(std::span<const double> rates,
                                           std::span<const double> losses) {
  ISOLOSS_ASSERT(rates.size() == losses.size());
  std::optional<size_t> best;
  for (size_t i = 0; i < rates.size(); ++i) {
    if (!std::isfinite(losses[i])) continue;
    if (!best || losses[i] < losses[*best]) best = i;
  }
  if (!best) return std::nullopt;
  const size_t at = *best;
  RateOptimum optimum{.best = at,
                      .rate = rates[at],
                      .bracketed = at > 0 && at + 1 < rates.size()};
  if (optimum.bracketed && std::isfinite(losses[at - 1]) &&
      std::isfinite(losses[at + 1])) {
    optimum.rate = portable::Exp(LowestOfParabola(
        {portable::Log(rates[at - 1]), portable::Log(rates[at]),
         portable::Log(rates[at + 1])},
        {losses[at - 1], losses[at], losses[at + 1]}));
  }
  return optimum;
}

std::optional<double> LossAtRate(std::span<const double> rates,
                                 std::span<const double> losses, double rate) {
  ISOLOSS_ASSERT(rates.size() == losses.size());
  for (size_t i = 0; i < rates.size(); ++i) {
    if (rates[i] < rate) continue;
    double loss = losses[i];
    if (rates[i] > rate) {
      if (i == 0) return std::nullopt;
      const double share = portable::Log(rate / rates[i - 1]) /
                           portable::Log(rates[i] / rates[i - 1]);
      loss = losses[i - 1] + share * (losses[i] - losses[i - 1]);
    }
    if (!std::isfinite(loss)) return std::nullopt;
    return loss;
  }
  return std::nullopt;
}

}  // namespace isoloss::stats
