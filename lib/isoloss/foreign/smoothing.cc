#include "isoloss/foreign/smoothing.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <utility>

namespace isoloss::foreign {
namespace {

constexpr size_t kFewestForCorrelation = 50;

/// Takes away the parabola of least squares, by polynomials that are orthogonal
/// on equal distances.
void RemoveParabola(std::span<double> values) {
  std::vector<std::vector<double>> basis;
  const auto remove = [](std::span<const double> direction,
                         std::span<double> from) {
    double square = 0;
    double product = 0;
    for (size_t i = 0; i < from.size(); ++i) {
      square += direction[i] * direction[i];
      product += direction[i] * from[i];
    }
    for (size_t i = 0; i < from.size(); ++i) {
      from[i] -= product / square * direction[i];
    }
  };
  for (int power = 0; power <= 2; ++power) {
    std::vector<double>& next = basis.emplace_back();
    for (size_t i = 0; i < values.size(); ++i) {
      const double x =
          2 * static_cast<double>(i) / static_cast<double>(values.size() - 1) -
          1;
      next.push_back(std::pow(x, power));
    }
    for (int below = 0; below < power; ++below) {
      remove(basis[static_cast<size_t>(below)], next);
    }
    remove(next, values);
  }
}

double MedianOf(std::vector<double> values) {
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::ranges::nth_element(values, middle);
  return *middle;
}

/// Returns the places of differences that are further from the median than 4.45
/// times the median distance: three standard deviations of a normal
/// distribution. The few differences of a spike, hump or step would outweigh
/// all the rest, and hide each other.
std::vector<bool> JumpsIn(std::span<const double> differences) {
  constexpr double kMedians = 4.45;
  constexpr int kRounds = 3;
  std::vector<bool> jumps(differences.size(), false);
  for (int round = 0; round < kRounds; ++round) {
    std::vector<double> rest;
    for (size_t i = 0; i < jumps.size(); ++i) {
      if (!jumps[i]) rest.push_back(differences[i]);
    }
    const double center = MedianOf(rest);
    for (double& x : rest) x = std::fabs(x - center);
    const double most = kMedians * MedianOf(std::move(rest));
    if (most == 0) break;  // the values have few digits
    for (size_t i = 0; i < jumps.size(); ++i) {
      jumps[i] = std::fabs(differences[i] - center) > most;
    }
  }
  return jumps;
}

/// Returns autocorrelations, a parabola removed, of values not `left_out`.
DifferenceCorrelation LagSums(std::vector<double> values,
                              const std::vector<bool>& left_out) {
  constexpr size_t kLags = 8;
  const double middle = MedianOf(values);
  for (size_t i = 0; i < values.size(); ++i) {
    if (left_out[i]) values[i] = middle;
  }
  RemoveParabola(values);
  double square = 0;
  double count = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    if (left_out[i]) values[i] = 0;
    square += values[i] * values[i];
    count += left_out[i] ? 0 : 1;
  }
  if (square == 0) return {.value = std::nan("")};
  DifferenceCorrelation result;
  double sum = 0;
  for (size_t lag = 1; lag <= kLags; ++lag) {
    double product = 0;
    double pairs = 0;
    for (size_t i = lag; i < values.size(); ++i) {
      product += values[i] * values[i - lag];
      pairs += left_out[i] || left_out[i - lag] ? 0 : 1;
    }
    sum += pairs > 0 ? product / pairs * count / square : 0;
    if (lag == 1) result.value = sum;
    if (lag == 3) result.sum_of_three = sum;
    result.least_sum = std::min(result.least_sum, sum);
  }
  return result;
}

}  // namespace

DifferenceCorrelation CorrelationOfDifferences(
    const std::vector<double>& values) {
  std::vector<double> differences;
  for (size_t i = 1; i < values.size(); ++i) {
    const double difference = values[i] - values[i - 1];
    if (std::isfinite(difference)) differences.push_back(difference);
  }
  const size_t n = differences.size();
  if (n < kFewestForCorrelation) return {.value = std::nan("")};
  // The later half alone counts, since a run may start steeply.
  const std::vector<double> later(
      differences.begin() + static_cast<std::ptrdiff_t>(n / 2),
      differences.end());
  const DifferenceCorrelation all =
      LagSums(later, std::vector<bool>(later.size(), false));
  const DifferenceCorrelation calm = LagSums(later, JumpsIn(later));
  return {std::min(all.value, calm.value),
          1 / std::sqrt(2 * static_cast<double>(later.size())),
          std::min(all.sum_of_three, calm.sum_of_three),
          std::min(all.least_sum, calm.least_sum)};
}

double SmoothedFrom(const DifferenceCorrelation& correlation) {
  constexpr double kLeast = -0.2;
  return std::max(kLeast, -0.5 + 4 * correlation.standard_error);
}

bool LooksSmoothed(const Series& series) {
  // 0.9 on the past gives -0.14; batches that correlate by 0.6 give -0.39.
  constexpr double kLeastOfThree = -0.25;
  constexpr double kPeriodic = -0.8;
  const auto correlation = CorrelationOfDifferences(series.value);
  return correlation.value > SmoothedFrom(correlation) &&
         correlation.sum_of_three > kLeastOfThree &&
         correlation.least_sum > kPeriodic;
}

bool CanTellSmoothing(const Series& series) {
  const auto correlation = CorrelationOfDifferences(series.value);
  constexpr double kStrong = -(1 - 0.9) / 2;
  return !std::isnan(correlation.value) && SmoothedFrom(correlation) < kStrong;
}

}  // namespace isoloss::foreign
