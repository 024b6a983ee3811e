#include "isoloss/estimators/gap_line.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "isoloss/base/error.h"
#include "isoloss/stats/student_t.h"
#include "isoloss/stats/summary.h"

namespace isoloss::estimators {
namespace {

stats::Summary RelativeGaps(const GapCell& cell) {
  std::vector<double> gaps;
  for (size_t i = 0; i < cell.gaps.size(); ++i) {
    gaps.push_back(100 * cell.gaps[i] / cell.baseline[i]);
  }
  const stats::Summary summary = stats::Summarize(gaps);
  if (summary.count < 2 || !std::isfinite(summary.mean)) {
    ThrowError(ErrorKind::kConfig,
               "ladder: size {} has {} seeds with a mean gap of {} %, but each "
               "size needs at least 2 seeds, all of them finite. Train more "
               "seeds.",
               cell.name, summary.count, summary.mean);
  }
  return summary;
}

/// Returns the sum of all cells' mean gaps times their weights.
GapEstimate WeightedSum(std::span<const GapCell> cells,
                        std::span<const double> weights) {
  GapEstimate sum;
  double variance = 0;
  double of_variances = 0;  // squares over their degrees of freedom
  for (size_t i = 0; i < cells.size(); ++i) {
    const stats::Summary gaps = RelativeGaps(cells[i]);
    const auto count = static_cast<double>(gaps.count);
    const double part = weights[i] * weights[i] * gaps.sd * gaps.sd / count;
    sum.value += weights[i] * gaps.mean;
    variance += part;
    of_variances += part * part / (count - 1);
  }
  sum.error = std::sqrt(variance);
  sum.degrees_of_freedom = of_variances > 0
                               ? variance * variance / of_variances
                               : std::numeric_limits<double>::infinity();
  return sum;
}

/// Describes cells by log10 of their operations, relative to the mean over all
/// seeds.
struct Abscissae {
  double mean = 0;
  double seeds = 0;
  double squares = 0;
  std::vector<double> deviations;
  std::vector<double> counts;
};

Abscissae AbscissaeOf(std::span<const GapCell> cells) {
  Abscissae of;
  for (const GapCell& cell : cells) {
    of.counts.push_back(static_cast<double>(cell.gaps.size()));
    of.seeds += of.counts.back();
    of.mean += of.counts.back() * std::log10(cell.size.Flops());
  }
  of.mean /= of.seeds;
  for (size_t i = 0; i < cells.size(); ++i) {
    of.deviations.push_back(std::log10(cells[i].size.Flops()) - of.mean);
    of.squares += of.counts[i] * of.deviations[i] * of.deviations[i];
  }
  // Rounding leaves less than 1e-20 where all cells are alike.
  if (!(of.squares > 1e-20)) {
    ThrowError(ErrorKind::kConfig,
               "ladder: {} sizes take equally many operations, but a line "
               "needs two that differ. Train another size.",
               cells.size());
  }
  return of;
}

}  // namespace

GapInterval GapEstimate::Interval(double confidence) const {
  if (!(confidence > 0 && confidence < 1)) {
    ThrowError(ErrorKind::kConfig,
               "ladder: the confidence is {}, but it must be above 0 and below "
               "1.",
               confidence);
  }
  if (error == 0) return {value, value, value};
  const double reach =
      error * stats::StudentTQuantile((1 + confidence) / 2,
                                      std::max(1.0, degrees_of_freedom));
  return {value, value - reach, value + reach};
}

GapEstimate MeanGap(const GapCell& cell) {
  const double weight = 1;
  return WeightedSum({&cell, 1}, {&weight, 1});
}

GapEstimate ConstantGap(std::span<const GapCell> cells) {
  if (cells.empty()) {
    ThrowError(ErrorKind::kConfig,
               "ladder: no size has runs, but a mean needs one. Train one.");
  }
  double seeds = 0;
  for (const GapCell& cell : cells) {
    seeds += static_cast<double>(cell.gaps.size());
  }
  std::vector<double> weights;
  for (const GapCell& cell : cells) {
    weights.push_back(static_cast<double>(cell.gaps.size()) / seeds);
  }
  return WeightedSum(cells, weights);
}

GapEstimate LineAt(std::span<const GapCell> cells, double flops) {
  const Abscissae at = AbscissaeOf(cells);
  const double distance = std::log10(flops) - at.mean;
  std::vector<double> weights;
  for (size_t i = 0; i < cells.size(); ++i) {
    weights.push_back(
        at.counts[i] *
        (1 / at.seeds + distance * at.deviations[i] / at.squares));
  }
  return WeightedSum(cells, weights);
}

GapEstimate LineSlope(std::span<const GapCell> cells) {
  const Abscissae at = AbscissaeOf(cells);
  std::vector<double> weights;
  for (size_t i = 0; i < cells.size(); ++i) {
    weights.push_back(at.counts[i] * at.deviations[i] / at.squares);
  }
  return WeightedSum(cells, weights);
}

std::optional<double> ScatterOfCells(std::span<const GapCell> cells) {
  if (cells.size() < kCellsOfALine) return std::nullopt;
  const Abscissae at = AbscissaeOf(cells);
  const double middle = ConstantGap(cells).value;
  const double slope = LineSlope(cells).value;
  double between = 0;
  double within = 0;
  for (size_t i = 0; i < cells.size(); ++i) {
    const stats::Summary gaps = RelativeGaps(cells[i]);
    const double rest = gaps.mean - middle - slope * at.deviations[i];
    between += at.counts[i] * rest * rest;
    within += (at.counts[i] - 1) * gaps.sd * gaps.sd;
  }
  if (!(within > 0)) return std::nullopt;
  const auto count = static_cast<double>(cells.size());
  return std::sqrt(between / (count - 2) / (within / (at.seeds - count)));
}

GapEstimate GapDifference(const GapCell& a, const GapCell& b) {
  const GapCell cells[] = {a, b};
  const double weights[] = {1, -1};
  return WeightedSum(cells, weights);
}

}  // namespace isoloss::estimators
