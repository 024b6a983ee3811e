#include "isoloss/compare/difference_by_tenth.h"

#include <algorithm>
#include <cmath>

#include "isoloss/base/error.h"
#include "isoloss/compare/final_window.h"
#include "isoloss/compare/rate_plateau.h"
#include "isoloss/stats/summary.h"

namespace isoloss::compare {
namespace {

constexpr size_t kParts = 10;

/// Returns 100 (L_c - L_b) / L_b of each step.
std::vector<double> PercentOf(const SeedPair& pair) {
  const auto& baseline = pair.baseline->log.steps.loss_nats;
  const auto& candidate = pair.candidate->log.steps.loss_nats;
  ISOLOSS_ASSERT(baseline.size() == candidate.size());
  std::vector<double> percent(baseline.size());
  for (size_t i = 0; i < percent.size(); ++i) {
    percent[i] = PercentDifference(candidate[i], baseline[i]);
  }
  return percent;
}

stats::MeanInterval OverSeeds(const std::vector<double>& values, double alpha) {
  return stats::IntervalOfMean(stats::Summarize(values), alpha);
}

/// Holds the differences of each seed, and computes means and slopes of them.
class Differences {
 public:
  Differences(const Pairing& pairing, double alpha)
      : steps_(pairing.pairs[0].baseline->log.steps.step), alpha_(alpha) {
    for (const SeedPair& pair : pairing.pairs) {
      percent_.push_back(PercentOf(pair));
    }
  }

  size_t steps() const { return steps_.size(); }

  /// Returns the mean over places [first, last] for each seed.
  std::vector<double> Means(size_t first, size_t last) const {
    std::vector<double> means;
    for (const auto& percent : percent_) {
      means.push_back(
          stats::Mean(std::span(percent).subspan(first, last - first + 1)));
    }
    return means;
  }

  PartDifference Part(size_t first, size_t last) const {
    return {steps_[first], steps_[last], OverSeeds(Means(first, last), alpha_)};
  }

  /// Returns the slope against x, which begins at place `first`.
  stats::MeanInterval Slope(const std::vector<double>& x, size_t first) const {
    std::vector<double> slopes;
    for (const auto& percent : percent_) {
      slopes.push_back(LeastSquaresSlope(x, std::span(percent).subspan(first)));
    }
    return OverSeeds(slopes, alpha_);
  }

  /// Compares the steps before place `fall` with those from it on.
  DecayDifference Around(size_t fall) const {
    std::vector<double> change = Means(fall, steps() - 1);
    const std::vector<double> before = Means(0, fall - 1);
    for (size_t i = 0; i < change.size(); ++i) change[i] -= before[i];
    return {Part(0, fall - 1), Part(fall, steps() - 1),
            OverSeeds(change, alpha_)};
  }

 private:
  const std::vector<int64_t>& steps_;
  double alpha_;
  std::vector<std::vector<double>> percent_;  // of each seed and step
};

}  // namespace

double LeastSquaresSlope(std::span<const double> x, std::span<const double> y) {
  ISOLOSS_ASSERT(x.size() == y.size());
  const double mean_x = stats::Mean(x);
  const double mean_y = stats::Mean(y);
  std::vector<double> products;
  std::vector<double> squares;
  for (size_t i = 0; i < x.size(); ++i) {
    products.push_back((x[i] - mean_x) * (y[i] - mean_y));
    squares.push_back((x[i] - mean_x) * (x[i] - mean_x));
  }
  return stats::Sum(products) / stats::Sum(squares);
}

DifferenceByTenth CompareByTenth(const Pairing& pairing, double alpha) {
  ISOLOSS_ASSERT(!pairing.pairs.empty());
  const runlog::StepColumns& columns = pairing.pairs[0].baseline->log.steps;
  const Differences differences(pairing, alpha);
  const size_t steps = differences.steps();
  DifferenceByTenth result;
  const size_t parts = std::min(kParts, steps);
  const auto begin = [&](size_t part) { return part * steps / parts; };
  for (size_t part = 0; part < parts; ++part) {
    result.tenths.push_back(differences.Part(begin(part), begin(part + 1) - 1));
  }
  constexpr size_t kFewest = 3;
  const size_t first = parts > 1 ? begin(1) : steps;
  if (steps - first >= kFewest && !columns.tokens_seen.empty()) {
    std::vector<double> doublings;
    for (size_t i = first; i < steps; ++i) {
      doublings.push_back(
          std::log2(static_cast<double>(columns.tokens_seen[i])));
    }
    result.per_doubling = differences.Slope(doublings, first);
  }
  const auto plateau = PlateauOf(columns.lr);
  if (plateau.has_value() && plateau->last + 1 < steps) {
    result.decay = differences.Around(plateau->last + 1);
  }
  return result;
}

}  // namespace isoloss::compare
